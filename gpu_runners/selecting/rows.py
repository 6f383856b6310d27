"""The input of `kolm select`, read whole: JSON lines, or plain lines of text, or JSON lines beside a .npy file of
embeddings.

A file is refused from its size before a byte of it is read; what can only be counted (a pipe) is counted. Lines that
cannot be used are named by their numbers, up to MAX_PROBLEMS of them at once.
"""

import hashlib
import os
import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from backend.domain.answers.candidates import text_key
from gpu_runners.selecting.lines import MAX_LINE_BYTES, BadLine, Row, float32_rows

MAX_ROWS = 100_000
MAX_BYTES = 2_000_000_000
MAX_CELLS = 200_000_000  # rows x width: 100,000 embeddings of 2,000 numbers, 0.8 GB as float32
MAX_PROBLEMS = 10
_BLOCK = 4_096

Rows = NDArray[np.float32]
Floats = NDArray[np.float64]
OnLine = Callable[[int], None]
ReadLine = Callable[[bytes, int], Row]


class BadRows(Exception):
    """The input cannot be selected from; the message says where and why, one line for each problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSet:
    """All rows in the order of the file. `embeddings` (n, d) float32, None until the texts have been embedded; `scores`
    (n,) float64 and `labels` are None where no row has one; `texts` and `rests` hold "" where a row has none."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    embeddings: Rows | None
    scores: Floats | None
    labels: tuple[str, ...] | None
    rests: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def keys(self) -> list[str]:
        """The keys that break ties: the content's hash, then the id. Neither the order of the lines nor, among
        different contents, the naming of the rows decides."""
        if self.embeddings is None or all(self.texts):
            contents = [text_key(text) for text in self.texts]
        else:
            contents = [_row_key(row) for row in self.embeddings]
        return [f"{content} {name}" for content, name in zip(contents, self.ids, strict=True)]


def refuse_large(stream: BinaryIO, name: str) -> None:
    """Raise BadRows for a regular file over MAX_BYTES, from its size alone."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # nothing with a size behind it: counted while it is read
        return
    if stat.S_ISREG(status.st_mode) and status.st_size > MAX_BYTES:
        _refuse(
            f"{name} has {status.st_size:,} bytes; at most {MAX_BYTES:,} are read (100,000 embeddings of 1,536 "
            "numbers). Select part by part, or pass the embeddings as a .npy file of float32 with --embeddings."
        )


def read_rows(stream: BinaryIO, name: str, read_line: ReadLine, *, on_line: OnLine | None = None) -> RowSet:
    """Every line that is not blank, through `read_line`. Raises BadRows."""
    collected = _Collected(name=name)
    for number, line in _lines(stream, name):
        try:
            collected.take(number, read_line(line, number))
        except BadLine as problem:
            collected.note(number, str(problem))
        if on_line is not None and number % 1_000 == 0:
            on_line(number)
    return collected.row_set()


def read_embeddings(path: Path, *, n: int) -> Rows:
    """(n, d) float32 from a .npy file. Raises BadRows; never unpickles."""
    try:
        with path.open("rb") as stream:
            refuse_large(stream, str(path))
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadRows(f"{path} cannot be read as a .npy file: {error}.") from error
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "fiu":
        _refuse(f"{path} is not a table of numbers, one row a line.")
    if len(values) != n:
        _refuse(f"{path} has {len(values):,} rows and the input {n:,}; they go together line by line.")
    _refuse_cells(str(path), n, values.shape[1])
    out = np.empty(values.shape, dtype=np.float32)
    for start in range(0, n, _BLOCK):
        block = np.asarray(values[start : start + _BLOCK], dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            _refuse(f"{path}: row {start + int(bad[0]) + 1} has a number that is not finite.")
        out[start : start + _BLOCK] = float32_rows(block)
    return out


@dataclass(slots=True)
class _Collected:
    """The rows so far, by column, with what can only be said about several of them."""

    name: str
    lines: list[int] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)  # each with its line
    texts: list[str | None] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    rests: list[str] = field(default_factory=list)
    cells: "array[float]" = field(default_factory=lambda: array("f"))
    width: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, number: int, row: Row) -> None:
        if len(self.ids) == MAX_ROWS:
            _refuse(f"{self.name} has more than {MAX_ROWS:,} rows (line {number}), the most that are selected from.")
        if row.id in self.ids:
            raise BadLine(f"its id {_short(row.id)} is that of line {self.ids[row.id]} too")
        if self.lines:
            self._compare(row)
        width = 0 if row.embedding is None else len(row.embedding)
        if self.lines and width != self.width:
            raise BadLine(f"its embedding has {width} numbers, that of line {self.lines[0]} has {self.width}")
        _refuse_cells(self.name, len(self.ids) + 1, width)
        if row.embedding is not None:
            self.cells.frombytes(row.embedding.tobytes())
        self.width, self.ids[row.id] = width, number
        self.lines.append(number)
        self.texts.append(row.text)
        self.scores.append(row.score)
        self.labels.append(row.label)
        self.rests.append(row.rest)

    def _compare(self, row: Row) -> None:
        """A field that some rows have and others lack is refused: neither a 0 nor a gap is what was meant."""
        columns = (("text", row.text, self.texts), ("score", row.score, self.scores), ("label", row.label, self.labels))
        for name, value, column in columns:
            if (value is None) != (column[0] is None):
                here, there = ("a", "none") if value is not None else ("no", "one")
                raise BadLine(f'it has {here} "{name}", line {self.lines[0]} has {there}')

    def note(self, number: int, problem: str) -> None:
        self.problems.append(f"line {number}: {problem}")
        if len(self.problems) == MAX_PROBLEMS:
            self.problems.append("reading stopped here; there may be more")
            self.refuse_problems()

    def refuse_problems(self) -> None:
        if len(self.problems) == 1:
            _refuse(f"{self.name}, {self.problems[0]}.")
        if self.problems:
            _refuse(f"{self.name} has lines that cannot be used.\n  " + "\n  ".join(self.problems))

    def row_set(self) -> RowSet:
        self.refuse_problems()
        if not self.ids:
            _refuse(f"{self.name} has no rows: there is nothing to select from.")
        return RowSet(
            ids=tuple(self.ids),
            texts=tuple(text or "" for text in self.texts),
            embeddings=np.frombuffer(self.cells, dtype=np.float32).reshape(-1, self.width) if self.width else None,
            scores=None if self.scores[0] is None else np.array(self.scores, dtype=np.float64),
            labels=None if self.labels[0] is None else tuple(label or "" for label in self.labels),
            rests=tuple(self.rests),
        )


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    n_bytes, number = 0, 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number, n_bytes = number + 1, n_bytes + len(line)
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) > MAX_LINE_BYTES:
            _refuse(f"{name}, line {number}: it has more than {MAX_LINE_BYTES:,} bytes.")
        if n_bytes > MAX_BYTES:
            _refuse(f"{name} has more than {MAX_BYTES:,} bytes (line {number}), the most that are read.")
        if line.strip():
            yield number, line


def _refuse_cells(name: str, n: int, width: int) -> None:
    if n * width > MAX_CELLS:
        _refuse(f"{name} has more than {MAX_CELLS:,} numbers ({n:,} rows of {width:,}), the most that are held.")


def _row_key(row: Rows) -> str:
    return hashlib.blake2b(row.astype("<f4").tobytes(), digest_size=16).hexdigest()


def _short(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:59] + "…")


def _refuse(message: str) -> NoReturn:
    raise BadRows(message)
