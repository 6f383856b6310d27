"""Specs that name files of this machine: `examples: {file: tickets.csv, columns: {...}}` is read, uploaded, and the
upload's id takes its place. The service itself knows uploads alone."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InvalidRequest

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

PARTS = ("examples", "captures")
_COLUMNS = ("input", "output", "group", "split")
MAX_INLINE = 10_000
MAX_BYTES = 5_000_000
Upload = Callable[[bytes, str, str, str], str]  # lines, purpose, name, idempotency key -> id


def names_files(document: Any) -> bool:
    return isinstance(document, dict) and any(
        isinstance(document.get(part), dict) and "file" in document[part] for part in PARTS
    )


def with_uploads(document: dict[str, Any], *, folder: Path, upload: Upload) -> dict[str, Any]:
    """The document with an upload's id in the place of each file. A file that was sent before is not stored twice: its
    content is the idempotency key."""
    resolved = dict(document)
    for part in PARTS:
        if not (isinstance(inner := document.get(part), dict) and "file" in inner):
            continue
        source, path = _look(inner, part, folder)
        lines = lines_of(source, part)
        key = hashlib.sha256(part.encode() + path.name.encode() + lines).hexdigest()
        resolved[part] = _without_file(inner) | {"upload": upload(lines, part, path.name[:100], f"file-{key}")}
    return resolved


def with_rows(document: dict[str, Any], *, folder: Path) -> dict[str, Any]:
    """The document with a file's rows inline, for a check on this machine: as many as a spec may hold."""
    resolved = dict(document)
    for part in PARTS:
        if isinstance(inner := document.get(part), dict) and "file" in inner:
            rows = rows_of(_look(inner, part, folder)[0], part)[:MAX_INLINE]
            inline = rows if part == "examples" else [row["input"] for row in rows]
            resolved[part] = _without_file(inner) | {"inline": [*inner.get("inline", ()), *inline]}
    return resolved


def _look(inner: Mapping[str, Any], part: str, folder: Path) -> tuple["Source", Path]:
    from .source_files import look

    columns, path = inner.get("columns", {}), folder / str(inner["file"])
    if not isinstance(columns, dict) or not columns.keys() <= set(_COLUMNS):
        message = f"{part}.columns names columns for {', '.join(_COLUMNS)}."
        raise InvalidRequest(message, code="unknown_column")
    return look(path, **columns), path


def _without_file(inner: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inner.items() if name not in ("file", "columns")}


def rows_of(source: "Source", part: str) -> list[dict[str, str]]:
    """The rows of an upload of this purpose. Raises InvalidRequest where examples have no answers."""
    rows = [row.to_json() for row in source.rows]
    if part == "captures":
        return [{"input": row["input"]} for row in rows]
    if not rows or any("output" not in row for row in rows):
        message = "Examples need answers, and the file has none: name its column of answers, or use it as captures."
        raise InvalidRequest(message, code="no_answers")
    return rows


def lines_of(source: "Source", part: str) -> bytes:
    """The rows as JSON lines; an even sample of them where all are more than an upload holds."""
    from backend.domain.source_data.sampling import sample_of

    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows_of(source, part)]
    while (n_bytes := sum(map(len, lines))) > MAX_BYTES:
        lines = sample_of(lines, int(len(lines) * MAX_BYTES / n_bytes * 0.99))
    return b"".join(lines)
