"""The text of the spec editor, read: YAML or JSON, bounded before it is built, with the line of every place in it.

A hostile text costs little: its size, depth and number of parts are counted over the parser's events before any object
is made, tags and merge keys are not read at all, and what is built goes through `parse_spec` like any other document.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.spec_problems import MAX_VALUES

MAX_BYTES = 1_000_000  # as a spec that is sent to the API
MAX_DEPTH = 64
MAX_USD = 100_000
_DROPPED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")  # 2026-01-01 stays text, << is a key like others


@dataclass(frozen=True, slots=True)
class SpecText:
    """A document and where its parts stand."""

    value: Any
    root: Any  # yaml's node, None where there are no lines to tell

    def line_of(self, pointer: str) -> int | None:
        """The line (from 1) of what `pointer` names, or of the nearest part around it."""
        if self.root is None:
            return None
        node, line = self.root, self.root.start_mark.line + 1
        for part in pointer.split("/")[1:]:
            found = _step(node, part.replace("~1", "/").replace("~0", "~"))
            if found is None:
                break
            line, node = found
        return line


def read_spec(text: str) -> SpecText:
    """Raises InvalidSpec, with the line in words, for what is no YAML and no JSON, and for what is too much of it."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise _unreadable(f"The spec has more than {MAX_BYTES:,} bytes; upload examples and captures instead.")
    if not text.strip():
        raise _unreadable("The spec is empty; start from an example.")
    if text.lstrip().startswith("{"):
        value = _json(text)
        if value is not None:
            return SpecText(value=value, root=_lines_of_json(text))
    return _yaml(text)


def with_budget(value: Any, usd: str) -> Any:
    """The document with the editor's budget in the place of its own; an empty field leaves it. Raises InvalidSpec."""
    if not usd.strip() or not isinstance(value, dict):
        return value
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
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # YAML's flow style begins with a brace too, and its parser tells the line of what is wrong


def _lines_of_json(text: str) -> Any:
    try:
        return _compose(text)
    except InvalidSpec:
        return None  # JSON that is no YAML (tabs); it is read all the same


def _yaml(text: str) -> SpecText:
    import yaml

    root = _compose(text)
    try:
        loader = _loader()("")
        try:
            value = loader.construct_document(root)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise _unreadable(_sentence(error)) from None
    for line, key in _doubles(root):
        raise _unreadable(f"Line {line}: the key {key[:60]!r} stands twice in one object; leave one.")
    return SpecText(value=value, root=root)


def _compose(text: str) -> Any:
    """yaml's node tree. Raises InvalidSpec."""
    import yaml

    try:
        _count_events(text)
        root = yaml.compose(text, Loader=_loader())
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise _unreadable(_sentence(error)) from None
    if root is None:
        raise _unreadable("The spec holds comments only; start from an example.")
    return root


def _count_events(text: str) -> None:
    """Walks without building: deep nesting would overflow the composer's stack."""
    import yaml

    depth = 0
    for n_parts, event in enumerate(yaml.parse(text, Loader=_loader())):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        line = event.start_mark.line + 1
        if depth > MAX_DEPTH:
            raise _unreadable(f"Line {line}: nested more than {MAX_DEPTH} deep; flatten it.")
        if n_parts > 2 * MAX_VALUES:
            raise _unreadable(f"The spec holds more than {MAX_VALUES:,} values; upload examples and captures instead.")
        if getattr(event, "tag", None) is not None:
            raise _unreadable(f"Line {line}: tags ({event.tag[:40]}) are not read in a spec; leave it out.")


@cache
def _loader() -> Any:
    """libyaml's safe loader less its dates and merge keys, as the command line reads files."""
    import yaml

    class Loader(yaml.CSafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag not in _DROPPED]
        for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _sentence(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = "" if mark is None else f"Line {mark.line + 1}, column {mark.column + 1}: "
    return f"{where}this is not YAML or JSON: {' '.join(str(problem).split())[:200]}."


def _doubles(root: Any) -> Iterator[tuple[int, str]]:
    """(line, key) of keys that an object has twice; YAML would take the last without a word."""
    import yaml

    stack, seen = [root], {id(root)}
    while stack:
        node = stack.pop()
        children = node.value if isinstance(node.value, list) else []
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, _ in node.value:
                if isinstance(key.value, str) and key.value in keys:
                    yield key.start_mark.line + 1, key.value
                keys.add(str(key.value) if isinstance(key.value, str) else "")
            children = [part for pair in node.value for part in pair]
        fresh = [part for part in children if id(part) not in seen]
        seen.update(map(id, fresh))
        stack += fresh


def _step(node: Any, part: str) -> tuple[int, Any] | None:
    """(line, node) one reference token further down."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and len(part) < 10 and int(part) < len(node.value):
        value = node.value[int(part)]
        return value.start_mark.line + 1, value
    return None
