"""Drafts for llama.cpp: the draft model by itself, and with the real library where .venv-llama has it."""

import hashlib
import json
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.mining.building import PackOptions, build_pack
from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import BEGIN, InvalidPack, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import Drafting, DraftKind, PackRef, SourceCount
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.llama_cpp import RecipeDrafts, following_pairs, write_static_lookup
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.vllm.wire import write_token_texts
from gpu_runners.speculation.vocabulary import token_texts
from tests.gpu_runners.speculation.tiny_task import prompts
from tests.tiny_bases import TINY, tiny_bases  # noqa: F401

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-llama" / "bin" / "python"
MOST = 40
TEXTS = [bytes([i]) for i in range(100)]
MODEL: dict[str, Any] = {"tokenizer_sha256": "t" * 64, "n_vocab": 100}
CONTEXT = 200_000  # as often as a model's context can hold a pair


def pack_of(*runs: tuple[tuple[int, ...], tuple[int, ...]], agreed: int = 9) -> RecipePack:
    recipes = tuple(
        Recipe(
            after=after,
            shape="" if after else "x",
            run=run,
            after_text="a",
            run_text="b",
            support=agreed,
            agreed=agreed,
        )
        for after, run in runs
    )
    return RecipePack(tokenizer_sha256="t" * 64, base="small", recipes=recipes, shape_version=SHAPE_VERSION)


def written(pack: RecipePack, folder: Path) -> PackRef:
    data = pack.to_bytes()
    key = hashlib.sha256(data).hexdigest()
    (folder / key).write_bytes(data)
    return PackRef(key=key, path=folder / key)


@pytest.fixture
def drafts(tmp_path: Path) -> RecipeDrafts:
    ref = written(pack_of(((BEGIN, 7), (8, 9, 10))), tmp_path)
    shelf = PackShelf(lambda: TEXTS, tokenizer_sha256="t" * 64)
    drafting = Drafting(kinds=(DraftKind.PACK,), pack=ref, is_gated=False)
    return RecipeDrafts(BatchDrafter(shelf), drafting, context=64)


def said(*tokens: int) -> Any:
    return np.array(tokens, dtype=np.intc)


def test_an_answer_begins_where_a_call_does_not_go_on(drafts: RecipeDrafts) -> None:
    assert drafts(said(1, 2, 7)).tolist() == [8, 9, 10]
    assert drafts(said(1, 2, 7, 8, 9, 30)).tolist() == []
    assert drafts(said(1, 2, 7)).tolist() == [8, 9, 10], "the same prompt again"
    assert drafts(said(1, 2, 7, 8, 9, 10, 11, 12, 13, 14, 15, 7)).tolist() == [8, 9, 10], "a longer chat"
    assert drafts(said(5, 7)).tolist() == [8, 9, 10]
    assert drafts(said(5, 7, 7)).tolist() == [], "in the middle of an answer the pack's beginning is not"


def test_what_was_taken_is_counted_over_all_answers(drafts: RecipeDrafts) -> None:
    drafts(said(1, 7))
    drafts(said(1, 7, 8, 9, 30))
    drafts(said(2, 7))
    drafts(said(2, 7, 8, 9, 10, 3))
    assert drafts.finish() == (SourceCount(kind=DraftKind.PACK, drafted=6, accepted=5),)


def read_static(path: Path) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """As llama.cpp's common_ngram_cache_load reads it."""
    data, at, table = path.read_bytes(), 0, {}
    while at < len(data):
        *key, n = struct.unpack_from("=4ii", data, at)
        at += 20
        rows = [struct.unpack_from("=ii", data, at + 8 * i) for i in range(n)]
        assert rows, "llama.cpp asserts this"
        assert all(count > 0 for _, count in rows), "and this"
        assert 100 * CONTEXT * max(count for _, count in rows) < 1 << 31, "and computes this"
        at += 8 * n
        table[tuple(key)] = rows
    assert at == len(data)
    return table


def test_the_static_file_says_what_follows_two_tokens(tmp_path: Path) -> None:
    pack = pack_of(((BEGIN, 1), (2, 3, 4)), ((1, 2, 3), (4, 5)), ((), (3, 4, 6)))
    n = write_static_lookup(pack, tmp_path / "recipes.bin", **MODEL)
    table = read_static(tmp_path / "recipes.bin")
    assert n == len(table) == 3
    assert table[1, 2, -1, -1] == [(3, 9)]
    assert table[2, 3, -1, -1] == [(4, 9)], "what two recipes know is not counted twice"
    assert sorted(table[3, 4, -1, -1]) == [(5, 9), (6, 9)]


def test_counts_that_would_end_or_mislead_llama_cpp_are_not_written(tmp_path: Path) -> None:
    never = pack_of(((BEGIN, 1), (2, 3)), agreed=1)
    never = replace(never, recipes=tuple(replace(recipe, agreed=0) for recipe in never.recipes))
    assert write_static_lookup(never, tmp_path / "recipes.bin", **MODEL) == 0
    often = pack_of(((1, 2), (3,)), ((0, 1, 2), (4,)), agreed=1 << 50)
    often = replace(often, recipes=(often.recipes[0], replace(often.recipes[1], agreed=1 << 49)))
    write_static_lookup(often, tmp_path / "recipes.bin", **MODEL)
    assert read_static(tmp_path / "recipes.bin")[1, 2, -1, -1] == [(3, 100), (4, 50)], "shares stay"


def test_what_begins_an_answer_is_looked_up_at_the_prompts_end(tmp_path: Path) -> None:
    pack = pack_of(((BEGIN,), (2, 3)), ((BEGIN, 4), (5,)))
    assert write_static_lookup(pack, tmp_path / "recipes.bin", **MODEL) == 0
    write_static_lookup(pack, tmp_path / "recipes.bin", prompt_end=(7, 8, 9), **MODEL)
    table = read_static(tmp_path / "recipes.bin")
    assert table == {(8, 9, -1, -1): [(2, 9)], (9, 2, -1, -1): [(3, 9)], (9, 4, -1, -1): [(5, 9)]}


def test_a_file_for_another_model_is_not_written(tmp_path: Path) -> None:
    pack = pack_of(((1, 2), (3, 99)))
    with pytest.raises(InvalidPack, match="of the tokenizer") as refused:
        write_static_lookup(pack, tmp_path / "recipes.bin", tokenizer_sha256="u" * 64, n_vocab=100)
    assert refused.value.code == "tokenizer_mismatch"
    with pytest.raises(InvalidPack, match="the token 99, and the model's last one is 98"):
        write_static_lookup(pack, tmp_path / "recipes.bin", tokenizer_sha256="t" * 64, n_vocab=99)
    assert not (tmp_path / "recipes.bin").exists()


RUNS = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=4), st.lists(st.integers(0, 9), min_size=1, max_size=6)),
    max_size=12,
    unique_by=lambda pair: tuple(pair[0]),
)


@given(RUNS)
def test_the_static_file_holds_each_recipes_pairs(runs: list[tuple[list[int], list[int]]]) -> None:
    pack = pack_of(*((tuple(after), tuple(run)) for after, run in runs))
    expected = {
        (tokens[i - 2], tokens[i - 1], tokens[i])
        for recipe in pack.recipes
        for tokens in [[*recipe.after, *recipe.run]]
        for i in range(2, len(tokens))
        if i >= len(recipe.after)
    }
    found = {(*pair, token) for pair, following in following_pairs(pack).items() for token in following}
    assert found == expected


# with the real library


@pytest.fixture(scope="module")
def base(tiny_bases: Path) -> CausalBase:  # noqa: F811
    if not PYTHON.exists():
        pytest.skip("no llama.cpp here: `make setup-llama` builds llama-cpp-python into .venv-llama")
    return open_causal_base(TINY, base_dir=tiny_bases)


Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(base: CausalBase, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    folder = tmp_path_factory.mktemp("llama")
    model = folder / "tiny.gguf"
    run("tests.gpu_runners.speculation.tiny_gguf", str(base.folder), str(model))
    write_token_texts(token_texts(base), folder / "texts.json")

    def asked(asked_prompts: list[list[int]], pack: PackRef | None = None, **more: Any) -> dict[str, Any]:
        work = {
            "model": str(model),
            "prompts": asked_prompts,
            "most": MOST,
            "end": base.eos_ids[0],
            "pack": "" if pack is None else str(pack.path),
            "pack_sha256": "" if pack is None else pack.key,
            "token_texts": str(folder / "texts.json"),
            "tokenizer_sha256": base.tokenizer_sha256,
            "kinds": ["pack"],
            "is_gated": False,
            "sampling": {},
        }
        (folder / "work.json").write_text(json.dumps(work | more))
        out: dict[str, Any] = json.loads(run("tests.gpu_runners.speculation.llama_answers", str(folder / "work.json")))
        return out

    return asked


def run(module: str, *arguments: str) -> str:
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(PYTHON), "-m", module, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def plain(base: CausalBase, ask: Ask) -> dict[str, Any]:
    return ask(prompts(base, 90))


@pytest.fixture(scope="module")
def pack(base: CausalBase, plain: dict[str, Any]) -> RecipePack:
    observed = [Observed(tokens=tuple(one), agreed=(1,) * len(one), n_samples=1) for one in plain["answers"][:60]]
    texts = token_texts(base)
    sha256 = base.tokenizer_sha256
    return build_pack(
        observed, texts, tokenizer_sha256=sha256, base=base.name, options=PackOptions(), end_ids=base.eos_ids
    )


def test_llama_cpp_answers_the_same_in_fewer_steps(
    base: CausalBase, ask: Ask, plain: dict[str, Any], pack: RecipePack, tmp_path: Path
) -> None:
    asked = prompts(base, 90)[60:]
    for more in ({}, {"kinds": ["pack", "prompt"]}, {"kinds": ["pack", "prompt"], "is_gated": True}):
        drafted = ask(asked, written(pack, tmp_path), **more)
        assert drafted["answers"] == plain["answers"][60:]
        n_accepted = sum(accepted for _, accepted in drafted["by_source"].values())
        n_tokens = sum(map(len, drafted["answers"]))
        if not more.get("is_gated"):  # how much a machine's clock lets through is its own
            assert n_accepted > n_tokens / 2
            assert drafted["steps"] < n_tokens / 2


def test_a_hostile_pack_changes_nothing_in_llama_cpp(
    base: CausalBase, ask: Ask, plain: dict[str, Any], pack: RecipePack, tmp_path: Path
) -> None:
    wrong = replace(pack.recipes[0], run=(9, 10, 11, 12), shape="", after_text="x", run_text="y")
    recipes = tuple(replace(wrong, after=(token,)) for token in range(base.vocab_size))
    drafted = ask(prompts(base, 90)[60:72], written(replace(pack, recipes=recipes), tmp_path))
    assert drafted["answers"] == plain["answers"][60:72]
    (counted,) = drafted["by_source"].values()
    assert counted[0] > 20 * counted[1]


def drafted_by_server(
    table: dict[tuple[int, ...], list[tuple[int, int]]], tokens: Sequence[int], most: int
) -> list[int]:
    """What llama-server drafts from a static file alone: while two tokens have been seen twice and half of their
    followers are one (common_ngram_cache_draft, draft_min_*_lax)."""
    draft: list[int] = []
    while len(draft) < most:
        last = [*tokens, *draft][-2:]
        rows = table.get((*last, -1, -1), [])
        total = sum(count for _, count in rows)
        if total < 2 or 100 * rows[0][1] < 50 * total:
            break
        draft.append(rows[0][0])
    return draft


def test_what_llama_server_drafts_from_the_static_file_is_mostly_right(
    base: CausalBase, plain: dict[str, Any], pack: RecipePack, tmp_path: Path
) -> None:
    model: dict[str, Any] = {"tokenizer_sha256": base.tokenizer_sha256, "n_vocab": base.vocab_size}
    write_static_lookup(pack, tmp_path / "recipes.bin", **model)
    table = read_static(tmp_path / "recipes.bin")
    counts = Counter[str]()
    for answer in plain["answers"][60:]:
        at = 2
        while at < len(answer):
            draft = drafted_by_server(table, answer[:at], 8)
            n = next((i for i, (a, b) in enumerate(zip(draft, answer[at:], strict=False)) if a != b), len(draft))
            n = min(n, len(answer) - at)
            counts.update(steps=1, drafted=len(draft), accepted=n, tokens=n + 1)
            at += n + 1
    assert counts["tokens"] > 1.5 * counts["steps"]
    assert counts["accepted"] > counts["drafted"] / 3
