"""Rows as a customer has them (a pandas DataFrame, a list, a JSONL file) into the JSON lines that an upload is.

pandas is not imported: whatever has `columns` and `to_dict(orient="records")` is a table.
"""

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from .documents import Unreadable
from .errors import InvalidRequest

MAX_BYTES = 5_000_000  # the API's limits: what is over them is not even sent
MAX_ROWS = 50_000
Rows = Any  # a DataFrame, an iterable of mappings or texts, or the path of a JSONL file


def jsonl_of(rows: Rows, *, columns: Mapping[str, str] | None = None) -> bytes:
    """`columns` renames: {"message": "input", "intent": "output"}. A text alone is an `input`. A missing value (None or
    NaN) is left out of its row. Raises Unreadable, InvalidRequest, TypeError."""
    if isinstance(rows, str | PathLike) and columns is None:
        return _checked_size(_read(Path(rows)))
    if isinstance(rows, str | PathLike):
        rows = _rows_of(Path(rows))
    names = dict(columns or {})
    lines = [_line(row, names) for row in _records(rows)]
    if len(lines) > MAX_ROWS:
        message = f"An upload holds at most {MAX_ROWS:,} rows and this one has {len(lines):,}; send fewer."
        raise InvalidRequest(message, code="upload_too_large")
    return _checked_size("".join(line + "\n" for line in lines).encode("utf-8"))


def _records(rows: Rows) -> Iterable[Any]:
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):
        records: Iterable[Any] = rows.to_dict(orient="records")
        return records
    if isinstance(rows, Mapping | bytes) or not isinstance(rows, Iterable):
        raise TypeError(f"rows are a DataFrame, a list of dicts or texts, or a JSONL file, not {type(rows).__name__}")
    return rows


def _line(row: Any, names: Mapping[str, str]) -> str:
    if isinstance(row, str):
        row = {"input": row}
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is a mapping or a text, not {type(row).__name__}")
    kept = {names.get(str(name), str(name)): _plain(value) for name, value in row.items() if not _is_missing(value)}
    return json.dumps(kept, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """numpy's scalars as Python's."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}.") from error


def _rows_of(path: Path) -> list[Any]:
    """The rows of a JSONL file. Raises Unreadable, with the line."""
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} cannot be read: {error}.") from error
    rows = []
    for n, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise Unreadable(f"{path}: line {n} is not JSON: {error}.") from error
    return rows


def _checked_size(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        message = f"An upload holds at most {MAX_BYTES:,} bytes and this one has {len(data):,}; send fewer rows."
        raise InvalidRequest(message, code="upload_too_large")
    return data
