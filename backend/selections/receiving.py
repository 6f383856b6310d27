"""Rows as they come in: checked one by one and written to the blob store, never held as a whole.

What stays in memory is the ids, scores and labels: about 30 MB for 100,000 rows with short ids.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

from backend.blobs import BlobWriter, delete_blob, put_json
from backend.domain.errors import InvalidInput, Problem
from backend.domain.ids import Prefix, encode_id
from backend.selections.rows import BadRow, Row, row_of, row_of_line

MAX_ROWS = 100_000
MAX_NUMBERS = 102_400_000  # 100,000 embeddings of 1,024 numbers: 0.4 GB as float32
MAX_LINE = 256 * 1024
MAX_LINES = 2 * MAX_ROWS  # with the blank ones
MAX_LABELS = 1_000
MAX_PROBLEMS = 50
BOM = b"\xef\xbb\xbf"  # Windows' editors begin a UTF-8 file with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Rows in the blob store, under digests that no other selection has. `width` is 0 for texts."""

    tenant_id: UUID
    selection_id: UUID
    columns_sha256: str
    rows_sha256: str
    n: int
    width: int

    def forget(self) -> None:
        for digest in (self.columns_sha256, self.rows_sha256):
            delete_blob(self.tenant_id, digest)


class LineReader:
    """The lines of a body with their numbers, its bytes counted and digested."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._digest, self.n_bytes = stream, hashlib.sha256(), 0

    @property
    def sha256(self) -> bytes:
        return self._digest.digest()

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        """(number from 1, line); None for a line over MAX_LINE, which is passed over. Blank lines are not given."""
        number = 0
        while line := self._read():
            number += 1
            if number > MAX_LINES:
                raise _too_many(f"There are more than {MAX_LINES:,} lines.")
            if len(line) > MAX_LINE and not line.endswith(b"\n"):
                while (rest := self._read()) and not rest.endswith(b"\n"):
                    pass
                yield number, None
            elif stripped := (line.removeprefix(BOM) if number == 1 else line).strip():
                yield number, stripped

    def _read(self) -> bytes:
        part = self._stream.readline(MAX_LINE + 1)
        self._digest.update(part)
        self.n_bytes += len(part)
        return part


def receive_lines(tenant_id: UUID, selection_id: UUID, lines: LineReader) -> Received:
    """Raises InvalidInput (invalid_rows, too_many_candidates) naming the lines."""
    with _Intake(tenant_id, selection_id, word="line", pointer="") as intake:
        for number, line in lines:
            intake.take(number, line)
        return intake.finish()


def receive_values(tenant_id: UUID, selection_id: UUID, values: Iterable[object]) -> Received:
    """Receive rows as `receive_lines` does, for rows that came as parsed JSON."""
    with _Intake(tenant_id, selection_id, word="row", pointer="/rows") as intake:
        for number, value in enumerate(values):
            intake.take(number, value)
        return intake.finish()


class _Intake:
    """The rows as far as they are known. The first good row decides what all rows have."""

    def __init__(self, tenant_id: UUID, selection_id: UUID, *, word: str, pointer: str) -> None:
        self._tenant_id, self._selection_id = tenant_id, selection_id
        self._word, self._pointer = word, pointer
        self._ids: dict[str, int] = {}  # the number of the row that has it
        self._scores, self._labels = array("d"), list[str]()
        self._label_names: dict[str, str] = {}
        self._first: tuple[int, Row] | None = None
        self._problems: list[Problem] = []
        self._stack = ExitStack()

    def __enter__(self) -> "_Intake":
        self._writer = self._stack.enter_context(BlobWriter(self._tenant_id))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, number: int, value: object) -> None:
        """Check a row and write it. After the first problem rows are only checked, up to MAX_PROBLEMS of them."""
        if len(self._ids) == MAX_ROWS:
            raise _too_many(f"There are more than {MAX_ROWS:,} rows ({self._word} {number}).")
        try:
            row = self._row(value)
            self._compare(number, row)
        except BadRow as wrong:
            problem = Problem(
                pointer=f"{self._pointer}/{number}", message=f"{self._word.capitalize()} {number}: {wrong}"
            )
            self._problems.append(problem)
            if len(self._problems) == MAX_PROBLEMS:
                raise self._refusal() from None
            return
        self._keep(number, row)

    def finish(self) -> Received:
        """Everything is stored. Raises InvalidInput for the problems that were found."""
        if self._problems:
            raise self._refusal()
        if self._first is None:
            raise InvalidInput(
                f"There are no rows; send one JSON object a {self._word} with a text or an embedding.",
                code="invalid_rows",
            )
        first = self._first[1]
        rows_sha256 = self._writer.keep()
        columns = {
            "selection": encode_id(Prefix.SELECTION, self._selection_id),
            "ids": list(self._ids),
            "scores": None if first.score is None else self._scores.tolist(),
            "labels": None if first.label is None else self._labels,
        }
        return Received(
            tenant_id=self._tenant_id,
            selection_id=self._selection_id,
            columns_sha256=put_json(self._tenant_id, columns),
            rows_sha256=rows_sha256,
            n=len(self._ids),
            width=0 if first.embedding is None else len(first.embedding),
        )

    def _row(self, value: object) -> Row:
        if value is None and self._word == "line":
            raise BadRow(f"it has more than {MAX_LINE:,} bytes")
        return row_of_line(value) if isinstance(value, bytes) else row_of(value)

    def _compare(self, number: int, row: Row) -> None:
        earlier = self._ids.get(row.id or str(number))
        if earlier is not None:
            raise BadRow(f"its id {(row.id or str(number))[:60]!r} is that of {self._word} {earlier} too")
        if self._first is None:
            return
        at, first = self._first
        for name in ("text", "embedding", "score", "label"):
            has, had = getattr(row, name) is not None, getattr(first, name) is not None
            if has != had:
                here, there = ("a", "none") if has else ("no", "one")
                raise BadRow(
                    f'it has {here} "{name}" and {self._word} {at} has {there}; all rows have one, or none has'
                )
        if row.embedding is not None and first.embedding is not None and len(row.embedding) != len(first.embedding):
            widths = f"{len(row.embedding)} numbers, that of {self._word} {at} has {len(first.embedding)}"
            raise BadRow(f"its embedding has {widths}")
        if row.label is not None and len(self._label_names) == MAX_LABELS and row.label not in self._label_names:
            raise BadRow(f"it has the {MAX_LABELS + 1}th label; at most {MAX_LABELS} are supported")

    def _keep(self, number: int, row: Row) -> None:
        self._ids[row.id or str(number)] = number
        if row.score is not None:
            self._scores.append(row.score)
        if row.label is not None:
            self._labels.append(self._label_names.setdefault(row.label, row.label))
        if self._first is None:
            self._first = (number, row)
            self._write(self._header(row))
        if row.embedding is not None:
            width = len(row.embedding)
            if len(self._ids) * width > MAX_NUMBERS:
                raise _too_many(
                    f"There are more than {MAX_NUMBERS:,} numbers ({self._word} {number}: {width} a row); "
                    f"{MAX_NUMBERS // width:,} rows of this width fit."
                )
            self._write(row.embedding.astype("<f4").tobytes())
        elif row.text is not None:
            self._write(json.dumps(row.text, ensure_ascii=False).encode() + b"\n")

    def _header(self, row: Row) -> bytes:
        """Return the header that makes the bytes this selection's own, so that deleting them takes nothing from another
        one."""
        if row.embedding is not None:
            return self._selection_id.bytes
        return json.dumps(encode_id(Prefix.SELECTION, self._selection_id)).encode() + b"\n"

    def _write(self, data: bytes) -> None:
        if not self._problems:
            self._writer.write(data)

    def _refusal(self) -> InvalidInput:
        n = len(self._problems)
        count = f"{'At least ' if n == MAX_PROBLEMS else ''}{n} row(s) cannot be used (see `errors`)"
        message = f"{self._problems[0].message}. {count}, so nothing was stored."
        return InvalidInput(message, code="invalid_rows", problems=tuple(self._problems))


def _too_many(what: str) -> InvalidInput:
    return InvalidInput(f"{what} Send fewer, or select part by part.", code="too_many_candidates")
