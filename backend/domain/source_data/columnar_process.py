"""Reads one Parquet or Arrow file from standard input in a process of its own and answers with one JSON object: rows as
JSON lines, or the fault. `python -m backend.domain.source_data.columnar_process MOST NAME`."""

import io
import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

from backend.domain.source_data.reading import read_records
from backend.domain.source_data.records import UnreadableSource

MEMORY_BYTES = 4_000_000_000  # of addresses, most of which pyarrow reserves and never touches
CPU_S = 20


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


def limit_itself() -> None:
    """Bound the process before it reads anything: by itself, since code between fork and exec is not safe in a web
    process with threads."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def main() -> None:
    limit_itself()
    answer = answer_of(sys.stdin.buffer.read(), most=int(sys.argv[1]), name=sys.argv[2])
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
