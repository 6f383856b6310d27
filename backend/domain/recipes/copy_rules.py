"""Copy recipes: what an input says of its answer, as rows of recipes.json.

A plain recipe knows the answer alone. A copy recipe knows where in the input a value of the answer begins, whether it
goes on or ends before what comes next there, and what an answer says next when the input has a certain word.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.canonical import sha256_of

COPY_COLUMNS = ("what", "place", "cue", "run", "run_ids", "support", "agreed")
MAX_COPIES = 8_192
MAX_PLACE_CHARS = 200
MAX_CUE_CHARS = 200
Frame = tuple[tuple[int, ...], tuple[int, ...]]  # the tokens right before the input in a prompt, those right behind it


class CopyKind(StrEnum):
    """BEGINS: the value of `place` begins in the input where `cue` points. GOES_ON, ENDS, OPEN: a copied value that may
    end before `cue` goes on, ends, or nobody knows. FOLLOWS_WORD: at `place` of the answer `run` comes if the input has
    `cue`; of a place's rows the first whose cue is there."""

    BEGINS = "begins"
    GOES_ON = "goes on"
    ENDS = "ends"
    OPEN = "open"
    FOLLOWS_WORD = "says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`place`: `text "city"` or `number "n"`, the value of that key; for FOLLOWS_WORD a keyed shape, or `end of text
    "city"`. `cue`: text that `inputs.InputText` makes of an input; "" always holds. Only FOLLOWS_WORD has a `run`."""

    what: CopyKind
    place: str
    cue: str
    run: tuple[int, ...] = ()
    run_text: str = ""
    support: int
    agreed: int

    @property
    def id(self) -> str:
        """16 hex digits over what it matches and what it says; stable over packs."""
        return sha256_of([self.what, self.place, self.cue, list(self.run)])[:16]

    @property
    def asked_for(self) -> tuple[bool, bool, str, str]:
        """Return what it matches; a pack has at most one for it."""
        return self.what is CopyKind.BEGINS, self.what is CopyKind.FOLLOWS_WORD, self.place, self.cue

    def to_row(self) -> list[Any]:
        return [str(self.what), self.place, self.cue, self.run_text, list(self.run), self.support, self.agreed]


def end_of(place: str) -> str:
    """The place behind a value's last character."""
    return f"end of {place}"
