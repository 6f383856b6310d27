"""JSON lines, a JSON list, or a JSON object that holds one, as rows."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from backend.domain.source_data.records import Record, RowProblem, UnreadableSource

LISTS = ("data", "rows", "examples", "records", "items", "instances", "observations", "traces", "runs")
MOST_CELLS = 50
_NO_OBJECT = "is not a JSON object"


def read_json_lines(lines: Iterable[str]) -> Iterator[Record | RowProblem]:
    """One row a line; a text alone is a row of the column "text"."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield RowProblem(number=number, reason=_NO_OBJECT, excerpt=line.strip()[:120])
                continue
            yield _row(number, value)


def read_json(text: str) -> Iterator[Record | RowProblem]:
    """The rows of a whole document. Raises UnreadableSource."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UnreadableSource(f"The file is not JSON: {error}.") from None
    except RecursionError:
        raise UnreadableSource("The file is nested too deeply; flatten it.") from None
    rows = _list_in(value)
    if rows is None:
        keys = ", ".join(LISTS)
        raise UnreadableSource(f"The file is one JSON value and no list of rows (nor an object with one under {keys}).")
    return (_row(number, row) for number, row in enumerate(rows, start=1))


def _list_in(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    for name in LISTS:
        if isinstance(value.get(name), list):
            return list(value[name])
    if value and all(isinstance(column, dict) for column in value.values()):
        return _by_index(value)
    if value and all(isinstance(part, list) for part in value.values()):
        return _by_part(value)
    return None


def _by_part(parts: dict[str, list[Any]]) -> list[Any]:
    """A data set as an object of parts (train, test, oos_val): each row keeps its part's last word as its split."""
    rows = []
    for name, part in parts.items():
        split = re.split(r"[^A-Za-z]+", name)[-1].lower()
        rows += [{**row, "split": split} if (row := _members(each)) is not None else each for each in part]
    return rows


def _by_index(columns: dict[str, dict[str, Any]]) -> list[Any]:
    """A frame's own `to_json()`: a column is an object of index and value."""
    index = list(next(iter(columns.values())))
    return [{name: column.get(key) for name, column in columns.items()} for key in index]


def _row(number: int, value: Any) -> Record | RowProblem:
    members = _members(value)
    if members is None:
        return RowProblem(number=number, reason=_NO_OBJECT, excerpt=str(value)[:120])
    return Record(number=number, values=members)


def _members(value: Any) -> dict[str, Any] | None:
    """An object as it is; a text is the column "text", a short list one column an element."""
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, list) and 1 < len(value) <= MOST_CELLS and not any(isinstance(cell, list) for cell in value):
        return {f"column {n}": cell for n, cell in enumerate(value, start=1)}
    return value if isinstance(value, dict) else None
