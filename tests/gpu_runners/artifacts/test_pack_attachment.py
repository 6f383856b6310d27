"""Which packs are mounted, which cost only a warning, and that an answer never depends on one."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_runners.artifacts.pack_attachment import MountedPack, draft_base_name, drafted_where_taken, mounted_pack
from gpu_runners.models.protocol import Delta, Drafting, DraftKind, FinishReason, GenerationRequest, Rejected
from tests.gpu_runners.serving.small_adapters import ScriptedEngine, paper_base
from tests.gpu_runners.small_packs import small_pack, spec_of


class Words:
    """A tokenizer of one token a word."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [len(word) for word in text.split()]}


def base() -> Any:
    made = paper_base()
    object.__setattr__(made, "tokenizer", Words())
    return made


def mounted(data: bytes, **members: bytes) -> MountedPack | None:
    return mounted_pack({"recipes.json": data} | members, tokenizer_sha256=base().tokenizer_sha256)


def test_a_pack_drafts_with_the_sources_that_the_compiler_chose(tmp_path: Path) -> None:
    data = small_pack(base())
    pack = mounted(data)
    assert pack is not None
    drafting = pack.drafting(tmp_path)
    assert drafting is not None
    assert drafting.kinds == (DraftKind.PACK, DraftKind.SCHEMA, DraftKind.PROMPT)
    assert drafting.pack is not None
    assert (drafting.pack.key, drafting.pack.path.read_bytes()) == (pack.sha256, data)
    assert drafting.is_gated
    assert not drafting.learns


def test_a_pack_without_recipes_leaves_the_other_sources(tmp_path: Path) -> None:
    pack = mounted(small_pack(base(), recipes=()))
    assert pack is not None
    drafting = pack.drafting(tmp_path)
    assert drafting is not None
    assert (drafting.kinds, drafting.pack) == ((DraftKind.SCHEMA, DraftKind.PROMPT), None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [b'{"entries":[]}', small_pack(base(), sources=()), small_pack(base(), recipes=(), sources=["pack"])],
)
def test_nothing_is_drafted_where_the_compiler_chose_nothing(data: bytes, tmp_path: Path) -> None:
    pack = mounted(data)
    assert pack is not None
    assert pack.drafting(tmp_path) is None


@pytest.mark.parametrize(
    "data",
    [
        small_pack(base(), tokenizer_sha256="f" * 64),
        small_pack(base())[:-1],
        small_pack(base()).replace(b"size", b"sice"),
        b" " * (1 << 21),
        b"\x00",
    ],
)
def test_a_foreign_damaged_or_oversized_pack_is_left_out_with_a_warning(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert mounted(data) is None
    assert "recipes.json is left out" in caplog.text


def test_text_may_be_learnt_only_where_the_spec_says_so(tmp_path: Path) -> None:
    for spec, learns in [
        (spec_of(learn_text=True), True),
        (spec_of(learn_text="yes"), False),
        (spec_of(), False),
        (b"{", False),
        (b"[]", False),
    ]:
        pack = mounted(small_pack(base()), **{"spec.json": spec})
        assert pack is not None
        assert pack.learns is learns


def test_a_draft_base_is_the_specs_where_the_compiler_chose_a_model() -> None:
    spec = spec_of(draft_base="kolm-tiny-1")
    chosen = {"recipes.json": small_pack(base(), sources=["model"]), "spec.json": spec}
    assert draft_base_name(chosen) == "kolm-tiny-1"
    assert draft_base_name({"recipes.json": small_pack(base()), "spec.json": spec}) == ""
    assert draft_base_name({"recipes.json": b"{", "spec.json": spec}) == ""


class Picky(ScriptedEngine):
    """Refuses requests with drafts, with `code`."""

    code = "bad_pack"

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if request.drafting is not None:
            raise Rejected("no such pack", code=self.code)
        yield Delta(text="b", finish_reason=FinishReason.STOP)

    @property
    def about(self) -> Mapping[str, Any]:
        return {}


def said(engine: Picky) -> list[str]:
    request = GenerationRequest(id="r", prompt=(1,), max_new_tokens=4, drafting=Drafting(kinds=(DraftKind.PROMPT,)))

    async def scene() -> list[str]:
        return [delta.text async for delta in drafted_where_taken(engine, request)]

    return asyncio.run(scene())


def test_a_pack_that_the_engine_refuses_costs_the_drafts_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    engine = Picky()
    assert said(engine) == ["b"]
    assert [request.drafting is None for request in engine.requests] == [False, True]
    assert "answers without it" in caplog.text


def test_every_other_refusal_is_the_callers() -> None:
    engine = Picky()
    engine.code = "context_too_long"
    with pytest.raises(Rejected):
        said(engine)
    assert len(engine.requests) == 1
