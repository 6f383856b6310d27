"""The words of a text as a rule sees it: its words, defined so that Python and JavaScript agree on every string without
a Unicode table of either language, whose versions differ.

Characters are sorted once and for all (`kind_of`):

    letter     ASCII letters and digits, and every character that is not named below
    lowered    A-Z, the capitals of Latin-1, Greek and Cyrillic: a letter that counts as its small one
    dropped    ' and its curved forms: "don't" and "dont" are one word
    single     Chinese and Japanese characters: a word each, because nothing separates their words
    separator  the rest of ASCII, and the punctuation and spaces of Latin-1, General Punctuation and CJK

A word is what stands between separators. Nothing is composed or decomposed: a text in NFD has other words.
"""

import re

DROPPED = (0x27, 0x2BC, 0x2018, 0x2019)
SEPARATORS = (
    (0x00, 0x2F),
    (0x3A, 0x40),
    (0x5B, 0x60),
    (0x7B, 0xA9),
    (0xAB, 0xB4),
    (0xB6, 0xB9),
    (0xBB, 0xBF),
    (0xD7, 0xD7),
    (0xF7, 0xF7),
    (0x1680, 0x1680),
    (0x2000, 0x206F),
    (0x20A0, 0x20CF),
    (0x3000, 0x303F),
    (0xFE50, 0xFE6F),
    (0xFEFF, 0xFEFF),
    (0xFF01, 0xFF0F),
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF65),
)
SINGLES = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
LOWERED = (
    (0x41, 0x5A, 32),
    (0xC0, 0xD6, 32),
    (0xD8, 0xDE, 32),
    (0x391, 0x3A1, 32),
    (0x3A3, 0x3A9, 32),
    (0x400, 0x40F, 80),
    (0x410, 0x42F, 32),
)

Span = tuple[int, int]


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def _becomes(code: int) -> int | str | None:
    """Return what a character becomes, as `str.translate` wants it."""
    if code in DROPPED:
        return None
    if _is_in(code, SEPARATORS):
        return " "
    if _is_in(code, SINGLES):
        return f" {chr(code)} "
    return next((code + shift for first, last, shift in LOWERED if first <= code <= last), code)


class _Translation(dict[int, "int | str | None"]):
    """Filled as characters are met; the astral planes, all letters, are not kept."""

    def __missing__(self, code: int) -> int | str | None:
        if code > 0xFFFF:
            return code
        self[code] = _becomes(code)
        return self[code]


TRANSLATION = _Translation()
ASCII_BYTES = bytes(ord(made) if isinstance(made, str) else made or 32 for made in map(_becomes, range(256)))


def word_bytes(text: str) -> list[bytes]:
    """The words of a text in order, as UTF-8 (half a surrogate pair is a letter like any other).

    >>> word_bytes("Don't RE-ORDER item #12!")
    [b'dont', b're', b'order', b'item', b'12']
    """
    if text.isascii():
        return text.encode().translate(ASCII_BYTES, b"'").split()
    return text.translate(TRANSLATION).encode("utf-8", "surrogatepass").split()


def words_of(text: str) -> list[str]:
    """`word_bytes` as texts."""
    return [word.decode("utf-8", "surrogatepass") for word in word_bytes(text)]


def _class_of(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)


_DROPS = "".join(chr(code) for code in DROPPED)
_WORD_CHAR = f"[^{_DROPS}{_class_of(SEPARATORS)}{_class_of(SINGLES)}]"
_PLACES = re.compile(f"[{_class_of(SINGLES)}]|{_WORD_CHAR}+(?:[{_DROPS}]+{_WORD_CHAR}+)*")


def placed_words(text: str) -> tuple[list[bytes], list[Span]]:
    """The words as `word_bytes` gives them, and where each stands in the text: from its first letter to behind its
    last."""
    return word_bytes(text), [match.span() for match in _PLACES.finditer(text)]
