"""Rows as the JSON lines of an upload; an even sample of them where all are more than one holds."""

import json
from collections.abc import Iterable, Mapping

from backend.domain.source_data.sampling import sample_of

MOST_BYTES = 5_000_000


def fitting_lines(rows: Iterable[Mapping[str, str]], *, most_bytes: int = MOST_BYTES) -> list[bytes]:
    """Lines with their ends, in the rows' order, of at most `most_bytes` together."""
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
    while (n_bytes := sum(map(len, lines))) > most_bytes:
        lines = sample_of(lines, int(len(lines) * most_bytes / n_bytes * 0.99))
    return lines
