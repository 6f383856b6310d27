"""Conditions put to work: each becomes a test of a `View`, which is what one text looks like."""

import re
from collections.abc import Callable, Iterable

from backend.domain.rules.text_patterns import COMPILED

Test = Callable[["View"], bool]
_DIGITS = re.compile(rb"(?<= )[0-9]+(?= )")
NO_WORDS = frozenset((b"#", b"^", b"$"))


class View:
    """`padded`: the words with a space on both sides and `^`, `$` at the ends, in which a phrase is a substring.
    `counted`: the same with `#` for words of digits."""

    __slots__ = ("_counted", "_matches", "padded", "text")

    def __init__(self, text: str, padded: bytes) -> None:
        self.text = text
        self.padded = padded
        self._counted: bytes | None = None
        self._matches: dict[str, bool] = {}

    @property
    def counted(self) -> bytes:
        if self._counted is None:
            self._counted = _DIGITS.sub(b"#", self.padded)
        return self._counted

    def has(self, pattern: str) -> bool:
        if pattern not in self._matches:
            self._matches[pattern] = COMPILED[pattern].search(self.text) is not None
        return self._matches[pattern]


def pad(words: Iterable[bytes]) -> bytes:
    return b" ^ " + b" ".join(words) + b" $ "


def needle(phrase: str) -> bytes:
    return b" " + phrase.encode() + b" "


def test_of(condition: str) -> Test:
    if condition.startswith("<"):
        pattern = condition[1:-1]
        return lambda view: view.has(pattern)
    wanted = needle(condition)
    if b" # " in wanted:
        return lambda view: wanted in view.counted
    return lambda view: wanted in view.padded


def all_of(when: Iterable[Test], unless: Iterable[Test]) -> Test:
    tests, vetoes = tuple(when), tuple(unless)

    def holds(view: View) -> bool:
        return all(test(view) for test in tests) and not any(veto(view) for veto in vetoes)

    return holds


def literals(condition: str) -> list[bytes]:
    """The words that any text for which the condition holds has."""
    return [] if condition.startswith("<") else [w for w in condition.encode().split() if w not in NO_WORDS]
