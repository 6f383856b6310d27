"""Reads a regular expression of Python's into a tree, and refuses what no linear engine can do: groups that are
matched again, looks ahead or behind, groups that give nothing back. What is read and what is malformed follows the `re`
of Python 3.11; to read a pattern costs what its own length costs.
"""

import re
from dataclasses import dataclass
from enum import Enum

from backend.domain.patterns.characters import DIGITS, CharacterReader, Chars

MAX_DEPTH = 50  # groups inside groups
_SPACE = frozenset(" \t\n\r\v\f")
# Python reads a backslash and what it stands before as one, in comments too: neither `\)` nor one before a line's end
# ends them
_COMMENT = re.compile(r"\(\?#(?:[^\\)]|\\.)*\)", re.DOTALL)
_LINE_COMMENT = re.compile(r"#(?:[^\\\n]|\\.)*(?:\n|\Z)", re.DOTALL)


class Place(Enum):
    """A position in a pattern that stands without taking a character."""

    START = "the start of the text"
    END = "the end of the text"
    LINE_START = "the start of a line"
    LINE_END = "the end of a line"
    LAST_LINE_END = "the end of the text, or before a new line that ends it"
    WORD_EDGE = "the edge of a word"
    NO_WORD_EDGE = "not the edge of a word"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    branches: tuple["Node", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    body: "Node"
    low: int
    high: int | None
    at: int


Node = Chars | Place | Row | Choice | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """A pattern that was read. `edges`: the code points at which one of its characters begins or ends to be taken, as
    far as no case and none of Unicode's categories come in. `word`: what a word's character is at its edges."""

    root: Node
    sources: tuple[str, ...]
    edges: tuple[int, ...]
    has_categories: bool
    ignores_case: bool
    word: str | None
    has_lines: bool
    n_steps: int  # of a tenth of a microsecond, at most, to find out what its characters take


def read_pattern(pattern: str) -> Syntax:
    """Raises UnsafePattern."""
    return _Reader(pattern).read()


class _Reader(CharacterReader):
    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.depth = 0
        self.names: set[str] = set()
        self.places: dict[Place, int] = {}  # and where each stands first
        self.words: dict[str, int] = {}

    def read(self) -> Syntax:
        root = self._choice(self._global_flags())
        if self.at < len(self.text):
            raise self._fault("there is a ) without a ( before it; write \\) for the character")
        if Place.LAST_LINE_END in self.places and (self.places.keys() & {Place.LINE_START, Place.LINE_END}):
            at = self.places[Place.LAST_LINE_END]
            raise self._fault("$ stands inside and outside of (?m); write \\Z for the end of the text", at)
        if len(self.words) > 1:
            raise self._fault("\\b stands inside and outside of (?a); use one of them", max(self.words.values()))
        return Syntax(
            root=root,
            sources=tuple(self.sources),
            edges=tuple(sorted(self.edges)),
            has_categories=self.has_categories,
            ignores_case=self.ignores_case,
            word=next(iter(self.words), None),
            has_lines=bool(self.places.keys() & {Place.LINE_START, Place.LINE_END}),
            n_steps=self.n_steps,
        )

    # groups

    def _global_flags(self) -> str:
        """The flags of (?i) and the like, which stand before everything but a comment."""
        flags = ""
        flags_or_comment = re.compile(rf"\(\?[aiLmsux]+\)|{_COMMENT.pattern}", re.DOTALL)
        while match := flags_or_comment.match(self.text, self.at):
            added = "" if match[0].startswith("(?#") else match[0][2:-1]
            self._check_flags(added, self.at)
            flags = _with(flags, added)
            if "a" in flags and "u" in flags:
                raise self._fault("the flags a and u exclude each other", self.at)
            self.at = match.end()
        return flags.replace("u", "")

    def _check_flags(self, added: str, at: int) -> None:
        if "L" in added:
            raise self._fault("the flag L is for bytes; leave it out", at)

    def _choice(self, flags: str) -> Node:
        branches = [self._row(flags)]
        while self._skip("|"):
            branches.append(self._row(flags))
        return branches[0] if len(branches) == 1 else Choice(branches=tuple(branches))

    def _row(self, flags: str) -> Node:
        parts: list[Node] = []
        is_repeatable = False  # whether the last part may be repeated
        while (char := self._next()) and char not in "|)":
            if "x" in flags and self._skip_blank():
                continue
            if char in "*+?" or (char == "{" and self._is_count()):
                if not parts or isinstance(parts[-1], Place):
                    raise self._fault(f"{char} has nothing to repeat; write \\{char} for the character")
                if not is_repeatable:
                    raise self._fault(f"{char} repeats a repeat; put the first one into (?:...)")
                parts[-1] = self._repeat(parts[-1])
                is_repeatable = False
            elif char == "(":
                part = self._group(flags)
                parts += [] if part is None else [part]
                is_repeatable = is_repeatable if part is None else True
            else:
                parts.append(self._single(flags))
                is_repeatable = True
        return parts[0] if len(parts) == 1 else Row(parts=tuple(parts))

    def _skip_blank(self) -> bool:
        if self._next() in _SPACE:
            self.at += 1
            return True
        if self._next() == "#":
            match = _LINE_COMMENT.match(self.text, self.at)
            if match is None:
                raise self._fault("the comment ends in a backslash; leave it out", len(self.text) - 1)
            self.at = match.end()
            return True
        return False

    def _group(self, flags: str) -> Node | None:
        """Return what the parentheses hold; None for a comment."""
        at = self.at
        self.at += 1
        if self._next(2) == "?#":
            match = _COMMENT.match(self.text, at)
            if match is None:
                raise self._fault("the comment has no end; add )", at)
            self.at = match.end()
            return None
        if self._skip("?"):
            flags = self._extension(flags, at)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._fault(f"groups stand more than {MAX_DEPTH} deep; flatten them", at)
        inner = self._choice(flags)
        self.depth -= 1
        if not self._skip(")"):
            raise self._fault("the ( has no ) after it; write \\( for the character", at)
        return inner if not isinstance(inner, Place) else Row(parts=(inner,))

    def _extension(self, flags: str, at: int) -> str:
        """Reads what follows `(?` up to the group's content, and gives the flags inside."""
        for sign, words in _REFUSED.items():
            if self._next(len(sign)) == sign:
                raise self._fault(f"(?{sign} {words}", at)
        if self._skip("P<"):
            self._name(at)
            return flags
        if self._skip(":"):
            return flags
        match = re.compile("([aiLmsux]*)(?:-([imsx]+))?:").match(self.text, self.at)
        if match is None or (not match[1] and not match[2]):
            end = f"(?{self._next(3)}"
            raise self._fault(f"{end} is not known, or stands where it cannot: (?i) and its like come first of all", at)
        on, off = match[1], match[2] or ""
        self._check_flags(on, at)
        if set(on) & set(off) or {"a", "u"} <= set(on):
            raise self._fault("the flags of the group exclude each other", at)
        self.at = match.end()
        kept = "".join(flag for flag in flags if flag not in off and not (flag == "a" and "u" in on))
        return _with(kept, on).replace("u", "")

    def _name(self, at: int) -> None:
        end = self.text.find(">", self.at)
        name = self.text[self.at : max(end, self.at)]
        if not name.isidentifier():
            raise self._fault("the name of the group is none; write (?P<name>...)", at)
        if name in self.names:
            raise self._fault("another group has this name already; name each once", at)
        self.names.add(name)
        self.at = end + 1

    # repeats

    def _count(self) -> tuple[int, int | None, int] | None:
        """(low, high, where it ends) of a {...} that counts; None where the brace is a character."""
        match = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}").match(self.text, self.at)
        if match is None or match[0] == "{}":
            return None
        low = int(match[1] or 0)
        high = (int(match[3]) if match[3] else None) if match[2] else low
        return low, high, match.end()

    def _is_count(self) -> bool:
        return self._count() is not None

    def _repeat(self, body: Node) -> Node:
        at, char = self.at, self._next()
        low, high, end = {"*": (0, None, at + 1), "+": (1, None, at + 1), "?": (0, 1, at + 1)}.get(char) or (
            self._count() or (0, 0, at)
        )
        self.at = end
        if high is not None and high < low:
            raise self._fault("the repeat's least is more than its most; turn them round", at)
        if self._next() == "+":
            sign = self.text[at : end + 1]
            raise self._fault(f"{sign} gives nothing back, which is not supported; leave the last + out", at)
        self._skip("?")  # to take as few as can be finds no other texts
        return Repeat(body=body, low=low, high=high, at=at)

    # places, and single characters

    def _single(self, flags: str) -> Node:
        char = self._next()
        if char == "[":
            return self._set(flags)
        at = self.at
        self.at += 1
        if char == ".":
            if "s" not in flags:
                self.edges |= {10, 11}
            return self._chars(".", flags)
        if char == "^":
            return self._place(Place.LINE_START if "m" in flags else Place.START, at)
        if char == "$":
            return self._place(Place.LINE_END if "m" in flags else Place.LAST_LINE_END, at)
        return self._escape(at, flags) if char == "\\" else self._literal(ord(char), flags)

    def _escape(self, at: int, flags: str) -> Node:
        char = self._next()
        if char in ("A", "Z"):
            self.at += 1
            return self._place(Place.START if char == "A" else Place.END, at)
        if char in ("b", "B"):
            self.at += 1
            word = self._chars("\\w", "a" if "a" in flags else "")
            self._category(flags)
            self.words.setdefault(word.source, at)
            return self._place(Place.WORD_EDGE if char == "b" else Place.NO_WORD_EDGE, at)
        if char and char in "123456789":
            octal = self._three_octals()
            if octal is None:
                number = self._while(DIGITS, 2)
                words = f"\\{number} repeats what a group matched, which is not supported; write the alternatives out"
                raise self._fault(words, at)
            return self._literal(octal, flags)
        point = self._read_escape(at)
        if isinstance(point, str):
            self._category(flags)
            return self._chars(point, flags)
        return self._literal(point, flags)

    def _place(self, place: Place, at: int) -> Place:
        self.places.setdefault(place, at)
        return place


_AHEAD = "looks ahead, which is not supported; write out what may stand there, or ask it in a check of its own"
_BEHIND = "looks behind, which is not supported; write out what may stand there, or ask it in a check of its own"
_REFUSED = {
    "=": _AHEAD,
    "!": _AHEAD,
    "<=": _BEHIND,
    "<!": _BEHIND,
    "<": "is not Python's; write (?P<name>...)",
    ">": "gives nothing back, which is not supported; write (?:...)",
    "P=": "repeats what a group matched, which is not supported; write the alternatives out",
    "(": "asks whether a group matched, which is not supported; write the alternatives out",
}


def _with(flags: str, more: str) -> str:
    return "".join(dict.fromkeys(flags + more))
