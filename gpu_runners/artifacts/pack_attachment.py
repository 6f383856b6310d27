"""An artifact's recipes.json on the requests of an engine: which sources draft, as the compiler chose them.

A pack that is damaged, foreign to the base's tokenizer or refused by the engine costs its artifact the drafts, and no
answer. What is written to disk is what was verified with the artifact.
"""

import hashlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.domain.recipes.pack import InvalidPack, RecipePack, read_pack
from gpu_runners.models.protocol import Delta, Drafting, DraftKind, Engine, GenerationRequest, PackRef, Rejected

log = logging.getLogger("kolm.serving")
PACK_FILE = "recipes.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedPack:
    """A verified pack with its bytes. `learns`: the spec allows answers in feedback."""

    pack: RecipePack
    data: bytes
    learns: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def kinds(self) -> tuple[DraftKind, ...]:
        """The sources that the pack names, without its own where it has no recipe."""
        named = tuple(DraftKind(name) for name in self.pack.sources if name in set(DraftKind))
        return tuple(kind for kind in named if kind is not DraftKind.PACK or self.pack.recipes)

    def drafting(self, folder: Path) -> Drafting | None:
        """Writes `folder/recipes.json` where it is not. None: the compiler found that nothing pays."""
        if not self.kinds:
            return None
        ref = None
        if DraftKind.PACK in self.kinds:
            path = folder / PACK_FILE
            if not path.exists():
                path.write_bytes(self.data)
            ref = PackRef(key=self.sha256, path=path)
        return Drafting(kinds=self.kinds, pack=ref, max_draft=self.pack.max_draft, learns=self.learns)


def mounted_pack(members: Mapping[str, bytes], *, tokenizer_sha256: str) -> MountedPack | None:
    """None for an artifact without a pack, or with one that does not fit. Only for members whose hashes were
    checked."""
    data = members.get(PACK_FILE, b"")
    if not data:
        return None
    try:
        pack = read_pack(data)
        if pack.recipes and pack.tokenizer_sha256 != tokenizer_sha256:
            raise InvalidPack("it is of another tokenizer", code="tokenizer_mismatch")
    except InvalidPack as error:
        log.warning("the artifact's recipes.json is left out, it answers without it: %s", error)
        return None
    return MountedPack(pack=pack, data=data, learns=_recipes_spec(members).get("learn_text") is True)


async def drafted_where_taken(engine: Engine, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
    """The engine's answer; without drafts where it refuses the request's pack."""
    is_refused = False
    try:
        async with aclosing(_closable(engine.generate(request))) as deltas:
            async for delta in deltas:
                yield delta
    except Rejected as error:
        if error.code != "bad_pack" or request.drafting is None:
            raise
        log.warning("the engine refuses an artifact's recipe pack, it answers without it: %s", error)
        is_refused = True
    if is_refused:
        async with aclosing(_closable(engine.generate(replace(request, drafting=None)))) as deltas:
            async for delta in deltas:
                yield delta


async def _closable(deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta, None]:
    """An engine's iterator is a generator in all our engines, which its protocol does not promise."""
    try:
        async for delta in deltas:
            yield delta
    finally:
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()


def draft_base_name(members: Mapping[str, bytes]) -> str:
    """The base that the compiler chose to draft with for this artifact; "" for none."""
    try:
        is_chosen = DraftKind.MODEL in read_pack(members.get(PACK_FILE, b"")).sources
    except InvalidPack:
        return ""
    name = _recipes_spec(members).get("draft_base")
    return name if is_chosen and isinstance(name, str) else ""


def _recipes_spec(members: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        spec = json.loads(members.get("spec.json", b"{}"))
    except ValueError:
        return {}
    recipes = spec.get("recipes") if isinstance(spec, dict) else None
    return recipes if isinstance(recipes, dict) else {}
