"""Comma-, semicolon- and tab-separated text by the standard library's `csv`, which keeps every cell a text: "NA", "007"
and "1e5" are labels as they stand, which readers that guess types turn into a gap, 7 and 100000.0."""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.domain.source_data.records import INVISIBLE, Record, RowProblem, UnreadableSource

if TYPE_CHECKING:
    import _csv

DELIMITERS = ",;\t|"
NO_DELIMITER = "\x1f"
LEAST_SHARE = 0.6  # of the first lines that a separator divides alike; prose has commas too
MAX_CELL_CHARS = 1_000_000
MAX_COLUMNS = 1_000
MAX_CELL_LINES = 500
_OPEN_QUOTE = 'has a quote that ends hundreds of lines later, if at all; in a cell write "" for "'
_SNIFFED_LINES = 50
_SEPARATOR_LINE = re.compile(r'^("?)sep=(.)\1\s*$', re.IGNORECASE)  # Excel's own; a program may quote it


@dataclass(frozen=True, slots=True, kw_only=True)
class Delimited:
    """A table as text: its separator, its columns (each name once) and whether its first line was one of them."""

    delimiter: str
    columns: tuple[str, ...]
    has_header: bool
    rows: Iterator[Record | RowProblem]
    notes: tuple[str, ...] = ()


def read_delimited(lines: Iterable[str]) -> Delimited:
    """Read a table. `lines` keep their line ends, which a quoted cell may hold. Raises UnreadableSource where it has no
    rows, or none of more than one cell that would make it a table."""
    csv.field_size_limit(MAX_CELL_CHARS)
    source = iter(lines)
    head = list(itertools.islice(source, _SNIFFED_LINES))
    delimiter, skipped = _separator_line(head)
    delimiter = delimiter or find_delimiter(head)
    reader = csv.reader(
        itertools.chain(head[skipped:], source),
        delimiter=delimiter,
        strict=False,
        skipinitialspace=_quotes_after_space(head[skipped:], delimiter),
    )
    front = _front_rows(reader, skipped)
    first = front[0][1]
    has_header = _is_header(first, [row for _, row in front[1:]])
    names, notes = _names(first) if has_header else ([f"column {n}" for n in range(1, len(first) + 1)], [])
    if not has_header:
        notes.append("the first line looks like data, so the columns have numbers for names")
    return Delimited(
        delimiter=delimiter,
        columns=tuple(names),
        has_header=has_header,
        rows=_rows(front[has_header:], reader, skipped, tuple(names)),
        notes=tuple(notes),
    )


def _separator_line(head: Sequence[str]) -> tuple[str | None, int]:
    match = _SEPARATOR_LINE.match(head[0].lstrip("\ufeff")) if head else None
    return (match[2], 1) if match else (None, 0)


def _quotes_after_space(head: Sequence[str], delimiter: str) -> bool:
    """Say whether cells are written as `a, "b"`, where the space would make the quotes a part of the cell."""
    return bool(head) and sum(f'{delimiter} "' in line for line in head) >= LEAST_SHARE * len(head)


def find_delimiter(head: Sequence[str]) -> str:
    """The separator that divides most lines into the same number of cells, the most cells where several do; one that
    no text has where none does: then a line is a cell.

    >>> find_delimiter(["text;label\\n", "a, b;x\\n", "c;y\\n"])
    ';'
    """
    best, chosen = (0.0, 0), NO_DELIMITER
    for delimiter in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(head, delimiter=delimiter) if row]
        except csv.Error:
            continue
        width, n = Counter(widths).most_common(1)[0] if widths else (1, 0)
        rank = (
            (n / len(widths), width) if width > 1 and (min(widths) > 1 or n >= LEAST_SHARE * len(widths)) else (0.0, 0)
        )
        if rank > best:
            best, chosen = rank, delimiter
    return chosen


def _front_rows(reader: "_csv.Reader", skipped: int) -> list[tuple[int, list[str]]]:
    rows: list[tuple[int, list[str]]] = []
    while len(rows) < _SNIFFED_LINES:
        start = reader.line_num + skipped + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise UnreadableSource(f"Line {start} cannot be read as a table: {error}.") from None
        if any(cell.strip() for cell in row):
            rows.append((start, row))
    if not rows:
        raise UnreadableSource("The file has no rows.")
    if len(rows[0][1]) > MAX_COLUMNS:
        raise UnreadableSource(f"The table has {len(rows[0][1]):,} columns; at most {MAX_COLUMNS:,} are read.")
    return rows


def _is_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Say whether the first row names columns: none is long, a sentence or a number, or stands under itself."""
    cells = [cell.strip() for cell in first]
    if len(cells) == 1 and len(cells[0].split()) > 2:
        return False
    if not below:
        return True
    if any(len(cell) > 60 or _is_number(cell) or cell.endswith((".", "?", "!")) for cell in cells):
        return False
    return not any(cell and cell == value.strip() for row in below for cell, value in zip(cells, row, strict=False))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _names(first: Sequence[str]) -> tuple[list[str], list[str]]:
    """Column names, each once: a second "text" is "text (2)"; a column without a name has its number."""
    names: list[str] = []
    taken: set[str] = set()
    alike = set()
    for n, cell in enumerate(first, start=1):
        wanted = " ".join(INVISIBLE.sub("", cell).split())[:100] or f"column {n}"
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted} ({count})"
            alike.add(wanted)
        taken.add(name)
        names.append(name)
    notes = [f"several columns are called “{name}”: the later ones have a number behind" for name in sorted(alike)]
    return names, notes


def _rows(
    ahead: list[tuple[int, list[str]]], reader: "_csv.Reader", skipped: int, names: tuple[str, ...]
) -> Iterator[Record | RowProblem]:
    for number, row in ahead:
        yield _record(number, row, names)
    while True:
        number = reader.line_num + skipped + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield RowProblem(number=number, reason=f"cannot be read as a row: {error}")
            continue
        if any(cell.strip() for cell in row):
            yield _record(number, row, names)


def _record(number: int, row: list[str], names: tuple[str, ...]) -> Record | RowProblem:
    """Missing cells at the end are empty, as spreadsheets save them; more cells than columns are a quote that is not
    closed or not doubled."""
    longest = max(row, key=len)
    if len(longest) > MAX_CELL_LINES and (n_lines := len(longest.splitlines())) > MAX_CELL_LINES:
        excerpt = f"{n_lines:,} lines, from {longest[:80]!r}"
        return RowProblem(number=number, reason=_OPEN_QUOTE, excerpt=excerpt)
    if len(row) > len(names) and any(cell.strip() for cell in row[len(names) :]):
        excerpt = " | ".join(row)[:120]
        return RowProblem(number=number, reason="has more cells than the table has columns", excerpt=excerpt)
    cells = row[: len(names)] + [""] * (len(names) - len(row))
    return Record(number=number, values=dict(zip(names, cells, strict=True)))
