"""The hook without vLLM: what it proposes for the rows of a batch. tests/vllm asks the real engine."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.pack import BEGIN, Recipe, RecipePack
from backend.domain.recipes.shapes import SHAPE_VERSION
from gpu_runners.models.protocol import (
    Constraint,
    ConstraintKind,
    Drafting,
    DraftKind,
    GenerationRequest,
    PackRef,
    SourceCount,
)
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.vllm.repairs import on_some_rows, spare, spread, spreads, takes_nothing, winds_back
from gpu_runners.speculation.vllm.sequences import VllmSequences
from gpu_runners.speculation.vllm.wire import (
    XARG,
    HookOptions,
    counts_from_json,
    counts_to_json,
    drafting_args,
    read_token_texts,
    request_of,
    write_token_texts,
)

TEXTS = [bytes([i]) for i in range(100)]
EOS = 0


def pack_of(*runs: tuple[tuple[int, ...], tuple[int, ...]]) -> RecipePack:
    recipes = tuple(
        Recipe(after=after, shape="", run=run, after_text="a", run_text="b", support=9, agreed=9) for after, run in runs
    )
    return RecipePack(tokenizer_sha256="t" * 64, base="small", recipes=recipes, shape_version=SHAPE_VERSION)


def written(pack: RecipePack, folder: Path) -> PackRef:
    data = pack.to_bytes()
    key = hashlib.sha256(data).hexdigest()
    (folder / key).write_bytes(data)
    return PackRef(key=key, path=folder / key)


class Batch:
    """What vLLM's model runner shows of its requests; `step` is one forward pass that sampled `new` for each."""

    def __init__(self, sequences: VllmSequences) -> None:
        self._sequences = sequences
        self.requests: dict[str, Any] = {}
        self.input_batch = SimpleNamespace(req_ids=[])
        self._held: dict[str, list[int]] = {}

    def enter(
        self, name: str, prompt: Sequence[int], drafting: Drafting | None, *, lora: str = "", **more: Any
    ) -> None:
        request = GenerationRequest(id=name, prompt=tuple(prompt), max_new_tokens=40, drafting=drafting, **more)
        self.requests[f"{name}-x"] = SimpleNamespace(
            prompt_token_ids=list(prompt),
            sampling_params=SimpleNamespace(
                max_tokens=40,
                extra_args=drafting_args(request),
                temperature=request.temperature,
                seed=request.seed,
            ),
            lora_request=SimpleNamespace(lora_name=lora) if lora else None,
        )
        self._held[f"{name}-x"] = list(prompt)

    def leave(self, name: str) -> None:
        del self.requests[f"{name}-x"]

    def step(self, fed: dict[str, list[int]] | None = None, **new: list[int]) -> dict[str, list[int]]:
        """The next drafts by name."""
        ids = [f"{name}-x" for name in new]
        self.input_batch.req_ids = ids
        token_ids = np.zeros((len(ids), 64), dtype=np.int32)
        for place, (request_id, tokens) in enumerate(zip(ids, new.values(), strict=True)):
            self._held[request_id] += tokens
            held = self._held[request_id]
            token_ids[place, : len(held)] = held
        n_tokens = np.array([len(self._held[one]) for one in ids])
        fed_by_id = {f"{name}-x": draft for name, draft in (fed or {}).items()}
        drafts = self._sequences.propose(self, fed_by_id, list(new.values()), n_tokens, token_ids)
        return dict(zip(new, drafts, strict=True))


def options(folder: Path, **more: Any) -> HookOptions:
    path = folder / "texts.json"
    write_token_texts(TEXTS, path)
    fields = {"token_texts": path, "tokenizer_sha256": "t" * 64, "eos_ids": (EOS,), "takes_requests": True, "packs": {}}
    return HookOptions(**{**fields, **more})


def rows_with(draft_stats: HookOptions) -> VllmSequences:
    shelf = PackShelf(lambda: read_token_texts(draft_stats.token_texts), tokenizer_sha256=draft_stats.tokenizer_sha256)
    drafts = BatchDrafter(shelf, end_ids=draft_stats.eos_ids, n_vocab=len(TEXTS))
    return VllmSequences(drafts, draft_stats, None, context=64)


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(rows_with(options(tmp_path)))


def always(ref: PackRef | None, *kinds: DraftKind) -> Drafting:
    return Drafting(kinds=kinds or (DraftKind.PACK,), pack=ref, is_gated=False)


def test_a_row_is_drafted_for_from_its_own_pack_alone(batch: Batch, tmp_path: Path) -> None:
    mine = written(pack_of(((BEGIN, 7), (8, 9, 10))), tmp_path)
    theirs = written(pack_of(((7,), (50, 51))), tmp_path)
    batch.enter("a", [1, 2], always(mine), tenant="a")
    batch.enter("b", [1, 2], always(theirs), tenant="b")
    batch.enter("c", [1, 2], None)
    assert batch.step(a=[7], b=[7], c=[7]) == {"a": [8, 9, 10], "b": [50, 51], "c": []}


def test_a_row_that_reads_its_prompt_gets_nothing_and_is_found_again(batch: Batch, tmp_path: Path) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9)), ((9,), (3,))), tmp_path)
    batch.enter("a", [1, 2, 9], always(ref))
    assert batch.step(a=[]) == {"a": []}
    assert batch.step(a=[7])["a"][:2] == [8, 9]
    assert batch.step(fed={"a": [8, 9]}, a=[8, 9, 20]) == {"a": []}


def test_what_was_fed_and_kept_is_counted_by_source(batch: Batch, tmp_path: Path) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9, 10))), tmp_path)
    batch.enter("a", [1, 2], always(ref))
    batch.step(a=[7])
    batch.step(fed={"a": [8, 9]}, a=[8, 30])
    draft_stats = batch._sequences.draft_stats("a")
    assert counts_from_json(draft_stats["counts"]) == (SourceCount(kind=DraftKind.PACK, drafted=2, accepted=1),)
    assert draft_stats["steps"] == 2
    batch.leave("a")
    batch.enter("b", [1], None)
    batch.step(b=[7])
    assert batch._sequences.draft_stats("a")["counts"] == draft_stats["counts"], (
        "an ended request's counts wait to be asked for"
    )
    assert batch._sequences.draft_stats("a")["counts"] == [], "once"


def test_the_prompt_is_a_source_too_and_nothing_is_drafted_beyond_the_context(batch: Batch) -> None:
    prompt = [*range(10, 30), *range(10, 29)]
    batch.enter("a", prompt, always(None, DraftKind.PROMPT))
    (draft,) = batch.step(a=[10, 11, 12]).values()
    assert draft[:3] == [13, 14, 15]
    assert len(draft) <= 16
    batch.step(a=list(range(13, 29)))
    (draft,) = batch.step(a=[10, 11]).values()
    assert len(prompt) + 21 + len(draft) < 64


def test_a_pack_that_does_not_fit_proposes_nothing(batch: Batch, tmp_path: Path) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9))), tmp_path)
    ref.path.write_bytes(b"{}")
    batch.enter("a", [1], always(ref))
    assert batch.step(a=[7]) == {"a": []}
    assert batch.step(a=[8]) == {"a": []}


def test_a_request_that_samples_by_its_own_seed_is_not_drafted_for(tmp_path: Path) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9))), tmp_path)
    by_name = Batch(rows_with(options(tmp_path, takes_requests=False, packs={"": ref})))
    draft_stats = Batch(rows_with(options(tmp_path)))
    for seen in (by_name, draft_stats):
        seen.enter("seeded", [1], always(ref), seed=4, temperature=0.7)
        seen.enter("greedy", [1], always(ref), seed=4)
        seen.enter("sampled", [1], always(ref), temperature=0.7)
        seen.step(seeded=[7], greedy=[7], sampled=[7])
        seen.step(seeded=[8], greedy=[8], sampled=[8])
        sequences = seen._sequences._sequences
        assert [sequences[f"{name}-x"] is None for name in ("seeded", "greedy", "sampled")] == [True, False, False]


class Raising:
    """A source that breaks where it is told to."""

    kind, key = DraftKind.PACK, 0

    def __init__(self, where: str, error: BaseException) -> None:
        self._where, self._error = where, error

    def advance(self, token: int) -> None:
        if self._where == "advance":
            raise self._error

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        if self._where == "propose":
            raise self._error
        return [2.5, None] if self._where == "ids" else [3]


class Panic(BaseException):
    """As PyO3's, which is no Exception."""


@pytest.mark.parametrize("where", ["propose", "advance", "ids"])
@pytest.mark.parametrize("error", [ValueError("a tenant's text"), Panic()], ids=["error", "panic"])
def test_what_a_source_raises_ends_the_drafts_of_its_request_alone(
    batch: Batch, tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, error: BaseException
) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9)), ((20,), (21,))), tmp_path)
    for name in ("a", "b"):
        batch.enter(name, [1], always(ref))
    batch.step(a=[], b=[])
    batch.step(a=[7], b=[7])
    batch._sequences._sequences["a-x"].drafter._drafter._sources = (Raising(where, error),)
    batch.step(fed={"a": [8, 9], "b": [8, 9]}, a=[8, 9, 5], b=[8, 9, 5])
    drafts = batch.step(a=[20], b=[20])
    assert drafts == {"a": [], "b": [21]}
    assert batch._sequences.errors.n_errors == 1
    assert len([one for one in caplog.records if "error 1 in drafts" in one.message]) == 1
    assert "tenant's" not in caplog.text
    assert batch._sequences.draft_stats("a")["steps"] == 3
    assert batch._sequences.draft_stats("b")["errors"] == 1


def test_an_error_of_no_request_ends_all_drafts_of_the_step_and_eight_in_a_row_all_drafting(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9))), tmp_path)
    weigh = BatchDrafter._weigh
    monkeypatch.setattr(BatchDrafter, "_weigh", lambda *_: 1 / 0)
    for n in range(7):
        batch.enter(f"r{n}", [1], always(ref))
        assert batch.step(**{f"r{n}": [7]}) == {f"r{n}": []}
        batch.leave(f"r{n}")
    monkeypatch.setattr(BatchDrafter, "_weigh", weigh)
    batch.enter("good", [1], always(ref))
    assert batch.step(good=[7]) == {"good": [8, 9]}
    monkeypatch.setattr(BatchDrafter, "_weigh", lambda *_: 1 / 0)
    for n in range(8):
        batch.enter(f"s{n}", [1], always(ref))
        batch.step(**{f"s{n}": [7]})
    assert batch._sequences.errors.is_off
    monkeypatch.setattr(BatchDrafter, "_weigh", weigh)
    batch.enter("late", [1], always(ref))
    assert batch.step(late=[7]) == {"late": []}
    assert batch._sequences.draft_stats("late")["counts"] == []
    assert "drafting is off" in caplog.text


def test_a_request_that_vllm_shows_otherwise_than_known_is_left_alone(batch: Batch, tmp_path: Path) -> None:
    ref = written(pack_of(((BEGIN, 7), (8, 9))), tmp_path)
    batch.enter("a", [1], always(ref))
    batch.requests["a-x"].prompt_token_ids = None  # it came as embeddings
    batch.enter("b", [1], always(ref))
    assert batch.step(a=[7], b=[7]) == {"a": [], "b": [8, 9]}


def test_where_requests_may_not_say_it_the_adapters_name_does(tmp_path: Path) -> None:
    """A server that strangers may send `extra_args` to names no file because they say so."""
    ref = written(pack_of(((BEGIN, 7), (8, 9))), tmp_path)
    batch = Batch(rows_with(options(tmp_path, takes_requests=False, packs={"lora-a": ref})))
    batch.enter("a", [1], None, lora="lora-a")
    batch.enter("b", [1], always(ref), lora="lora-b")
    drafts = batch.step(a=[7], b=[7])
    assert drafts["b"] == []
    batch.step(a=[8], b=[8])
    assert batch._sequences._sequences["a-x"].request.drafting.pack == ref
    assert batch._sequences._sequences["b-x"].request.drafting.pack is None


def test_a_request_goes_to_the_engines_process_and_back() -> None:
    request = GenerationRequest(
        id="r1",
        prompt=(1, 2),
        max_new_tokens=5,
        tenant="a",
        constraint=Constraint(kind=ConstraintKind.CHOICES, value='["a"]'),
        drafting=Drafting(
            kinds=(DraftKind.SCHEMA, DraftKind.MODEL, DraftKind.PACK),
            pack=PackRef(key="k", path=Path("/packs/k")),
            max_draft=9,
            is_gated=False,
            learns=True,
        ),
    )
    sent = drafting_args(request)
    assert sent is not None
    got = request_of(sent, request.prompt, request.max_new_tokens)
    assert got is not None
    assert (got.id, got.prompt, got.max_new_tokens, got.tenant) == ("r1", (1, 2), 5, "a")
    assert got.constraint == request.constraint
    assert got.drafting is not None
    assert got.drafting.kinds == (DraftKind.SCHEMA, DraftKind.PACK)
    assert (got.drafting.pack, got.drafting.max_draft) == (request.drafting.pack, 9)
    assert (got.drafting.is_gated, got.drafting.learns) == (False, True)
    assert request_of({"other": 1}, (1,), 5) is None
    assert drafting_args(GenerationRequest(id="r", prompt=(1,), max_new_tokens=5)) is None
    only_model = GenerationRequest(
        id="r", prompt=(1,), max_new_tokens=5, drafting=Drafting(kinds=(DraftKind.MODEL,), pack=None)
    )
    assert drafting_args(only_model) is None
    assert "constraint" not in drafting_args(
        GenerationRequest(id="r", prompt=(1,), max_new_tokens=5, drafting=Drafting(kinds=(DraftKind.PACK,)))
    )[XARG]  # fmt: skip


def test_options_and_tokens_survive_their_files(tmp_path: Path) -> None:
    draft_stats = options(tmp_path, packs={"": PackRef(key="k", path=Path("/k"))})
    assert HookOptions.from_json(draft_stats.to_json()) == draft_stats
    texts = [bytes(range(256)), b"", "é漢".encode()]
    write_token_texts(texts, tmp_path / "t.json")
    assert read_token_texts(tmp_path / "t.json") == texts
    counts = (SourceCount(kind=DraftKind.SCHEMA, drafted=3, accepted=2),)
    assert counts_from_json(counts_to_json(counts)) == counts


@given(st.lists(st.tuples(st.floats(0, 2, width=32), st.integers(0, 5)), min_size=1, max_size=6))
def test_a_value_is_spread_over_its_requests_places(sequences: list[tuple[float, int]]) -> None:
    values = torch.tensor([value for value, _ in sequences], dtype=torch.float32)
    ends = torch.tensor([n for _, n in sequences], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    total = int(ends[-1])
    expected = [1.0 if value == 0 else value for value, n in sequences for _ in range(n)]
    assert spread(values, ends, total, 0, 1).tolist() == expected


def test_a_row_that_still_reads_its_prompt_is_drawn_without_its_generator() -> None:
    generators = {0: "a", 2: "c", 3: "d"}
    with spare(generators, np.array([True, True, False, True])):
        assert generators == {2: "c"}
    assert generators == {0: "a", 2: "c", 3: "d"}
    assert not winds_back()


def test_faults_are_found_before_they_are_mended() -> None:
    assert spreads(spread)
    assert not spreads(lambda x, ends, n, *_: torch.zeros(n))

    def top_k(logits: torch.Tensor, k: torch.Tensor, p: None) -> torch.Tensor:
        return logits.gather(1, k[:1].long().expand(len(logits), 1)) if len(logits) else logits.view(0, -1)

    assert not takes_nothing(top_k)
    assert takes_nothing(on_some_rows(top_k))
