"""The rows of a file, whatever its form: the values that the readers give and the rest of this room takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.domain.errors import InvalidInput

# no width and no meaning; joiners, of which emojis and some scripts are made, are none of them
INVISIBLE = re.compile("[\u200b\u2060\ufeff]")


class SourceFormat(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    JSON_LINES = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"
    FRAME = "frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row; `number` counts from 1 and is what a spreadsheet or an editor shows: the line where it begins."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """A row that cannot be used. Problems of one `reason` are one problem to a reader, with examples."""

    number: int
    reason: str
    excerpt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The content of a file. `n_rows` counts its rows, usable or not; where it is larger than what was asked for,
    `records` is a sample of them. `notes` are sentences for whoever sent it."""

    format: SourceFormat
    columns: tuple[str, ...]
    records: tuple[Record, ...]
    n_rows: int
    problems: tuple[RowProblem, ...] = ()
    notes: tuple[str, ...] = ()
    label_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a column of class numbers

    @property
    def is_sample(self) -> bool:
        return self.n_rows > len(self.records) + len(self.problems)


class UnreadableSource(InvalidInput):
    """The file is none that can be read; the message says what it seems to be and what to do."""

    code = "unreadable_source"
