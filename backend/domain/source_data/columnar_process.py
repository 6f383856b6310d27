"""Reads one Parquet or Arrow file from standard input in a process of its own and answers with one JSON object: rows as
JSON lines, or the fault. `python -m backend.domain.source_data.columnar_process MOST NAME`."""

import io
import json
import sys
from collections.abc import Mapping
from typing import Any

from backend.domain.source_data.reading import read_records
from backend.domain.source_data.records import UnreadableSource


def answer_of(data: bytes, *, most: int, name: str) -> dict[str, Any]:
    try:
        records = read_records(io.BytesIO(data), name, most=most)
    except UnreadableSource as error:
        return {"fault": error.message}
    lines = (json.dumps(_plain(record.values), ensure_ascii=False, default=str) for record in records.records)
    return {
        "lines": "".join(line + "\n" for line in lines),
        "format": records.format,
        "columns": records.columns,
        "n_rows": records.n_rows,
        "label_names": records.label_names,
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Write not-a-number as a missing value."""
    return {name: None if isinstance(value, float) and value != value else value for name, value in values.items()}


def main() -> None:
    answer = answer_of(sys.stdin.buffer.read(), most=int(sys.argv[1]), name=sys.argv[2])
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
