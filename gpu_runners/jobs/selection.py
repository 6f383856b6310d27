"""A select job's files in, its result out: embed the texts where they are texts, then `domain.selection.select`.

In the job's folder the parent has put `columns` and `rows` (`SelectJob`). The domain is pure mathematics in this very
process, so nothing can be handed over half done: a stopped runner gives the job back and another one begins anew.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.answers.candidates import text_key
from backend.domain.errors import InvalidInput
from backend.domain.jobs.runner_jobs import ROWS_OFFSET, SelectJob, SelectResult, SelectStage
from backend.domain.selection.select import Selection, cohesion_log, select
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.text_embedding import load_text_embedder

Emit = Callable[[dict[str, Any]], None]
Rows = NDArray[np.float32]
EVERY_S = 0.5
_TOKENIZED_AT_ONCE = 4_096
# columns with an entry for each row or pick; the result has those that are asked for row by row beside the report
_LONGEST_LIST = 1_000  # strata, one a label
_COLUMNS = ("cluster_of", "floor_dropped", "zero_rows", "nearest_pick_ppm", "cluster_sizes")


def select_files(
    job: SelectJob, *, folder: Path, base_dir: Path | None, emit: Emit, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """`{"result", "blobs"}`. Raises JobFailed with the domain's code for what cannot be selected from, JobStopped."""
    started = time.monotonic()
    progress = _Progress(emit, should_stop)
    columns = json.loads((folder / "columns").read_bytes())
    if job.width:
        rows, embedder, n_tokens = _read_rows(folder / "rows", job), "", 0
        keys = [f"{content} {name}" for content, name in zip(_row_hashes(rows), columns["ids"], strict=True)]
    else:
        texts = _read_texts(folder / "rows")
        rows, embedder, n_tokens = _embed(texts, base_dir=base_dir, progress=progress)
        keys = [f"{text_key(text)} {name}" for text, name in zip(texts, columns["ids"], strict=True)]
    if not len(rows) == len(columns["ids"]) == job.n:
        raise JobFailed(f"The job's inputs do not have its {job.n} rows.", code="invalid_job")
    scores = [0.0] * job.n if columns["scores"] is None else columns["scores"]
    progress.report(SelectStage.SELECTING, 0, job.n)
    try:
        selection = select(
            rows, scores, keys, k=job.k, labels=columns["labels"], on_progress=progress.report, **job.options
        )
    except InvalidInput as refused:
        raise JobFailed(refused.message, code=refused.code) from refused
    elapsed_ms = round((time.monotonic() - started) * 1000)
    result = _result(selection, embedder=embedder, n_tokens=n_tokens, runner_ms=elapsed_ms)
    return {"result": result.to_json(), "blobs": []}


class _Progress:
    """A reporter of at most two events a second, and the place where a runner that is to stop finds out."""

    def __init__(self, emit: Emit, should_stop: Callable[[], bool]) -> None:
        self._emit, self._should_stop = emit, should_stop
        self._stage, self._reported_at = "", 0.0

    def report(self, stage: str, done: int, total: int) -> None:
        if self._should_stop():
            raise JobStopped
        stage = stage if stage in set(SelectStage) else SelectStage.SELECTING
        now = time.monotonic()
        if stage == self._stage and now - self._reported_at < EVERY_S:
            return
        self._stage, self._reported_at = stage, now
        event = {"event": "progress", "step": done, "n_steps": total, "loss": None, "eta_s": None, "note": stage}
        self._emit(event)


def _read_rows(path: Path, job: SelectJob) -> Rows:
    """(n, width) float32."""
    numbers = np.fromfile(path, dtype="<f4", offset=ROWS_OFFSET).astype(np.float32, copy=False)
    return numbers.reshape(job.n, job.width)


def _read_texts(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        next(file)  # whose they are
        return [json.loads(line) for line in file]


def _embed(texts: Sequence[str], *, base_dir: Path | None, progress: _Progress) -> tuple[Rows, str, int]:
    """Unit rows, what made them, and how many tokens it read."""
    progress.report(SelectStage.EMBEDDING, 0, len(texts))
    embedder = load_text_embedder(n_texts=len(texts), base_dir=base_dir)
    rows = embedder.embed(texts, on_progress=lambda done, total: progress.report(SelectStage.EMBEDDING, done, total))
    distinct = list(dict.fromkeys(texts))  # equal texts are embedded, and paid for, once
    parts = (distinct[start : start + _TOKENIZED_AT_ONCE] for start in range(0, len(distinct), _TOKENIZED_AT_ONCE))
    return rows, embedder.identity, sum(len(ids) for part in parts for ids in embedder.tokenizer.ids(part))


def _row_hashes(rows: Rows) -> Iterator[str]:
    return (hashlib.blake2b(row.astype("<f4").tobytes(), digest_size=16).hexdigest() for row in rows)


def _is_long(value: object) -> bool:
    """A column that the report has gained since: an answer over the API stays small."""
    return isinstance(value, list) and len(value) > _LONGEST_LIST


def _result(selection: Selection, *, embedder: str, n_tokens: int, runner_ms: int) -> SelectResult:
    report = selection.report.to_json()
    return SelectResult(
        picks=list(selection.picks),
        nearest_pick_ppm=report["nearest_pick_ppm"],
        cluster_of=report["cluster_of"],
        floor_dropped=report["floor_dropped"],
        report={name: value for name, value in report.items() if name not in _COLUMNS and not _is_long(value)},
        log=cohesion_log(selection.report, "all rows"),
        embedder=embedder,
        n_tokens=n_tokens,
        runner_ms=runner_ms,
    )
