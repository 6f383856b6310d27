"""The recipes job on a real small model: observe its own answers, build a pack, measure, choose."""

import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.domain.canonical import sha256_hex
from backend.domain.jobs.recipe_jobs import PackRecipesJob, PackRecipesResult
from backend.domain.jobs.recipe_results import pack_recipes_result
from backend.domain.recipes.feedback import PackFeedback
from backend.domain.recipes.mining.building import PackOptions
from backend.domain.recipes.pack import read_pack
from gpu_runners.agent import child, jobs
from gpu_runners.artifacts.loader import Loader
from gpu_runners.errors import JobFailed
from gpu_runners.jobs.pack_recipes import PackInputs, pack_recipes
from gpu_runners.models.causal_adapter import to_bytes
from gpu_runners.models.causal_base import CausalBase
from tests.gpu_runners.small_base import CONTEXT, make_base, random_adapter
from tests.gpu_runners.small_generative import ANSWERS, generative_kolm
from tests.gpu_runners.small_packs import small_pack

TEXTS = [
    f"{n} {what}{more}" for n in (1, 3, 12) for what in ("tea", "coffee") for more in ("", " costs 12", " and tea")
]
SOURCES = ["pack", "schema", "prompt"]


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def base(base_dir: Path) -> CausalBase:
    return make_base(base_dir / "small-llama")


@pytest.fixture(scope="module")
def adapter(base: CausalBase) -> bytes:
    return to_bytes(random_adapter(base, seed=3)[0])


@pytest.fixture(scope="module")
def answers(base: CausalBase, base_dir: Path) -> list[str]:
    """What the model itself says to TEXTS: as a teacher whom it has learned to follow."""
    loader = Loader(keyring=None, base_dir=base_dir, allow_untrusted=True)
    rows = loader.load(generative_kolm(base)).predict(TEXTS)
    loader.close()
    return [row["output"] for row in rows]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def make_job(base: CausalBase, adapter: bytes, **changes: Any) -> PackRecipesJob:
    job = PackRecipesJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        system="of tea and coffee",
        answer=ANSWERS["json"],
        max_new_tokens=40,
        adapter_sha256=sha256_hex(adapter),
        adapter_config=random_adapter(base, seed=3)[1].to_json(),
        observations_sha256="a" * 64,
        prompts_sha256="b" * 64,
        earlier_sha256="",
        feedback_sha256="",
        epoch_sha256="",
        options=PackOptions().to_json(),
        sources=SOURCES,
        draft_base="",
        budget_s=30.0,
    )
    return replace(job, **changes)


def make_inputs(adapter: bytes, answers: list[str], **changes: bytes) -> PackInputs:
    observed = [
        {"input": text, "output": answer, "samples": [answer] * 3} for text, answer in zip(TEXTS, answers, strict=False)
    ]
    prompts = [{"input": text} for text in TEXTS[::6]]
    made = PackInputs(observations=jsonl(observed), prompts=jsonl(prompts), adapter=adapter)
    return replace(made, **changes)


def test_a_pack_of_the_models_own_answers_is_made_measured_and_chosen_from(
    base: CausalBase, base_dir: Path, adapter: bytes, answers: list[str], tmp_path: Path
) -> None:
    """As the child process works on it: files in, a file and events out."""
    inputs = make_inputs(adapter, answers)
    for name in ("observations", "prompts", "adapter"):
        (tmp_path / name).write_bytes(getattr(inputs, name))
    told = io.StringIO()
    request = {"kind": "pack_recipes", "payload": make_job(base, adapter).to_json(), "folder": str(tmp_path)}
    done = child._work(jobs, request | {"base_dir": str(base_dir)}, told, threading.Event())
    data = Path(done["blobs"][0]).read_bytes()
    result = pack_recipes_result(json.loads(json.dumps(done["result"])), n_prompts=len(TEXTS[::6]), sources=SOURCES)
    pack = read_pack(data, tokenizer_sha256=base.tokenizer_sha256)
    assert result.pack_sha256 == sha256_hex(data)
    assert pack.recipes
    assert list(pack.sources) == result.measured[result.chosen]["sources"]
    assert [arm["sources"] for arm in result.measured][:4] == [[], ["pack"], ["schema"], ["prompt"]]
    plain = result.measured[0]
    assert (plain["drafted"], plain["n_steps"]) == (0, plain["n_tokens"])
    assert all(arm["n_tokens"] == plain["n_tokens"] for arm in result.measured)
    assert result.n_identical == plain["n_prompts"]
    assert result.stats["n_recipes"] == len(pack.recipes)
    events = [json.loads(line) for line in told.getvalue().splitlines()]
    assert {event["note"] for event in events} == {"observing the teacher's answers", "measuring what drafts"}


def run(base: CausalBase, base_dir: Path, job: PackRecipesJob, inputs: PackInputs) -> tuple[bytes, PackRecipesResult]:
    return pack_recipes(job, inputs, base_dir=base_dir)


def test_without_observations_the_pack_is_empty_and_does_not_draft(
    base: CausalBase, base_dir: Path, adapter: bytes
) -> None:
    data, result = run(base, base_dir, make_job(base, adapter), make_inputs(adapter, []))
    assert read_pack(data).recipes == ()
    assert all("pack" not in arm["sources"] for arm in result.measured)


def test_a_free_text_has_no_schema_to_draft_from(base: CausalBase, base_dir: Path, adapter: bytes) -> None:
    job = make_job(base, adapter, answer=ANSWERS["text"], max_new_tokens=6)
    _, result = run(base, base_dir, job, make_inputs(adapter, []))
    assert [arm["sources"] for arm in result.measured] == [[], ["prompt"]]


def test_an_earlier_pack_goes_on_as_what_was_reported_of_it_allows(
    base: CausalBase, base_dir: Path, adapter: bytes
) -> None:
    earlier = small_pack(base)
    (recipe,) = read_pack(earlier).recipes
    job = make_job(base, adapter)
    kept, _ = run(base, base_dir, job, make_inputs(adapter, [], earlier=earlier))
    assert [one.run for one in read_pack(kept).recipes] == [recipe.run]
    refused = PackFeedback(
        artifact_sha256="a" * 64,
        pack_sha256="b" * 64,
        n_answers=9,
        n_tokens=99,
        tried=[{"id": recipe.id, "tried": 80, "accepted": 8}],
        missed=[],
        learned=[],
    )
    inputs = make_inputs(adapter, [], earlier=earlier, feedback=jsonl([refused.to_json()]))
    assert read_pack(run(base, base_dir, job, inputs)[0]).recipes == ()


@pytest.mark.parametrize("earlier", [b"{", b'{"entries": [1]}'])
def test_an_earlier_pack_that_cannot_be_read_is_as_good_as_none(
    base: CausalBase, base_dir: Path, adapter: bytes, earlier: bytes
) -> None:
    inputs = make_inputs(adapter, [], earlier=earlier, epoch=b"{}")
    assert read_pack(run(base, base_dir, make_job(base, adapter), inputs)[0]).recipes == ()


@pytest.mark.parametrize(
    ("changes", "inputs", "code"),
    [
        ({}, {"observations": b'{"output": 1, "samples": []}\n'}, "invalid_dataset"),
        ({}, {"observations": b"[]\n"}, "invalid_dataset"),
        ({}, {"prompts": b""}, "invalid_dataset"),
        ({}, {"prompts": jsonl([{"input": "tea " * CONTEXT}])}, "invalid_dataset"),
        ({"options": {"max_bytes": 0}}, {}, "invalid_job"),
        ({"base_model_sha256": "f" * 64}, {}, "base_mismatch"),
        ({"sources": ["model"], "draft_base": "nobody-has-it"}, {}, "unknown_base"),
    ],
)
def test_what_cannot_be_worked_on_is_said(
    base: CausalBase,
    base_dir: Path,
    adapter: bytes,
    changes: dict[str, Any],
    inputs: dict[str, bytes],
    code: str,
) -> None:
    with pytest.raises(JobFailed) as caught:
        run(base, base_dir, make_job(base, adapter, **changes), make_inputs(adapter, [], **inputs))
    assert caught.value.code == code


def test_a_draft_base_of_other_tokens_is_refused(base: CausalBase, base_dir: Path, adapter: bytes) -> None:
    other = make_base(base_dir / "other-llama", seed=2)
    path = other.folder / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    job = make_job(base, adapter, sources=["pack", "model"], draft_base="other-llama")
    with pytest.raises(JobFailed, match="another tokenizer") as caught:
        run(base, base_dir, job, make_inputs(adapter, []))
    assert caught.value.code == "base_mismatch"


def test_a_small_model_of_the_same_tokens_is_measured_too(
    base: CausalBase, base_dir: Path, adapter: bytes, answers: list[str]
) -> None:
    make_base(base_dir / "draft-llama", seed=2)
    job = make_job(base, adapter, sources=["pack", "model"], draft_base="draft-llama")
    _, result = run(base, base_dir, job, make_inputs(adapter, answers))
    assert [arm["sources"] for arm in result.measured] == [[], ["pack"], ["model"], ["pack", "model"]]
    assert len({arm["n_tokens"] for arm in result.measured}) == 1
