r"""The properties of single code points in Python's `re`: which it takes for a word's, a space or a digit, and which it
may take for one another where case is ignored. All of it is asked of the running Python, nothing is a table of ours.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

N_CODE_POINTS = 0x110000
_BLOCK = 256

Ints = NDArray[np.int64]


class Kinds(NamedTuple):
    r"""Runs of code points of one kind: `starts` (n,) in order, and of each run a sum of 1 (\w), 2 (\s) and 4 (\d)."""

    starts: Ints
    kinds: Ints

    def of(self, codes: Ints) -> Ints:
        return self.kinds[np.searchsorted(self.starts, codes, "right") - 1]


class Cases(NamedTuple):
    """Each code point that has a case, with the lowest and the highest that it may be taken for: (n,) each."""

    codes: Ints
    lowest: Ints
    highest: Ints


def text_of(codes: Ints) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def codes_of(text: str) -> Ints:
    """The code points of a text, halves of surrogate pairs among them."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)


@lru_cache(maxsize=1)
def kinds() -> Kinds:
    masks = np.zeros(N_CODE_POINTS, np.int64)
    some = "".join(
        re.findall(r"[\w\s]+", text_of(np.arange(N_CODE_POINTS)))
    )  # one slow pass over all; digits are in \w
    for bit, category in enumerate((r"\w+", r"\s+", r"\d+")):
        masks[codes_of("".join(re.findall(category, some)))] |= 1 << bit
    starts = np.flatnonzero(np.diff(masks, prepend=-1))
    return Kinds(starts, masks[starts])


@lru_cache(maxsize=1)
def cases() -> Cases:
    """Groups are made generously: by the first letter of the whole lower and upper form. A group that is too large
    costs a question more; one too small would be wrong."""
    group: dict[str, list[str]] = {}
    for char in _cased_characters():
        mates = {char: None, char.lower()[0]: None, char.upper()[0]: None}
        joined = list(dict.fromkeys(member for mate in mates for member in group.get(mate, [mate])))
        for member in joined:
            group[member] = joined
    codes = sorted(group)
    return Cases(
        np.array([ord(code) for code in codes]),
        np.array([ord(min(group[code])) for code in codes]),
        np.array([ord(max(group[code])) for code in codes]),
    )


def _cased_characters() -> list[str]:
    blocks = (text_of(np.arange(first, first + _BLOCK)) for first in range(0, N_CODE_POINTS, _BLOCK))
    cased = (block for block in blocks if not block == block.lower() == block.upper())
    return [char for block in cased for char in block if not char == char.lower() == char.upper()]
