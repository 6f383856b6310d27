"""Specs that name files of this machine: `examples: {file: tickets.csv, columns: {...}}` is read, uploaded, and the
upload's id takes its place. The service itself knows uploads alone."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InvalidRequest

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

PARTS = ("examples", "captures")
_COLUMNS = ("input", "output", "group", "split")
MAX_INLINE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The rows of a file that a spec names, as the JSON lines of an upload. A file that was sent before is not stored
    twice: its content is the idempotency key."""

    part: str
    name: str
    lines: bytes

    @property
    def idempotency_key(self) -> str:
        return f"file-{hashlib.sha256(self.part.encode() + self.name.encode() + self.lines).hexdigest()}"


def names_files(document: Any) -> bool:
    return isinstance(document, dict) and any(
        isinstance(document.get(part), dict) and "file" in document[part] for part in PARTS
    )


def files_of(document: Mapping[str, Any], *, folder: Path) -> list[FileRows]:
    """The rows of every file that the spec names, ready to be uploaded. Raises Unreadable, InvalidRequest."""
    files = []
    for part in PARTS:
        if isinstance(inner := document.get(part), dict) and "file" in inner:
            source, path = _look(inner, part, folder)
            files.append(FileRows(part=part, name=path.name[:100], lines=lines_of(source, part)))
    return files


def without_file(inner: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a spec less the file that it names."""
    return {name: value for name, value in inner.items() if name not in ("file", "columns")}


def with_rows(document: dict[str, Any], *, folder: Path) -> dict[str, Any]:
    """The document with a file's rows inline, for a check on this machine: as many as a spec may hold."""
    resolved = dict(document)
    for part in PARTS:
        if isinstance(inner := document.get(part), dict) and "file" in inner:
            rows = rows_of(_look(inner, part, folder)[0], part)[:MAX_INLINE]
            inline = rows if part == "examples" else [row["input"] for row in rows]
            resolved[part] = without_file(inner) | {"inline": [*inner.get("inline", ()), *inline]}
    return resolved


def _look(inner: Mapping[str, Any], part: str, folder: Path) -> tuple["Source", Path]:
    from .source_files import look

    columns, path = inner.get("columns", {}), folder / str(inner["file"])
    if not isinstance(columns, dict) or not columns.keys() <= set(_COLUMNS):
        message = f"{part}.columns names columns for {', '.join(_COLUMNS)}."
        raise InvalidRequest(message, code="unknown_column")
    return look(path, **columns), path


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
    from backend.domain.source_data.upload_lines import fitting_lines

    return b"".join(fitting_lines(rows_of(source, part)))
