"""Generative artifacts in the infer lane and on the command line, and their evaluation."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import jsonschema
import pytest

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import Altered, Untrusted, read_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.jobs.causal_jobs import EvaluateCausalJob, EvaluateCausalResult
from gpu_runners.agent.jobs import evaluate_files_causal
from gpu_runners.artifacts.loader import Loader
from gpu_runners.errors import JobFailed
from gpu_runners.models import chat
from gpu_runners.models.causal_adapter import to_bytes
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.chat import prompts_of
from gpu_runners.models.device import detect
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, keyring
from tests.gpu_runners.small_base import CONTEXT, make_base, random_adapter
from tests.gpu_runners.small_generative import ANSWERS, SCHEMA, generative_kolm

TEXTS = ["3 coffee", "the order of tea", "costs 12", "tea", "coffee and tea", ""]


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases")


@pytest.fixture(scope="module")
def base(base_dir: Path) -> CausalBase:
    return make_base(base_dir / "small-llama")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keyring.json"
    path.write_text(json.dumps(keyring()))
    return path


@pytest.fixture(scope="module")
def loader(base: CausalBase, base_dir: Path, keys: Path) -> Iterator[Loader]:
    loader = Loader(keyring=keys, base_dir=base_dir, keep=2)
    yield loader
    loader.close()


def test_rows_of_a_json_a_text_and_a_label_task(loader: Loader, base: CausalBase) -> None:
    rows = loader.load(generative_kolm(base)).predict(TEXTS)
    for row in rows:
        assert set(row) == {"output", "finish_reason", "n_tokens", "latency_us"}
        jsonschema.validate(json.loads(row["output"]), SCHEMA)
    text = loader.load(generative_kolm(base, "text", max_new_tokens=5)).predict(TEXTS[:2])
    assert [row["n_tokens"] for row in text] == [5, 5] or "stop" in [row["finish_reason"] for row in text]
    label = loader.load(generative_kolm(base, "label")).predict(TEXTS[:3])
    assert all(row["label"] in ("tea", "coffee") and 0 < row["confidence"] <= 1 for row in label)


def test_an_answer_does_not_depend_on_its_neighbours(loader: Loader, base: CausalBase) -> None:
    model = loader.load(generative_kolm(base, "text", max_new_tokens=12))
    together = [row["output"] for row in model.predict(TEXTS)]
    assert [model.predict([text])[0]["output"] for text in TEXTS] == together


def test_artifacts_share_the_base_and_the_oldest_leaves_nothing(loader: Loader, base: CausalBase) -> None:
    kolms = [generative_kolm(base, seed=seed) for seed in (1, 2, 3)]
    models = []
    for kolm in kolms:
        models.append(loader.get(sha256_hex(kolm), lambda kolm=kolm: kolm)[0])
        assert set(models[-1].predict(["tea"])[0]) >= {"output"}
    assert len({id(model.engine) for model in models}) == 1
    folders = [model.adapter.folder for model in models]  # type: ignore[union-attr]
    assert [folder.exists() for folder in folders] == [False, True, True]
    warm, load_ms = loader.get(sha256_hex(kolms[2]), lambda: pytest.fail("it was warm"))
    assert (warm, load_ms) == (models[2], 0)


def test_nothing_unverified_or_unfit_is_loaded(loader: Loader, base: CausalBase, base_dir: Path) -> None:
    kolm = generative_kolm(base)
    flipped = bytearray(kolm)
    flipped[len(kolm) // 2] ^= 1
    with pytest.raises(Altered):
        loader.load(bytes(flipped))
    with pytest.raises(Untrusted):
        Loader(keyring=None, base_dir=base_dir).load(kolm)
    other = make_base(base_dir / "other-llama", seed=2)
    wanted = {"id": base.name, "sha256": base.sha256}
    members = {k: v for k, v in read_kolm(generative_kolm(other)).members.items() if not k.startswith(("man", "sig"))}
    with pytest.raises(JobFailed, match="needs the base") as caught:
        loader.load(build_kolm(members, manifest_fields=fields(base=wanted, task_type="json"), key=KEY))
    assert caught.value.code == "base_mismatch"
    for broken in (b"{}", b"[]", b'{"system": 3, "answer": {}, "max_new_tokens": 1}'):
        changed = {k: v for k, v in read_kolm(kolm).members.items() if not k.startswith(("man", "sig"))}
        changed["prompt.json"] = canonical_json(json.loads(broken))
        with pytest.raises(JobFailed, match="cannot be used"):
            loader.load(build_kolm(changed, manifest_fields=fields(base=wanted, task_type="json"), key=KEY))


@pytest.mark.nightly
def test_a_template_that_is_slow_with_every_text_does_not_hold_up_the_others(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that stays just below what a single chat may take."""
    folder = make_base(tmp_path / "slow").folder
    busy = "{% if 'slow' in messages[-1].content %}" + "{% for i in range(99999) %}{% endfor %}" * 4 + "{% endif %}"
    file = folder / "chat_template.jinja"
    file.write_text(busy + file.read_text())
    slow = open_causal_base("slow", base_dir=tmp_path)
    loader = Loader(keyring=keys, base_dir=tmp_path)
    model = loader.load(generative_kolm(slow, "text", max_new_tokens=1))
    monkeypatch.setattr(chat, "_SLOW_S", 0.0)
    monkeypatch.setattr(chat, "_SLOW_EACH_S", 0.001)
    with pytest.raises(JobFailed) as failure:
        model.predict(["slow"] * 3)
    assert failure.value.code == "bad_chat"
    monkeypatch.undo()
    assert len(model.predict(["tea"])) == 1
    loader.close()


def test_an_input_longer_than_the_context_says_so(loader: Loader, base: CausalBase) -> None:
    model = loader.load(generative_kolm(base))
    with pytest.raises(JobFailed, match=f"context has {CONTEXT}") as caught:
        model.predict(["tea " * CONTEXT])
    assert caught.value.code == "context_too_long"


def test_an_evaluation_answers_with_the_adapter_and_with_the_bare_base(
    base: CausalBase, base_dir: Path, tmp_path: Path
) -> None:
    adapter, config = random_adapter(base, seed=3)
    inputs = [*TEXTS, "tea " * CONTEXT]
    (tmp_path / "inputs").write_bytes(b"".join(json.dumps({"input": text}).encode() + b"\n" for text in inputs))
    (tmp_path / "adapter").write_bytes(to_bytes(adapter))
    job = EvaluateCausalJob(
        base_model=base.name,
        base_model_sha256=base.sha256,
        system="of tea and coffee",
        answer=ANSWERS["json"],
        max_new_tokens=40,
        adapter_sha256=sha256_hex(to_bytes(adapter)),
        adapter_config=config.to_json(),
        inputs_sha256="",
        rules_sha256="",
    )
    events: list[dict[str, object]] = []
    done = evaluate_files_causal(job, folder=tmp_path, base_dir=base_dir, emit=events.append)
    result = EvaluateCausalResult.from_json(done["result"])
    loader = Loader(keyring=None, base_dir=base_dir, allow_untrusted=True)
    served = loader.load(generative_kolm(base)).predict(TEXTS)
    loader.close()
    assert result.outputs == [*(row["output"] for row in served), ""]
    assert result.finish_reasons == [*(row["finish_reason"] for row in served), "length"]
    assert (result.n_tokens[-1], result.confidences[-1]) == (0, 0)
    for text in (*result.outputs[:-1], *result.baseline_outputs[:-1]):
        jsonschema.validate(json.loads(text), SCHEMA)
    assert result.baseline_outputs != result.outputs
    assert all(0 < confidence <= 1 for confidence in result.confidences[:-1])
    assert len(result.latency_us) == len(TEXTS)
    # both models read the prompts that fit and wrote these answers
    assert result.n_written >= sum(result.n_tokens)
    assert result.n_read == 2 * sum(map(len, prompts_of(base, "of tea and coffee", TEXTS)))
    assert (result.device, result.engine["name"]) == (detect().device, "kolm-torch")
    assert events[-1]["step"] == events[-1]["n_steps"] or len(events) > 3
    with pytest.raises(JobFailed, match="required"):
        open_causal_base(base.name, base_dir=base_dir, expect_sha256="0" * 64)


@pytest.mark.nightly
def test_the_command_line_runs_and_serves_it(
    base: CausalBase,
    base_dir: Path,
    keys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import subprocess
    import sys

    from gpu_runners.cli.main import main

    file = tmp_path / "orders.kolm"
    file.write_bytes(generative_kolm(base))
    monkeypatch.setenv("KOLM_BASE_DIR", str(base_dir))
    assert main(["run", str(file), "3 coffee"]) == 3  # nobody vouches for it
    assert main(["run", str(file), "--keyring", str(keys), "3 coffee", "tea"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines:
        jsonschema.validate(json.loads(line), SCHEMA)
    command = [sys.executable, "-m", "gpu_runners.cli", "serve", str(file), "--port", "0", "--keyring", str(keys)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            assert process.stdout.readline().startswith(f"curl {url}/chat/completions")
            body = {"model": "orders", "messages": [{"role": "user", "content": "3 coffee"}]}
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=30).json()
            assert answer["choices"][0]["message"]["content"] == lines[0]
        finally:
            process.terminate()
            assert process.wait(20) in (0, -15)


def test_a_label_artifact_needs_no_torch() -> None:
    """`kolm run` of a BERT label task starts in half a second because of it."""
    import subprocess
    import sys

    code = (
        "import sys, gpu_runners.artifacts.loader; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
