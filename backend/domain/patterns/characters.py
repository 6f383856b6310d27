r"""Reads the single characters of a regular expression of Python's: letters, escapes, `.`, sets.

Each is spelt anew as a Python pattern of its own, with nothing in it to warn of: which characters it takes is asked of
Python itself (`alphabets`), so `\w`, `(?i)` and the rest mean what they mean there.
"""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

DIGITS, OCTAL, HEX = frozenset("0123456789"), frozenset("01234567"), frozenset("0123456789abcdefABCDEF")
_ASCII_ALPHA = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ASCII_EDGES = range(0x81)  # where ASCII's own \w, \s and \d may begin or end
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_N_HEX = {"x": 2, "u": 4, "U": 8}
STEPS_A_SOURCE = 500  # of a tenth of a microsecond, to have Python read one
STEPS_A_WIDE_SET = 15_000  # more for a set beyond the first 256 characters: it is a table of 65,536


class UnsafePattern(ValueError):
    """The message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chars:
    source: str  # a pattern of Python's that takes exactly one character


class CharacterReader:
    """A place in a pattern, and what its single characters were so far."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.sources: dict[str, None] = {}
        self.edges: set[int] = set()  # code points at which something begins or ends to be taken
        self.has_categories = self.ignores_case = False
        self.n_steps = 0  # that it takes to ask Python what all of them take

    def _next(self, n: int = 1) -> str:
        return self.text[self.at : self.at + n]

    def _skip(self, wanted: str) -> bool:
        is_there = self.text.startswith(wanted, self.at)
        self.at += len(wanted) if is_there else 0
        return is_there

    def _while(self, of: Collection[str], most: int) -> str:
        start = self.at
        while self.at - start < most and self._next() and self._next() in of:
            self.at += 1
        return self.text[start : self.at]

    def _fault(self, message: str, at: int | None = None) -> UnsafePattern:
        return UnsafePattern(f"the pattern, at character {(self.at if at is None else at) + 1}: {message}")

    def _three_octals(self) -> int | None:
        digits = self._next(3)
        if len(digits) < 3 or not set(digits) <= OCTAL:
            return None
        self.at += 3
        return self._octal(digits)

    def _octal(self, digits: str) -> int:
        point = int(digits, 8)
        if point > 0o377:
            raise self._fault(f"\\{digits} is more than \\377; write \\u0000 with four hexadecimal digits")
        return point

    def _read_escape(self, at: int) -> int | str:
        r"""The code point behind a backslash, or `\d` and its like; the backslash was read."""
        char = self._next()
        self.at += 1
        if char in _N_HEX:
            digits = self._while(HEX, _N_HEX[char])
            if len(digits) < _N_HEX[char] or int(digits, 16) > 0x10FFFF:
                raise self._fault(f"\\{char} takes {_N_HEX[char]} hexadecimal digits of a character", at)
            return int(digits, 16)
        if char == "N":
            return self._read_named(at)
        if char == "0":
            return int("0" + self._while(OCTAL, 2), 8)
        if char and char in "dDsSwW":
            return f"\\{char}"
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char or char in _ASCII_ALPHA or char in DIGITS:
            raise self._fault(f"\\{char} is not known; write \\\\ for a backslash", at)
        return ord(char)

    def _read_named(self, at: int) -> int:
        end = self.text.find("}", self.at)
        name = self.text[self.at + 1 : end] if self._next() == "{" and end > 0 else ""
        try:
            point = ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            raise self._fault("\\N takes the name of a character: \\N{EM DASH}", at) from None
        self.at = end + 1
        return point

    # sets

    def _set(self, flags: str) -> Chars:
        at = self.at
        self.at += 1
        made = "^" if self._skip("^") else ""
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            made += self._range(at, flags)
        self.at += 1
        return self._chars(f"[{made}]", flags)

    def _range(self, at: int, flags: str) -> str:
        """One item of a set, spelt anew."""
        low = self._of_set(at)
        is_range = self._next() == "-" and self._next(2) != "-]"
        if not is_range:
            return self._take_item(low, flags)
        here = self.at
        self.at += 1
        high = self._of_set(at)
        if isinstance(low, str) or isinstance(high, str) or high < low:
            raise self._fault("the range of the set goes from no character to another; write \\- for the sign", here)
        self.edges |= {low, high + 1}
        self.n_steps += STEPS_A_WIDE_SET if high > 255 else 0
        if "i" in flags:  # Python looks at every one of them
            self.n_steps += 2 * max(0, min(high, 0xFFFF) - low)
        return f"{_escape_of(low)}-{_escape_of(high)}"  # also of one character: Python ignores its case in another way

    def _take_item(self, item: int | str, flags: str) -> str:
        if isinstance(item, str):
            self._category(flags)
            return item
        self.edges |= {item, item + 1}
        return _escape_of(item)

    def _of_set(self, at: int) -> int | str:
        char = self._next()
        if not char:
            raise self._fault("the [ has no ] after it; write \\[ for the character", at)
        here = self.at
        self.at += 1
        if char != "\\":
            return ord(char)
        if self._next() and self._next() in OCTAL:
            return self._octal(self._while(OCTAL, 3))
        return 8 if self._skip("b") else self._read_escape(here)

    # what was read

    def _literal(self, point: int, flags: str) -> Chars:
        self.edges |= {point, point + 1}
        return self._chars(_escape_of(point), flags)

    def _category(self, flags: str) -> None:
        if "a" in flags:
            self.edges |= set(_ASCII_EDGES)
        else:
            self.has_categories = True

    def _chars(self, source: str, flags: str) -> Chars:
        asked = "".join(flag for flag in "ais" if flag in flags)
        chars = Chars(source=f"(?{asked}){source}" if asked else source)
        self.n_steps += STEPS_A_SOURCE
        self.sources[chars.source] = None
        self.ignores_case |= "i" in flags
        return chars


def _escape_of(point: int) -> str:
    return f"\\U{point:08x}"
