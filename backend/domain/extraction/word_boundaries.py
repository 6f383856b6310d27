"""The places in a text where a word may begin or end. `kolm export` copies this file beside a span student: it imports
nothing but the standard library.
"""

import unicodedata
from collections.abc import Sequence


def is_boundary(text: str, at: int) -> bool:
    """Say whether a word may begin or end here: the characters on both sides are not of one kind."""
    if not 0 < at < len(text):
        return True
    before, after = _kind(text[at - 1]), _kind(text[at])
    return before != after or before in ("", "ideograph")


def continues_words(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    """Say of each token, whose places in the text are `offsets`, whether it stands in the middle of a word."""
    return tuple(
        number > 0 and offsets[number - 1][1] >= start and not is_boundary(text, start)
        for number, (start, _) in enumerate(offsets)
    )


def _kind(char: str) -> str:
    if char.isdecimal():
        return "digit"
    if not char.isalpha() and not unicodedata.combining(char):
        return ""
    is_ideograph = "\u2e80" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3" or char >= "\U00020000"
    return "ideograph" if is_ideograph else "letter"
