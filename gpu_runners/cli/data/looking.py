"""A look at a file of data that is slow to read says so before it begins."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

ANNOUNCED_BYTES = 20_000_000  # about a second


def look_at_file(data: str, columns: Mapping[str, Any]) -> "Source":
    """Read and look at a file or a folder. Raises KolmError."""
    from gpu_runners.kolm.errors import InvalidRequest
    from gpu_runners.kolm.source_files import look

    if data == "-":
        raise InvalidRequest("Standard input is not read here: save the rows as a file, and name the file.")
    path = Path(data)
    n_bytes = path.stat().st_size if path.is_file() else 0
    if n_bytes >= ANNOUNCED_BYTES:
        print(f"reading {data} ({n_bytes / 1e6:,.0f} MB) ...", file=sys.stderr, flush=True)
    return look(data, **columns)
