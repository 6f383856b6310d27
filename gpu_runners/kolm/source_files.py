"""Data where a customer has it (a file of any form that kolm reads, the folder of a Hugging Face data set, a pandas
frame, a list) as `Source`: looked at by the code that the service looks with.

Imported when data is read: the domain's code costs pydantic, which a client that only asks does not need.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.source_data.columnar import class_names
from backend.domain.source_data.columns import ColumnMapping
from backend.domain.source_data.profile import TaskKind
from backend.domain.source_data.reading import MOST_ROWS, read_records, records_of
from backend.domain.source_data.records import Record, Records, UnreadableSource
from backend.domain.source_data.sampling import sample_of
from backend.domain.source_data.source import Source, look_at

from .documents import Unreadable
from .errors import InvalidRequest

Data = Any  # a path, a DataFrame, an iterable of mappings or texts
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".csv", ".tsv", ".json")
_ABOUT = ("dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json")
_PARTS = ("train", "validation", "valid", "val", "dev", "test")


def look(
    data: Data,
    *,
    input: str | Sequence[str] | None = None,
    output: str | None = None,
    group: str | None = None,
    split: str | None = None,
    kind: str | None = None,
    most: int = MOST_ROWS,
) -> Source:
    """Look at data under the columns that are named, or those that their names suggest. Raises Unreadable,
    InvalidRequest, TypeError."""
    try:
        records = read_data(data, most=most)
        if input is None and (output or group or split):
            guess = look_at(records).mapping
            output, group, split = output or guess.output, group or guess.group, split or guess.split
            others = [name for name in guess.inputs if name not in (output, group, split)]
            input = others or [name for name in records.columns if name not in (output, group, split)][:1]
        mapping = None
        if input is not None:
            inputs = (input,) if isinstance(input, str) else tuple(input)
            mapping = ColumnMapping(inputs=inputs, output=output, group=group, split=split)
        return look_at(records, mapping=mapping, kind=None if kind is None else TaskKind(kind))
    except UnreadableSource as error:
        raise Unreadable(f"{_name(data)}: {error.message}") from None
    except InvalidInput as error:
        raise InvalidRequest(f"{_name(data)}: {error.message}", code=error.code) from None


def _name(data: Data) -> str:
    return str(data) if isinstance(data, str | PathLike) else "The data"


def read_data(data: Data, *, most: int = MOST_ROWS) -> Records:
    """The rows of a path, a frame or a list. Raises UnreadableSource, Unreadable, TypeError."""
    if isinstance(data, str | PathLike):
        path = Path(data)
        return _read_folder(path, most) if path.is_dir() else _read_file(path, most)
    if hasattr(data, "columns") and hasattr(data, "to_dict"):
        if twice := [name for name, n in Counter(map(str, data.columns)).items() if n > 1]:
            raise UnreadableSource(f"Several columns are called “{twice[0]}”: rename all but one.")
        return records_of((_texts(row) for row in data.to_dict(orient="records")), most=most)
    if isinstance(data, Mapping | bytes) or not isinstance(data, Iterable):
        raise TypeError(f"data is a path, a DataFrame or a list of dicts or texts, not {type(data).__name__}")
    return records_of(({"text": row} if isinstance(row, str) else _texts(row) for row in data), most=most)


def _texts(row: Any) -> dict[str, Any]:
    """Column names as texts, numpy's scalars as Python's. Raises TypeError."""
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is a mapping or a text, not {type(row).__name__}")
    return {
        str(name): value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
        for name, value in row.items()
    }


def _read_file(path: Path, most: int) -> Records:
    try:
        with path.open("rb") as file:
            return read_records(file, path.name, most=most)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}.") from None


def _read_folder(folder: Path, most: int) -> Records:
    """The parts of a data set: each file's part stands in its name or its folder's (train-00000-of-00001.parquet,
    test/data-00000-of-00001.arrow)."""
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.name not in _ABOUT and path.is_file()
    )
    if not files:
        raise UnreadableSource(f"The folder holds no data files ({', '.join(SUFFIXES)}).")
    parts = [(part_of(path, folder), _read_file(path, most)) for path in files]
    names = {**_names_beside(folder), **parts[0][1].label_names}
    has_parts = len({part for part, _ in parts if part}) > 1
    records = [
        Record(number=record.number, values={**record.values, "split": part} if has_parts else record.values)
        for part, each in parts
        for record in each.records
    ]
    columns = tuple(dict.fromkeys(name for _, each in parts for name in each.columns))
    return replace(
        parts[0][1],
        columns=(*columns, "split") if has_parts else columns,
        records=tuple(sample_of(records, most)),
        n_rows=sum(each.n_rows for _, each in parts),
        problems=tuple(problem for _, each in parts for problem in each.problems),
        notes=(f"{len(files)} files", *dict.fromkeys(note for _, each in parts for note in each.notes)),
        label_names=names,
    )


def part_of(path: Path, folder: Path) -> str:
    """The part that a file belongs to, or "".

    >>> part_of(Path("set/data/train-00000-of-00002.parquet"), Path("set"))
    'train'
    """
    words = [*path.relative_to(folder).parts[:-1], path.stem]
    for word in reversed(words):
        for part in _PARTS:
            if word.lower() == part or word.lower().startswith((f"{part}-", f"{part}_", f"{part}.")):
                return part
    return ""


def _names_beside(folder: Path) -> dict[str, tuple[str, ...]]:
    """The names of classes in a `dataset_info.json`, where Arrow files have none of their own."""
    for path in sorted(folder.rglob("dataset_info.json")):
        try:
            features = json.loads(path.read_text(encoding="utf-8")).get("features")
        except (OSError, ValueError, AttributeError):
            continue
        if names := class_names(features):
            return names
    return {}
