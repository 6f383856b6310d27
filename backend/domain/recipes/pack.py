"""recipes.json: what a pack is, how it is written and how it is read. A pack is hostile until `read_pack` took it.

Whole numbers and texts alone; canonical JSON, so that equal packs have equal bytes. A recipe is a row of COLUMNS, which
the file itself names: what comes before (the text of literal tokens, or a shape) and what follows, as text and as ids.
A pack with copy recipes (`copy_rules`) is of FORMAT_2 and has three members more; one without is written as before.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from backend.domain.canonical import canonical_json, sha256_of
from backend.domain.errors import InvalidInput, OurError
from backend.domain.recipes.copy_rules import (
    COPY_COLUMNS,
    MAX_COPIES,
    MAX_CUE_CHARS,
    MAX_PLACE_CHARS,
    Copy,
    CopyKind,
    Frame,
)

FORMAT = "kolm-recipes/1"
FORMAT_2 = "kolm-recipes/2"
BEGIN = -1  # stands before an answer's first token in a recipe's `after`
MAX_PACK_BYTES = 1 << 20
MAX_DRAFT = 64
MAX_AFTER = 16
MAX_SHAPE_CHARS = 200
MAX_TEXT_CHARS = 8192
MAX_TOKEN = (1 << 24) - 1
MAX_COUNT = (1 << 53) - 1
MAX_NAME_CHARS = 200
MAX_STATS = 64
MAX_FRAME = 16
COLUMNS = ("after", "run", "after_ids", "run_ids", "support", "agreed")
SOURCES = ("pack", "schema", "prompt", "model")


class InvalidPack(OurError):
    """The refusal of a pack: none, altered, oversized, or of another tokenizer (`code`: invalid_pack, pack_too_large,
    tokenizer_mismatch)."""

    code = "invalid_pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A run that comes after the token ids `after` (of the answer alone; BEGIN: its beginning), or after any text of
    shape `shape` (then `after` is empty), `run` comes. `support`: how often the place was seen; `agreed`: how often the
    whole run followed. `run_text` and `after_text` are the ids' text: whole characters, so that a pack can be
    re-tokenised."""

    after: tuple[int, ...]
    shape: str
    run: tuple[int, ...]
    after_text: str
    run_text: str
    support: int
    agreed: int

    @property
    def id(self) -> str:
        """16 hex digits over what it matches and what it says; stable over packs."""
        return sha256_of([list(self.after), self.shape, list(self.run)])[:16]

    @property
    def place(self) -> tuple[tuple[int, ...], str]:
        """Return what it matches; a pack has at most one recipe for a place."""
        return self.after, self.shape

    def to_row(self) -> list[Any]:
        before = self.after_text if self.after else self.shape
        return [before, self.run_text, list(self.after), list(self.run), self.support, self.agreed]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipePack:
    """`recipes` in the order of the file: commonest first. `sources` is what the compiler chose to draft with for this
    task ("pack", "schema", "prompt", "model"; () nothing), `stats` whole numbers about how it was made. `copies` in the
    order in which they are tried; `frame`: the tokens right before the input in a prompt, and those right behind it."""

    tokenizer_sha256: str
    base: str
    recipes: tuple[Recipe, ...]
    shape_version: str
    max_draft: int = 16
    sources: tuple[str, ...] = ()
    stats: dict[str, int] = field(default_factory=dict)
    copies: tuple[Copy, ...] = ()
    frame: Frame = ((), ())

    @property
    def is_empty(self) -> bool:
        return not self.recipes and not self.copies

    def id_of(self, place: int) -> str:
        """Return the id of the recipe, or behind all of them the copy recipe, that a cursor proposed."""
        n = len(self.recipes)
        return self.recipes[place].id if place < n else self.copies[place - n].id

    @property
    def sha256(self) -> str:
        """The content hash that the file carries: of everything else in it."""
        return sha256_of(self._content())

    def to_json(self) -> dict[str, Any]:
        return self._content() | {"sha256": self.sha256}

    def to_bytes(self) -> bytes:
        return canonical_json(self.to_json())

    @classmethod
    def empty(cls, *, tokenizer_sha256: str = "", base: str = "", sources: Sequence[str] = ()) -> Self:
        return cls(tokenizer_sha256=tokenizer_sha256, base=base, recipes=(), shape_version="", sources=tuple(sources))

    def _content(self) -> dict[str, Any]:
        content = {
            "format": FORMAT_2 if self.copies else FORMAT,
            "tokenizer_sha256": self.tokenizer_sha256,
            "base": self.base,
            "shape_version": self.shape_version,
            "max_draft": self.max_draft,
            "sources": list(self.sources),
            "stats": dict(self.stats),
            "columns": list(COLUMNS),
            "recipes": [recipe.to_row() for recipe in self.recipes],
        }
        if self.copies:
            content["frame"] = [list(tokens) for tokens in self.frame]
            content["copy_columns"] = list(COPY_COLUMNS)
            content["copies"] = [one.to_row() for one in self.copies]
        return content


def read_pack(data: bytes, *, tokenizer_sha256: str | None = None) -> RecipePack:
    """The pack in a recipes.json. `{"entries": []}`, what artifacts carried before there were packs, is an empty one.
    A pack without recipes fits every tokenizer. Raises InvalidPack."""
    pack = _parse(data)
    if not pack.is_empty and tokenizer_sha256 is not None and pack.tokenizer_sha256 != tokenizer_sha256:
        message = (
            f"The pack is of the tokenizer {pack.tokenizer_sha256[:12]}..., the base has {tokenizer_sha256[:12]}...: "
            "compile for this base, or re-tokenise the pack."
        )
        raise InvalidPack(message, code="tokenizer_mismatch")
    return pack


def _parse(data: bytes) -> RecipePack:
    if len(data) > MAX_PACK_BYTES:
        message = f"A pack has at most {MAX_PACK_BYTES:,} bytes, this one has {len(data):,}."
        raise InvalidPack(message, code="pack_too_large")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidPack(f"The pack is not JSON: {error}.") from error
    if value == {"entries": []}:
        return RecipePack.empty()
    try:
        pack = _pack(value)
        written = pack.to_bytes()
    except (_Wrong, InvalidInput) as error:
        raise InvalidPack(f"This is no recipe pack: {error}.") from error
    if written != data:
        raise InvalidPack("The pack was altered: its content does not match its own sha256, or is not canonical JSON.")
    return pack


class _Wrong(ValueError):
    pass


def _pack(value: Any) -> RecipePack:
    is_known = isinstance(value, dict) and value.get("format") in (FORMAT, FORMAT_2)
    _require(is_known, f"its format is not {FORMAT} or {FORMAT_2}")
    stats = value.get("stats")
    _require(isinstance(stats, dict) and len(stats) <= MAX_STATS, "stats is not a small object")
    sources = _list(value.get("sources"), "sources", len(SOURCES))
    _require(all(source in SOURCES for source in sources), f"its sources are not of {', '.join(SOURCES)}")
    _require(len(set(sources)) == len(sources), "a source stands there twice")
    rows = _list(value.get("recipes"), "recipes", MAX_PACK_BYTES)
    recipes = tuple(_recipe(row) for row in rows)
    _require(len({recipe.place for recipe in recipes}) == len(recipes), "two recipes are for one place")
    copies, frame = _copies(value) if value["format"] == FORMAT_2 else ((), ((), ()))
    return RecipePack(
        tokenizer_sha256=_text(value.get("tokenizer_sha256"), "tokenizer_sha256", 64),
        base=_text(value.get("base"), "base", MAX_NAME_CHARS),
        recipes=recipes,
        shape_version=_text(value.get("shape_version"), "shape_version", MAX_NAME_CHARS),
        max_draft=_count(value.get("max_draft"), "max_draft", 1, MAX_DRAFT),
        sources=tuple(sources),
        stats={_text(name, "stats", MAX_NAME_CHARS): _count(n, "stats", -MAX_COUNT) for name, n in stats.items()},
        copies=copies,
        frame=frame,
    )


def _copies(value: dict[str, Any]) -> tuple[tuple[Copy, ...], Frame]:
    copies = tuple(_copy(row) for row in _list(value.get("copies"), "copies", MAX_COPIES, 1))
    _require(len({one.asked_for for one in copies}) == len(copies), "two copy recipes are for one cue")
    sides = _list(value.get("frame"), "frame", 2, 2)
    before, after = (
        tuple(_count(token, "frame", 0, MAX_TOKEN) for token in _list(side, "frame", MAX_FRAME)) for side in sides
    )
    return copies, (before, after)


def _copy(row: Any) -> Copy:
    what, place, cue, run_text, run, support, agreed = _list(row, "a copy", len(COPY_COLUMNS), len(COPY_COLUMNS))
    _require(isinstance(what, str) and what in list(CopyKind), "a copy recipe is of no known kind")
    says = what == CopyKind.FOLLOWS_WORD
    one = Copy(
        what=CopyKind(what),
        place=_text(place, "a place", MAX_PLACE_CHARS, 1),
        cue=_text(cue, "a cue", MAX_CUE_CHARS, 0 if says else 1),
        run=tuple(_count(t, "run_ids", 0, MAX_TOKEN) for t in _list(run, "run_ids", MAX_DRAFT * says, says)),
        run_text=_text(run_text, "run", MAX_TEXT_CHARS * says),
        support=_count(support, "support", 1),
        agreed=_count(agreed, "agreed", 0),
    )
    _require(one.agreed <= one.support, "a copy recipe agreed more often than its place was seen")
    return one


def _recipe(row: Any) -> Recipe:
    before, run_text, after, run, support, agreed = _list(row, "a recipe", len(COLUMNS), len(COLUMNS))
    after_ids = _list(after, "after_ids", MAX_AFTER)
    begins = after_ids[:1] == [BEGIN]
    shape = "" if after_ids else _text(before, "a shape", MAX_SHAPE_CHARS, 1)
    recipe = Recipe(
        after=(*after_ids[:begins], *(_count(token, "after_ids", 0, MAX_TOKEN) for token in after_ids[begins:])),
        shape=shape,
        run=tuple(_count(token, "run_ids", 0, MAX_TOKEN) for token in _list(run, "run_ids", MAX_DRAFT, 1)),
        after_text=_text(before, "after", MAX_TEXT_CHARS) if after_ids else "",
        run_text=_text(run_text, "run", MAX_TEXT_CHARS),
        support=_count(support, "support", 1),
        agreed=_count(agreed, "agreed", 0),
    )
    _require(recipe.agreed <= recipe.support, "a run agreed more often than its place was seen")
    return recipe


def _list(value: Any, name: str, most: int, least: int = 0) -> list[Any]:
    _require(isinstance(value, list) and least <= len(value) <= most, f"{name} is not a list of {least} to {most}")
    items: list[Any] = value
    return items


def _text(value: Any, name: str, most: int, least: int = 0) -> str:
    is_text = isinstance(value, str) and least <= len(value) <= most
    _require(is_text, f"{name} is not a text of {least} to {most} characters")
    return str(value)


def _count(value: Any, name: str, least: int, most: int = MAX_COUNT) -> int:
    _require(type(value) is int and least <= value <= most, f"{name} is not a whole number of {least} to {most}")
    return int(value)


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise _Wrong(why)
