"""Tables on this machine: CSV, TSV, JSON lines and Parquet read row by row, and written with an answer beside each row.

A spreadsheet runs a cell that begins with = + - @, a tab or a return as a formula. Such a cell of the input or of a
model is written with an apostrophe before it, unless it is a plain number.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from backend.domain.source_data.delimited import NO_DELIMITER, find_delimiter
from backend.domain.source_data.records import SourceFormat, UnreadableSource
from backend.domain.source_data.text_encoding import find_encoding
from gpu_runners.cli.artifacts.loading import Refused
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.terminal_text import raw

FORMATS = (".csv", ".tsv", ".jsonl")
PARQUET = ".parquet"  # is read, not written
_DELIMITER_OF = {".csv": ",", ".tsv": "\t", ".jsonl": ""}
LONGEST_CELL = 10_000_000  # characters
HEAD_LINES = 50  # from which the separator is seen
CHUNK = 1 << 20
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?")
BOM = "\ufeff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`names` are the columns and a row is the list of their cells; of JSON lines a row is the object, and there are no
    names. `is_marked`: a spreadsheet wrote it, and reads UTF-8 by its mark alone."""

    names: tuple[str, ...]
    rows: Iterator[Any]
    delimiter: str = ","
    is_marked: bool = False

    @property
    def is_jsonl(self) -> bool:
        return not self.names

    def column(self, name: str | None) -> Any:
        """Return what `row[...]` takes for the text: the column that is named, else the only one, or `input` or `text`.
        Raises Refused."""
        if self.is_jsonl:
            return name or "input"
        wanted = [name] if name else ["input", "text"] if len(self.names) > 1 else list(self.names)
        places = [i for each in wanted for i, one in enumerate(self.names) if one == each]
        if len(places) == 1:
            return places[0]
        if name and places:
            raise Refused(f"{len(places)} columns are called {name!r}; rename one.", exit_code=USAGE)
        known = ", ".join(map(repr, self.names))
        raise Refused(f"name the column of texts with --column; there are {known}.", exit_code=USAGE)


@contextmanager
def open_table(path: str) -> Iterator[Table]:
    """Open a table by the end of its name. Raises Refused, also while the rows are read."""
    if Path(path).suffix.lower() not in (*FORMATS, PARQUET):
        raise Refused(f"{path}: a table ends in {', '.join((*FORMATS, PARQUET))}.", exit_code=USAGE)
    try:
        if Path(path).suffix.lower() == PARQUET:
            with Path(path).open("rb") as data:
                yield _columnar_of(data)
            return
        with Path(path).open("rb") as data:
            encoding = find_encoding(iter(lambda: data.read(CHUNK), b""))
        if encoding.note:
            print(f"{path}: {encoding.note}", file=sys.stderr)
        with Path(path).open(encoding=encoding.codec, newline="") as file:
            yield _table_of(file, path, is_marked=bool(encoding.mark) or encoding.codec != "utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            f"{path} cannot be read as text ({error.reason}); save it as CSV UTF-8.", exit_code=USAGE
        ) from error
    except UnreadableSource as error:
        raise Refused(f"{path}: {error.message}", exit_code=USAGE) from error
    except BrokenPipeError:  # of standard output: `kolm run ... | head`
        raise
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror}).", exit_code=USAGE) from error


def _table_of(file: TextIO, path: str, *, is_marked: bool) -> Table:
    head = list(islice(file, HEAD_LINES))
    head[:1] = [line.removeprefix(BOM) for line in head[:1]]
    lines = chain(head, file)
    if path.lower().endswith(".jsonl"):
        return Table(names=(), rows=_objects(lines, path), is_marked=is_marked)
    csv.field_size_limit(LONGEST_CELL)
    delimiter = "\t" if path.lower().endswith(".tsv") else find_delimiter(head)
    delimiter = "," if delimiter == NO_DELIMITER else delimiter
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    names = tuple(next(_check_rows(reader, path, n_cells=None), []))
    if not any(names):
        raise Refused(f"{path} is empty; its first line names the columns.", exit_code=USAGE)
    rows = _check_rows(reader, path, n_cells=len(names))
    return Table(names=names, rows=rows, delimiter=delimiter, is_marked=is_marked)


def _columnar_of(data: BinaryIO) -> Table:
    """The cells as texts, as a CSV file would have them. Raises UnreadableSource, also where the extra `data` is
    missing."""
    from backend.domain.source_data.columnar import read_columnar
    from backend.domain.source_data.columns import cell_text

    table = read_columnar(data, SourceFormat.PARQUET)
    cells = ([cell_text(row.values.get(name)) for name in table.columns] for row in table.rows)
    return Table(names=table.columns, rows=cells)


def _check_rows(reader: Any, path: str, *, n_cells: int | None) -> Iterator[list[str]]:
    """Rows of equal length; blank lines are passed over, and a row that ends early is filled up."""
    while True:
        try:
            row: list[str] = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise Refused(f"{path}, line {reader.line_num}: {error}.", exit_code=USAGE) from error
        if not row:
            continue
        if n_cells is not None and len(row) > n_cells:
            message = f"{path}, line {reader.line_num}: {len(row)} cells, and the first line names {n_cells} columns."
            raise Refused(message, exit_code=USAGE)
        yield row + [""] * ((n_cells or 0) - len(row))


def _objects(lines: Iterator[str], path: str) -> Iterator[dict[str, Any]]:
    for n, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{path}, line {n} is not JSON: {error}.", exit_code=USAGE) from error
        if not isinstance(row, dict):
            raise Refused(f"{path}, line {n} is no JSON object.", exit_code=USAGE)
        yield row


def neutral(cell: str) -> str:
    """The cell so that no spreadsheet runs it.

    >>> neutral("=1+1"), neutral("-3.5"), neutral("-3 lamps"), neutral("plain")
    ("'=1+1", '-3.5', "'-3 lamps", 'plain')
    """
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell


def distinct(name: str, taken: Container[str]) -> str:
    """The name of a new column: `kolm_` before it where another one has it.

    >>> distinct("answer", ["text"]), distinct("answer", ["text", "answer"])
    ('answer', 'kolm_answer')
    """
    return distinct(f"kolm_{name}", taken) if name in taken else name


@contextmanager
def row_writer(path: str | None, source: Table, names: Sequence[str]) -> Iterator[Callable[[Any], object]]:
    """Give a function that writes a row. A file gets the format of its name, standard output that of the source, and a
    file is there whole or not at all. Raises Refused."""
    if path is None:
        # a program reads cells as they are: the escapes of a terminal's stream would not mean the same there
        yield _writer(sys.stdout if sys.stdout.isatty() else raw(sys.stdout), names, source.delimiter)
        return
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS or (suffix == ".jsonl") != source.is_jsonl:
        wanted = "ends in .jsonl, as its input does" if source.is_jsonl else "ends in .csv or .tsv"
        raise Refused(f"{path}: --out {wanted}.", exit_code=USAGE)
    temporary = Path(f"{path}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            if source.is_marked and suffix == ".csv":
                file.write(BOM)
            is_kept = source.delimiter != "\t" and suffix == ".csv"
            yield _writer(file, names, source.delimiter if is_kept else _DELIMITER_OF[suffix])
        temporary.replace(path)
    except OSError as error:
        raise Refused(f"{path} cannot be written ({error.strerror}).", exit_code=USAGE) from error
    finally:
        temporary.unlink(missing_ok=True)


def _writer(file: TextIO, names: Sequence[str], delimiter: str) -> Callable[[Any], object]:
    if not names:
        return lambda row: print(json.dumps(row, ensure_ascii=False), file=file)
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(map(neutral, names))
    return lambda row: writer.writerow([neutral(cell) if isinstance(cell, str) else cell for cell in row])
