"""Customers' regular expressions, run in linear time: no text and no pattern can make one run for long.

Python's own `re` backtracks: `(a?){30}b` over thirty letters runs for minutes while it holds the interpreter. Here a
pattern is read (`syntax`), rewritten over an alphabet of its own (`alphabets`) and given to RE2, which
goes over a text once and lets other threads run meanwhile. What a pattern means is what it means to Python; what RE2
cannot do is refused by name. (docs/decisions/0017-linear-time-patterns.md)

Measured: RE2 takes at most some 5 ns for each byte and instruction. The longest program over the longest text that is
matched are 31 ms, in pairs of bytes, and that only where the text is made for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from backend.domain.patterns.characters import Chars, UnsafePattern
from backend.domain.patterns.syntax import Choice, Node, Place, Repeat, Row, Syntax, read_pattern

if TYPE_CHECKING:
    from backend.domain.patterns.alphabets import Alphabet

__all__ = [
    "MAX_MATCHED_CHARS",
    "MAX_PATTERN_CHARS",
    "Pattern",
    "UnsafePattern",
    "compile_pattern",
    "occurs_in",
    "reading_steps",
    "takes_too_long_to_read",
]

MAX_PATTERN_CHARS = 500
MAX_MATCHED_CHARS = 1000  # of a text; what stands behind is not seen
MAX_PROGRAM = 4000  # instructions of RE2; `.{0,1000}` has 2,000
MAX_ROUNDS = 1000  # of a counted repeat, and of such repeats inside one another multiplied: RE2's own limit
_MOST_UNFOLDED = 3 * MAX_PROGRAM  # by our own rough count, before RE2 is asked
_MEMORY = 1 << 19  # of one program and its caches; where that does not do, RE2 keeps no states and is slower
MAX_READING = 5_000_000  # steps of a tenth of a microsecond
_STEPS_A_PATTERN = 30_000  # besides its characters: RE2 reads up to 4,000 instructions
_N_KEPT = 512
_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    alphabet: "Alphabet"
    program: Any
    size: int  # instructions
    sizes: tuple[int, ...]  # of them, how many a text of `_LENGTHS` characters can come to

    def most_instructions(self, n_chars: int) -> int:
        """Return how many instructions a text of `n_chars` characters can make it walk, at most: all that it can come
        to, for each byte. Of `^.{0,1000}$` a text of seven letters comes to the first eight rounds."""
        reached = next((size for n, size in zip(_LENGTHS, self.sizes, strict=True) if n_chars <= n), self.size)
        return (n_chars + 1) * self.alphabet.width * reached

    def occurs_in(self, text: str) -> bool:
        """Return whether the pattern is found in the first MAX_MATCHED_CHARS characters."""
        return self.program.match(self.alphabet.encode(text[:MAX_MATCHED_CHARS])) is not None


def occurs_in(pattern: str, text: str) -> bool:
    """Return whether the pattern is found in the first MAX_MATCHED_CHARS characters. Raises UnsafePattern."""
    return compile_pattern(pattern).occurs_in(text)


def takes_too_long_to_read(patterns: Iterable[str]) -> bool:
    """Return whether to compile all of them would take more than half a second. A letter takes 50 microseconds, a range
    of 10,000 letters whose case is ignored milliseconds; what is malformed takes nothing."""
    left = MAX_READING
    for pattern in set(patterns):
        left -= reading_steps(pattern)
        if left < 0:
            return True
    return False


def reading_steps(pattern: str) -> int:
    """Return what to compile it takes at most, in tenths of a microsecond."""
    try:
        return _STEPS_A_PATTERN + _read(pattern).n_steps
    except UnsafePattern:
        return _STEPS_A_PATTERN


@lru_cache(maxsize=_N_KEPT)
def compile_pattern(pattern: str) -> Pattern:
    """Raises UnsafePattern for what is malformed, too long or too large, or cannot be matched in linear time."""
    # brings numpy, which a web process does without at its start
    from backend.domain.patterns.alphabets import alphabet_of

    syntax = _read(pattern)
    alphabet = alphabet_of(syntax)
    unfolded = _size(syntax.root, alphabet, MAX_MATCHED_CHARS)
    if unfolded > _MOST_UNFOLDED:
        raise _too_large()
    try:
        program = re2.compile(_source(syntax, alphabet), options=_options())
    except re2.error as error:  # what was read is well formed: RE2's memory does not do
        raise _too_large() from error
    if program.programsize > MAX_PROGRAM:
        raise _too_large()
    size = program.programsize
    near = (_size(syntax.root, alphabet, n) for n in _LENGTHS)
    sizes = tuple(size if n >= unfolded else -(-size * n // unfolded) for n in near)
    return Pattern(alphabet=alphabet, program=program, size=size, sizes=sizes)


@lru_cache(maxsize=_N_KEPT)
def _read(pattern: str) -> Syntax:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise UnsafePattern(f"the pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARS} are allowed")
    syntax = read_pattern(pattern)
    _check_rounds(syntax.root)
    if syntax.n_steps > MAX_READING:
        raise UnsafePattern(
            "the pattern has too many sets that go far beyond ASCII, or whose case is ignored over thousands of "
            "characters; take fewer or smaller ranges, or leave (?i) out"
        )
    return syntax


def _too_large() -> UnsafePattern:
    return UnsafePattern(
        f"the pattern unfolds to more than {MAX_PROGRAM:,} instructions; take smaller counts in {{...}}, or * and +"
    )


def _check_rounds(node: Node, outside: int = 1) -> None:
    match node:
        case Row(parts=inner) | Choice(branches=inner):
            for part in inner:
                _check_rounds(part, outside)
        case Repeat(low=low, at=at, body=body):
            if low > MAX_MATCHED_CHARS:
                words = f"the repeat asks for more rounds than the {MAX_MATCHED_CHARS:,} characters that are matched"
                raise UnsafePattern(f"the pattern, at character {at + 1}: {words}; take a smaller count")
            rounds = outside * max(1, _high(node) or low)
            if rounds > MAX_ROUNDS:
                words = f"{rounds:,} rounds, at most {MAX_ROUNDS:,} are allowed; take smaller counts, or * and +"
                raise UnsafePattern(f"the pattern, at character {at + 1}: repeats inside repeats come to {words}")
            _check_rounds(body, rounds)


def _high(repeat: Repeat) -> int | None:
    """None for no end: no text that is matched has room for more than MAX_MATCHED_CHARS rounds that take anything."""
    return None if repeat.high is None or repeat.high > MAX_MATCHED_CHARS else repeat.high


def _size(node: Node, alphabet: "Alphabet", n_chars: int) -> int:
    """About how many instructions it is, before RE2 is asked to unfold it; of a repeat, the rounds that `n_chars`
    characters reach."""
    match node:
        case Chars(source=source):
            return max(1, alphabet.classes[source].count("-"))
        case Row(parts=parts):
            return sum(_size(part, alphabet, n_chars) for part in parts)
        case Choice(branches=branches):
            return sum(_size(branch, alphabet, n_chars) + 1 for branch in branches)
        case Repeat(low=low, body=body):
            high = _high(node)
            n_copies = max(1, low if high is None else high)
            if least := _least(body):
                n_copies = min(n_copies, n_chars // least + 1)
            return (_size(body, alphabet, n_chars) + 1) * n_copies
        case _:
            return 1


def _least(node: Node) -> int:
    """The fewest characters that it takes."""
    match node:
        case Chars():
            return 1
        case Row(parts=parts):
            return sum(map(_least, parts))
        case Choice(branches=branches):
            return min(map(_least, branches), default=0)
        case Repeat(low=low, body=body):
            return low * _least(body)
        case _:
            return 0


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.never_capture = True
    options.log_errors = False
    return options


def _source(syntax: Syntax, alphabet: "Alphabet") -> bytes:
    """Write a pattern in RE2's syntax. The search is written out, so that a match begins between two symbols and not
    within one."""
    return f"(?s:{'.' * alphabet.width})*?{_write(syntax.root, alphabet)}".encode("ascii")


_PLACES = {
    Place.START: r"\A",
    Place.END: r"\z",
    Place.LINE_START: "(?m:^)",
    Place.LINE_END: "(?m:$)",
    Place.LAST_LINE_END: "(?m:$)",  # in the alphabet of such a pattern no other new line is one to RE2
    Place.WORD_EDGE: r"\b",
    Place.NO_WORD_EDGE: r"\B",
}


def _write(node: Node, alphabet: "Alphabet") -> str:
    """Write a part in RE2's syntax, over the alphabet."""
    match node:
        case Chars(source=source):
            return alphabet.classes[source]
        case Place():
            return _PLACES[node]
        case Row(parts=parts):
            return "(?:" + "".join(_write(part, alphabet) for part in parts) + ")"
        case Choice(branches=branches):
            return "(?:" + "|".join(_write(branch, alphabet) for branch in branches) + ")"
        case Repeat(low=low, body=body):
            high = _high(node)
            return f"(?:{_write(body, alphabet)}){{{low},{'' if high is None else high}}}"
