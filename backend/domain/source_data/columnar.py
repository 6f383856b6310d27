"""Parquet and Arrow files by pyarrow, which only the extra `data` brings: nothing else here needs it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from backend.domain.source_data.records import Record, SourceFormat, UnreadableSource

MAX_BYTES = 2_000_000_000  # unpacked
BATCH = 2_000
NEEDS_PYARROW = "Parquet and Arrow files need pyarrow 26: install it beside kolm, whose extra `data` it is."


@dataclass(frozen=True, slots=True, kw_only=True)
class Columnar:
    columns: tuple[str, ...]
    rows: Iterator[Record]
    label_names: dict[str, tuple[str, ...]]


def read_columnar(source: BinaryIO, kind: SourceFormat) -> Columnar:
    """Read the columns that hold texts, numbers, lists and objects, a batch at a time; bytes (pictures) are left out.
    Raises UnreadableSource."""
    try:
        import pyarrow
    except ImportError:
        raise UnreadableSource(NEEDS_PYARROW) from None
    try:
        schema, batches = _parquet(source) if kind is SourceFormat.PARQUET else _arrow(source)
    except (pyarrow.ArrowException, OSError) as error:
        raise UnreadableSource(f"The file is no {kind} file that can be read: {str(error)[:200]}.") from None
    names = tuple(field.name for field in schema if not _is_bytes(field.type))
    return Columnar(columns=names, rows=_rows(batches, names), label_names=_label_names(schema.metadata))


def _parquet(source: BinaryIO) -> tuple[Any, Iterator[Any]]:
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    n_bytes = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    if n_bytes > MAX_BYTES:
        raise UnreadableSource(f"The file unpacks to {n_bytes / 1e9:.1f} GB; at most {MAX_BYTES / 1e9:.0f} are read.")
    names = [field.name for field in file.schema_arrow if not _is_bytes(field.type)]
    return file.schema_arrow, file.iter_batches(batch_size=BATCH, columns=names)


def _arrow(source: BinaryIO) -> tuple[Any, Iterator[Any]]:
    """Feather begins with a magic word; what `datasets` saves is a stream without one."""
    from pyarrow import ipc

    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    if is_file:
        reader = ipc.open_file(source)
        return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
    stream = ipc.open_stream(source)
    return stream.schema, iter(stream)


def _is_bytes(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _rows(batches: Iterator[Any], names: tuple[str, ...]) -> Iterator[Record]:
    import pyarrow

    number = 0
    try:
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield Record(number=number, values={name: row.get(name) for name in names})
    except (pyarrow.ArrowException, OSError) as error:
        raise UnreadableSource(f"The file is damaged after row {number}: {str(error)[:200]}.") from None


def _label_names(metadata: dict[bytes, bytes] | None) -> dict[str, tuple[str, ...]]:
    """The names behind class numbers, as Hugging Face's `datasets` writes them into a file's metadata."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return class_names(features)


def class_names(features: Any) -> dict[str, tuple[str, ...]]:
    """
    >>> class_names({"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}})
    {'label': ('neg', 'pos')}
    """
    if not isinstance(features, dict):
        return {}
    return {
        str(name): tuple(map(str, kind["names"]))
        for name, kind in features.items()
        if isinstance(kind, dict) and kind.get("_type") == "ClassLabel" and isinstance(kind.get("names"), list)
    }
