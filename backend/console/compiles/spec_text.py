"""The text of the spec editor, read: YAML or JSON, bounded while it is built, with the line of every place in it.

A hostile text costs little. One pass over the parser's events builds the document and counts its depth, its parts and
what its aliases stand for; tags, directives and merge keys are not read at all, nor are numbers of more characters than
a number has (yaml reads `1:1:1` in base 60, in time that grows with the square of the text). What is built goes through
`parse_spec` like any other document.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from backend.console.compiles.pointer_lines import Place, line_of, places_of_json
from backend.domain.errors import InvalidSpec, Problem

MAX_BYTES = 1_000_000  # as a spec that is sent to the API
MAX_DEPTH = 64
MAX_PARTS = 150_000  # keys and values: 10,000 examples with input, output and group are 70,000
MAX_CHARS = MAX_BYTES  # of all texts, those that aliases repeat as often as they stand
MAX_NUMBER = 100  # characters of a number
MAX_DIRECTIVES = 20  # libyaml compares each with all before it
MAX_USD = 100_000
MAX_BUDGET = 400  # characters of the budget's field
_DIRECTIVE = re.compile("(?:^\ufeff?|[\r\n\x85\u2028\u2029]\ufeff?)%")
_DROPPED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")  # 2026-01-01 stays text, << is a key like others
_TOO_MANY = f"The spec holds more than {MAX_PARTS:,} keys and values; upload examples and captures instead."


@dataclass(frozen=True, slots=True)
class SpecText:
    """A document and where its parts stand, which is found out when it is asked for."""

    value: Any
    places: Callable[[], Place]

    def line_of(self, pointer: str) -> int:
        """The line (from 1) of what `pointer` names, or of the nearest part around it."""
        return line_of(self.places(), pointer)


def read_spec(text: str) -> SpecText:
    """Raises InvalidSpec, with the line in words, for what is no YAML and no JSON, and for what is too much of it."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise _unreadable(f"The spec has more than {MAX_BYTES:,} bytes; upload examples and captures instead.")
    if not text.strip():
        raise _unreadable("The spec is empty; start from an example.")
    if text.lstrip().startswith("{"):
        value = _json(text)
        if value is not None:
            return SpecText(value, cache(lambda: places_of_json(text)))
    return _yaml(text)


def with_budget(value: Any, usd: str) -> Any:
    """The document with the editor's budget in the place of its own; an empty field leaves it. Raises InvalidSpec."""
    if not usd.strip() or not isinstance(value, dict):
        return value
    if len(usd) > MAX_BUDGET:
        raise _wrong_budget()
    try:
        amount = Decimal(usd.strip().removeprefix("$"))
    except InvalidOperation:
        raise _wrong_budget() from None
    if not amount.is_finite() or not 0 < amount <= MAX_USD:
        raise _wrong_budget()
    budget = value.get("budget")
    return value | {"budget": (budget if isinstance(budget, dict) else {}) | {"usd": float(amount)}}


def _wrong_budget() -> InvalidSpec:
    message = f"The budget is a number of US dollars above 0, at most {MAX_USD:,}, such as 5 or 0.25."
    return InvalidSpec(message, problems=(Problem(pointer="/budget/usd", message=message, code="wrong_type"),))


def _unreadable(message: str) -> InvalidSpec:
    problem = Problem(pointer="", message=message, code="unreadable_spec")
    return InvalidSpec(message, code="unreadable_spec", problems=(problem,))


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None  # YAML's flow style begins with a brace too, and its parser tells the line of what is wrong


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key appears twice")
    return made


def _yaml(text: str) -> SpecText:
    import yaml

    if len(_DIRECTIVE.findall(text)) > MAX_DIRECTIVES:
        raise _unreadable("Lines that begin with % are not read in a spec; leave them out.")
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except (yaml.YAMLError, ValueError, OverflowError, UnicodeError) as error:
        raise _unreadable(_sentence(error)) from None
    if builder.root is None:
        raise _unreadable("The spec holds comments only; start from an example.")
    root = builder.root
    return SpecText(builder.value, lambda: root)


def _sentence(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = "" if mark is None else f"Line {mark.line + 1}, column {mark.column + 1}: "
    return f"{where}this is not YAML or JSON: {' '.join(str(problem).split())[:200]}."


@dataclass(slots=True)
class _Open:
    """A list or an object whose end has not come. `key`: the place of a field whose value comes next."""

    value: Any
    place: Place
    anchor: str | None
    n_parts_before: int
    n_chars_before: int
    key: tuple[Any, Place] | None = None


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    place: Place
    n_parts: int
    n_chars: int


class _Builder:
    """A document out of the parser's events, each looked at once. Values that an alias repeats are one object, and
    counted as often as they stand."""

    def __init__(self) -> None:
        self.value: Any = None
        self.root: Place | None = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None while it is open
        self._n_parts = self._n_chars = 0

    def take(self, event: Any) -> None:
        """Raises InvalidSpec."""
        import yaml

        if isinstance(event, yaml.ScalarEvent):
            self._check_tag(event)
            line = event.start_mark.line + 1
            value = _plain(event.value, line) if event.implicit[0] else event.value
            self._count(1, len(event.value))
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, Place(line), 1, len(event.value))
            self._add(value, Place(line), event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event, [] if isinstance(event, yaml.SequenceStartEvent) else {})
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            if ended.anchor is not None:
                n_parts, n_chars = self._n_parts - ended.n_parts_before, self._n_chars - ended.n_chars_before
                self._anchors[ended.anchor] = _Anchored(ended.value, ended.place, n_parts, n_chars)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event.anchor, event.start_mark.line + 1)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise _unreadable(f"Line {event.start_mark.line + 1}: another document starts; keep one.")

    def _repeat(self, anchor: str, line: int) -> None:
        target = self._anchors.get(anchor)
        if target is None:
            why = "is inside the value that it refers to" if anchor in self._anchors else "refers to nothing above it"
            raise _unreadable(f"Line {line}: *{anchor[:40]} {why}; write it out.")
        self._count(target.n_parts, target.n_chars)
        key = None if isinstance(target.value, dict | list) else str(target.value)
        self._add(target.value, Place(line, target.place.inside), key)

    def _begin(self, event: Any, value: Any) -> None:
        self._check_tag(event)
        line = event.start_mark.line + 1
        if len(self._open) == MAX_DEPTH:
            raise _unreadable(f"Line {line}: nested more than {MAX_DEPTH} deep; flatten it.")
        before = self._n_parts, self._n_chars
        self._count(1, 0)
        place = self._add(value, Place(line, [] if isinstance(value, list) else {}), None)
        self._open.append(_Open(value, place, event.anchor, *before))
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None:
            line = event.start_mark.line + 1
            raise _unreadable(f"Line {line}: tags ({event.tag[:40]}) are not read in a spec; leave it out.")

    def _count(self, n_parts: int, n_chars: int) -> None:
        self._n_parts += n_parts
        self._n_chars += n_chars
        if self._n_parts > MAX_PARTS:
            raise _unreadable(_TOO_MANY)
        if self._n_chars > MAX_CHARS:
            words = f"its aliases expand to more than {MAX_CHARS:,} characters; upload examples and captures instead"
            raise _unreadable(f"The spec is too large: {words}.")

    def _add(self, value: Any, place: Place, key: str | None) -> Place:
        """Puts a value where the next one belongs; `key` is its text, should a key belong there. Gives the place it
        has: a field stands where its key does."""
        if not self._open:
            self.value, self.root = value, place
            return place
        around = self._open[-1]
        if isinstance(around.value, list):
            around.value.append(value)
            around.place.inside.append(place)  # type: ignore[union-attr]
        elif around.key is None:
            self._add_key(around, value, place, key)
        else:
            name, place_of_key = around.key
            around.value[name], around.key = value, None
            place_of_key.inside = place.inside
            return place_of_key
        return place

    def _add_key(self, around: _Open, value: Any, place: Place, key: str | None) -> None:
        if key is None or isinstance(value, list | dict):
            message = "a key is a list or an object; write a name"
            raise _unreadable(f"Line {place.line}: this is not YAML or JSON that is read here: {message}.")
        if value in around.value:
            raise _unreadable(f"Line {place.line}: the key {key[:60]!r} appears twice in one object; keep one.")
        around.key = value, Place(place.line)
        around.place.inside[key] = around.key[1]  # type: ignore[call-overload,index]


def _plain(text: str, line: int) -> Any:
    """The value of a text without quotes, as the command line reads it in files: YAML 1.1, less its dates."""
    for tag, pattern in _resolvers().get(text[:1], ()):
        if pattern.match(text):
            kind = tag.rpartition(":")[2]
            if kind in ("int", "float") and len(text) > MAX_NUMBER:
                words = f"a number has more than {MAX_NUMBER} characters; write it in quotes"
                raise _unreadable(f"Line {line}: this is not YAML or JSON that is read here: {words}.")
            return _READ[kind](text) if kind in _READ else text
    return text


@cache
def _resolvers() -> dict[str, list[tuple[str, Any]]]:
    import yaml

    return {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in _DROPPED]
        for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _integer(text: str) -> int:
    if text.isdecimal() and text[0] != "0":
        return int(text)
    return int(_construct("construct_yaml_int", text))


def _construct(how: str, text: str) -> Any:
    import yaml

    return getattr(yaml.constructor.SafeConstructor(), how)(yaml.ScalarNode("", text))


_READ: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: _construct("construct_yaml_bool", text),
    "int": _integer,
    "float": lambda text: _construct("construct_yaml_float", text),
}
