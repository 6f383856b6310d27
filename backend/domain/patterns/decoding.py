r"""A pattern as the runner's decoder is given it: written anew from what was read of it. The decoder reads patterns
in a way of its own (`\w` is without é, `[a&&b]` is what both have, `a{,2}`, `[[]` and `\141` are faults), and an answer
that was decoded to one meaning would be checked against another.

`\w` and `\d` are written as Unicode's letters and numbers, of the decoder's own version of Unicode; what depends on
case is written out. Of the ends of a text only the end itself is decoded to, not a new line before it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from backend.domain.patterns.characters import Chars
from backend.domain.patterns.syntax import Choice, Node, Place, Repeat, Row, read_pattern

if TYPE_CHECKING:
    from backend.domain.patterns.code_points import Ints

_SPACES = r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_CATEGORIES = {"w": r"\p{L}\p{N}_", "d": r"\p{Nd}", "s": _SPACES}
_ENDS = (Place.END, Place.LAST_LINE_END)
_PLACES = {Place.START: "^"} | dict.fromkeys(_ENDS, "$")  # no other one is decoded to
_ITEM = re.compile(r"\\(?:U([0-9a-f]{8})|([wdsWDS]))")
_HALVES = (0xD800, 0xDFFF)  # of surrogate pairs, which no decoded text has
_NOTHING = r"[^\x{0}-\x{10ffff}]"
_VALUES = frozenset({"const", "enum", "default", "examples"})  # what stands there is no schema


def decodable_schema(schema: Any) -> Any:
    """The schema with each of its patterns so written. Raises UnsafePattern for one that is not vetted."""
    if isinstance(schema, list):
        return [decodable_schema(each) for each in schema]
    return {key: _part(key, value) for key, value in schema.items()} if isinstance(schema, dict) else schema


def _part(key: str, value: Any) -> Any:
    if key == "pattern" and isinstance(value, str):
        return decodable_pattern(value)
    if key in ("properties", "$defs") and isinstance(value, dict):
        return {name: decodable_schema(each) for name, each in value.items()}
    return value if key in _VALUES else decodable_schema(value)


def why_not_decodable(pattern: str) -> str:
    """Return what of a vetted pattern no decoder can follow, with what to write instead; empty where it can."""
    if not _is_anchored_at_its_ends(read_pattern(pattern).root, is_first=True, is_last=True):
        return "only the ends of the text can be decoded to: ^ may stand first and $ last, no \\b and no (?m)"
    if _NOTHING in decodable_pattern(pattern):
        return "it asks for a character that no text has (half of a pair of surrogates, for one); write a whole one"
    return ""


def _is_anchored_at_its_ends(node: Node, *, is_first: bool, is_last: bool) -> bool:
    match node:
        case Place():
            return is_first if node is Place.START else is_last and node in _ENDS
        case Row(parts=parts):
            first = next((i for i, part in enumerate(parts) if part is not Place.START), len(parts))
            last = next((i for i in reversed(range(len(parts))) if parts[i] not in _ENDS), -1)
            return all(
                _is_anchored_at_its_ends(part, is_first=is_first and i <= first, is_last=is_last and i >= last)
                for i, part in enumerate(parts)
            )
        case Choice(branches=branches):
            return all(_is_anchored_at_its_ends(each, is_first=is_first, is_last=is_last) for each in branches)
        case Repeat(body=body):
            return _is_anchored_at_its_ends(body, is_first=False, is_last=False)
    return True


@lru_cache(maxsize=128)
def decodable_pattern(pattern: str) -> str:
    """Write a pattern in the syntax of Rust's regex. Raises UnsafePattern."""
    syntax = read_pattern(pattern)
    apart = [source for source in syntax.sources if not _is_plain(source)]
    if not apart:
        return _write(syntax.root, {})
    from backend.domain.patterns.alphabets import taken_ranges  # numpy, which `kolm run` by rules does without

    ranges = taken_ranges(syntax, apart)
    return _write(syntax.root, {source: _set_of(ranges[source]) for source in apart})


def _is_plain(source: str) -> bool:
    """Return whether a character's pattern can be said item by item: without case, and without halves of pairs."""
    points = [int(digits, 16) for digits, _ in _ITEM.findall(source) if digits]
    return not source.startswith(("(?i", "(?a")) and not any(_HALVES[0] <= point <= _HALVES[1] for point in points)


def _write(node: Node, sets: Mapping[str, str]) -> str:
    match node:
        case Chars(source=source):
            return sets.get(source) or _set_source(source)
        case Place():
            return _PLACES.get(node, "(?m:^)")  # which the decoder refuses
        case Row(parts=parts):
            texts = [(part, _write(part, sets)) for part in parts]
            return "".join(f"(?:{text})" if isinstance(part, Choice) else text for part, text in texts)
        case Choice(branches=branches):
            return "|".join(_write(branch, sets) for branch in branches)
        case Repeat(low=low, high=high, body=body):
            return f"(?:{_write(body, sets)}){{{low},{'' if high is None else high}}}"


def _set_source(source: str) -> str:
    if source.endswith("."):
        return r"[^\x{a}]" if source == "." else r"[\x{0}-\x{10ffff}]"
    inner = source.removeprefix("(?s)")
    is_set = inner.startswith("[")
    items = _ITEM.sub(_item, inner[1:-1] if is_set else inner)
    return f"[{items}]"


def _item(match: re.Match[str]) -> str:
    if match[1]:
        return f"\\x{{{int(match[1], 16):x}}}"
    category = _CATEGORIES[match[2].lower()]
    return f"[^{category}]" if match[2].isupper() else category


def _set_of(ranges: "Ints") -> str:
    low, high = _HALVES
    ranges_text = ""
    for first, last in ranges.tolist():
        for begin, end in ((first, min(last, low - 1)), (max(first, high + 1), last)):
            ranges_text += f"\\x{{{begin:x}}}-\\x{{{end:x}}}" if begin <= end else ""
    return f"[{ranges_text}]" if ranges_text else _NOTHING
