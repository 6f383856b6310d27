"""A file of any of the forms that are read, as `Records`: the form is recognised by its first bytes, then by its
name."""

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from backend.domain.source_data.columnar import read_columnar
from backend.domain.source_data.delimited import NO_DELIMITER, read_delimited
from backend.domain.source_data.json_rows import read_json, read_json_lines
from backend.domain.source_data.records import Record, Records, RowProblem, SourceFormat, UnreadableSource
from backend.domain.source_data.sampling import Reservoir
from backend.domain.source_data.text_encoding import TextEncoding, find_encoding

READ = "What is read: CSV, TSV, JSON lines, JSON, Parquet, Arrow."
MOST_ROWS = 50_000
MOST_CELLS = 4_000_000  # of the rows that stay: some 200 MB
MAX_JSON_BYTES = 256_000_000  # a whole document is held in memory, lines are not
MAX_LINE_CHARS = 4_000_000
MOST_PROBLEMS = 1_000
_HEAD, _CHUNK = 65_536, 1_048_576
_TEXT_BYTES = bytes(byte for byte in range(256) if byte >= 32 or byte in b"\t\n\x0b\x0c\r")
_FRONT_COLUMNS = 200  # rows whose keys become columns


def read_records(source: BinaryIO, name: str = "", *, most: int = MOST_ROWS) -> Records:
    """Read a file from its start. Beyond `most` rows it is read on, and a uniform sample of them is what stays (the
    same rows for the same file). Raises UnreadableSource.

    Costs: one pass; 200 MB of CSV take about 8 s of one core, and memory for `most` rows alone."""
    head = source.read(_HEAD)
    source.seek(0)
    if not head.strip(b"\x00 \t\r\n"):
        raise UnreadableSource("The file is empty.")
    _refuse_others(head)
    if head.startswith(b"PAR1"):
        return _columnar(source, SourceFormat.PARQUET, most)
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")) or name.lower().endswith(".arrow"):
        return _columnar(source, SourceFormat.ARROW, most)
    encoding = find_encoding(iter(lambda: source.read(_CHUNK), b""))
    source.seek(0)
    if encoding.codec == "cp1252" and _is_binary(head):
        raise UnreadableSource(f"The file is not text: a program, a picture or a database. {READ}")
    return _text(source, head, encoding, name, most)


def records_of(rows: Iterable[Mapping[str, Any]], *, most: int = MOST_ROWS) -> Records:
    """Rows that are in memory already, such as a frame's."""
    numbered = (Record(number=number, values=row) for number, row in enumerate(rows, start=1))
    return _collect(numbered, SourceFormat.FRAME, most)


def _refuse_others(head: bytes) -> None:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        raise UnreadableSource(
            "The file is a zip archive or an Excel workbook (.xlsx). In Excel, save the sheet as “CSV UTF-8”; unpack an"
            " archive first."
        )
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableSource("The file is an old Excel workbook (.xls). Save the sheet as “CSV UTF-8” and send that.")
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd")):
        raise UnreadableSource("The file is compressed. Unpack it and send what is inside.")
    if head.startswith((b"%PDF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"{\\rtf")):
        raise UnreadableSource(
            "The file is a document or a picture. What is read: CSV, TSV, JSON lines, JSON, Parquet."
        )


def _is_binary(head: bytes) -> bool:
    """Say of bytes that are no UTF-8 whether they are no text of another code page either: those have no control
    characters but the ends of lines and pages."""
    return len(head.translate(None, _TEXT_BYTES)) > 0.02 * len(head)


def _columnar(source: BinaryIO, kind: SourceFormat, most: int) -> Records:
    table = read_columnar(source, kind)
    records = _collect(table.rows, kind, most, columns=table.columns)
    return Records(
        format=kind,
        columns=table.columns,
        records=records.records,
        n_rows=records.n_rows,
        problems=records.problems,
        label_names=table.label_names,
    )


def _text(source: BinaryIO, head: bytes, encoding: TextEncoding, name: str, most: int) -> Records:
    notes: tuple[str, ...] = (encoding.note,) if encoding.note else ()
    start = head[encoding.mark :].decode(encoding.codec, errors="replace").lstrip()
    if start.startswith("<"):
        raise UnreadableSource(f"The file is HTML or XML. {READ}")
    kind = _text_kind(start, name)
    if kind is SourceFormat.JSON:
        data = source.read(MAX_JSON_BYTES + 1)
        if len(data) > MAX_JSON_BYTES:
            raise UnreadableSource(f"A JSON file of more than {MAX_JSON_BYTES // 10**6} MB is read as JSON lines only.")
        text = data[encoding.mark :].decode(encoding.codec, errors="replace")
        return _collect(read_json(text), kind, most, notes=notes)
    lines = _lines(source, encoding)
    if kind is SourceFormat.JSON_LINES:
        return _collect(read_json_lines(lines), kind, most, notes=notes)
    table = read_delimited(lines)
    kind = SourceFormat.TSV if table.delimiter == "\t" else SourceFormat.CSV
    if table.delimiter == NO_DELIMITER:
        notes += ("each line is one text",)
    elif table.delimiter not in ",\t":
        notes += (f"cells are separated by “{table.delimiter}”",)
    return _collect(table.rows, kind, most, columns=table.columns, notes=notes + table.notes)


def _text_kind(start: str, name: str) -> SourceFormat:
    """JSON that goes on after its first line's value is JSON lines, whatever the file is called."""
    suffix = name.lower().rpartition(".")[2]
    if suffix in ("csv", "tsv", "tab"):
        return SourceFormat.JSON_LINES if _is_object(start.partition("\n")[0]) else SourceFormat.CSV
    if start.startswith("["):
        return SourceFormat.JSON
    if not start.startswith(("{", '"')) or (start.startswith('"') and suffix not in ("jsonl", "ndjson", "json")):
        return SourceFormat.JSON_LINES if suffix in ("jsonl", "ndjson") else SourceFormat.CSV
    if suffix in ("jsonl", "ndjson"):
        return SourceFormat.JSON_LINES
    first, _, rest = start.partition("\n")
    is_line = first.rstrip().endswith("}") and (not rest.strip() or rest.lstrip().startswith("{"))
    return SourceFormat.JSON_LINES if is_line and rest.strip() else SourceFormat.JSON


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _lines(source: BinaryIO, encoding: TextEncoding) -> Iterator[str]:
    """Lines with their ends, of bounded length; NUL is left out, since no row may have one."""
    source.seek(encoding.mark)
    text = io.TextIOWrapper(source, encoding=encoding.codec, errors="replace", newline="")
    try:
        while line := text.readline(MAX_LINE_CHARS):
            if len(line) == MAX_LINE_CHARS:
                raise UnreadableSource(
                    f"A line of the file has more than {MAX_LINE_CHARS // 10**6} million characters."
                )
            yield line.replace("\x00", "")
    finally:
        text.detach()


def _collect(
    rows: Iterable[Record | RowProblem],
    kind: SourceFormat,
    most: int,
    *,
    columns: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Records:
    kept: Reservoir[Record] = Reservoir(min(most, MOST_CELLS // max(1, len(columns))))
    problems: list[RowProblem] = []
    n_problems = 0
    for row in rows:
        if isinstance(row, RowProblem):
            n_problems += 1
            if len(problems) < MOST_PROBLEMS:
                problems.append(row)
        else:
            kept.add(row)
    records = tuple(kept.rows())
    if not records and not problems:
        raise UnreadableSource("The file has no rows.")
    if n_problems > len(problems):
        notes += (f"{n_problems:,} rows cannot be read; {len(problems):,} of them are counted by reason",)
    return Records(
        format=kind,
        columns=columns or _columns(records),
        records=records,
        n_rows=kept.n_added + n_problems,
        problems=tuple(problems),
        notes=notes,
    )


def _columns(records: tuple[Record, ...]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for record in itertools.islice(records, _FRONT_COLUMNS):
        names.update(dict.fromkeys(map(str, record.values)))
    return tuple(itertools.islice(names, 1_000))
