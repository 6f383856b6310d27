"""The options of a pack: how large, of how much agreement, from which contexts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from backend.domain.recipes.pack import MAX_AFTER, MAX_DRAFT


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """`min_agreement_ppm`: a run that follows its place less often is not kept. `min_support`: nor is one whose place
    was seen less often, or less often than this task needs (`calibrating`). `contexts`: the lengths m of literal
    prefixes, longest first. `max_bytes` of recipes.json. `copies`: whether what the inputs say is learnt too."""

    max_bytes: int = 65_536
    max_draft: int = 16
    min_support: int = 3
    min_agreement_ppm: int = 900_000
    contexts: tuple[int, ...] = (8, 4, 3, 2, 1)
    shapes: bool = True
    copies: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"contexts": list(self.contexts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Options that are not there have their defaults: an older release knew fewer. Raises ValueError for what are
        no options."""
        names = {one.name for one in fields(cls)}
        if set(value) - names:
            raise ValueError(f"PackOptions: not {sorted(set(value) - names)}")
        options = cls(**{**value, "contexts": tuple(value.get("contexts", cls().contexts))})
        numbers = (options.max_bytes, options.max_draft, options.min_support, options.min_agreement_ppm)
        if any(type(n) is not int or n < 1 for n in (*numbers, *options.contexts)):
            raise ValueError("PackOptions: all numbers are whole and above 0")
        if options.max_draft > MAX_DRAFT or max(options.contexts, default=1) > MAX_AFTER:
            raise ValueError(f"PackOptions: max_draft is at most {MAX_DRAFT}, a context at most {MAX_AFTER}")
        return options
