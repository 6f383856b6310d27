"""Files as customers send them, read into `Records` and stored as uploads.

Columnar files are decoded by a C++ library, which a hostile file may make allocate or crash: a process of its own with
a limit on memory and time reads them, and the web process gets JSON lines.
"""

import io
import json
import subprocess
import sys
from dataclasses import replace
from uuid import UUID

from django.conf import settings

from backend.compiles.models import Upload
from backend.compiles.uploads.rows import MAX_BYTES, UploadPurpose, store_upload
from backend.domain.source_data.profile import TaskKind
from backend.domain.source_data.reading import read_records
from backend.domain.source_data.records import Records, UnreadableSource
from backend.domain.source_data.source import Source
from backend.domain.source_data.upload_lines import fitting_lines

MAX_ROWS = 20_000  # of one file: what a page can wait for
MAX_LINES = 1_000_000  # of one file: a line costs 2.5 us however short it is
PATIENCE_S = 20
_COLUMNAR = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")


def read_source(data: bytes, name: str) -> Records:
    """Raises UnreadableSource."""
    if not data.startswith(_COLUMNAR) and not name.lower().endswith((".parquet", ".arrow", ".feather")):
        _check_lines(data)
        return read_records(io.BytesIO(data), name, most=MAX_ROWS)
    command = (sys.executable, "-m", "backend.domain.source_data.columnar_process", str(MAX_ROWS), name)
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=PATIENCE_S,
            cwd=settings.ROOT,
            env={"PATH": "", "OMP_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableSource(f"The file takes more than {PATIENCE_S} s to read; send a part of it.") from None
    answer = json.loads(done.stdout) if done.returncode == 0 else None
    if answer is None:
        raise UnreadableSource("The file cannot be read: it is damaged, or takes too much memory.")
    if "fault" in answer:
        raise UnreadableSource(answer["fault"])
    records = read_records(io.BytesIO(answer["lines"].encode()), "rows.jsonl", most=MAX_ROWS)
    return replace(
        records,
        format=answer["format"],
        columns=tuple(answer["columns"]),
        n_rows=answer["n_rows"],
        label_names={column: tuple(names) for column, names in answer["label_names"].items()},
    )


def _check_lines(data: bytes) -> None:
    """Refuse millions of tiny rows before they hold a process of the web for a minute; a JSON list is one value,
    however many lines it is written on."""
    n_lines = max(data.count(b"\n"), data.count(b"\r"))
    if n_lines > MAX_LINES and not data[:64].lstrip().startswith(b"["):
        raise UnreadableSource(
            f"The file has {n_lines:,} lines and at most {MAX_LINES:,} are read here. On your machine `kolm init` reads"
            " a file of any size and uploads an even sample of its rows."
        )


def purpose_of(source: Source) -> UploadPurpose:
    return UploadPurpose.CAPTURES if source.profile.kind is TaskKind.INPUTS else UploadPurpose.EXAMPLES


def store_source(tenant_id: UUID, source: Source, *, name: str) -> Upload:
    """Store the rows of a file as an upload of the purpose that they fit. Where they are more than an upload holds, an
    even sample of them is stored. Raises InvalidInput."""
    lines = fitting_lines((row.to_json() for row in source.rows), most_bytes=MAX_BYTES)
    return store_upload(tenant_id, purpose_of(source), b"".join(lines), name=name)
