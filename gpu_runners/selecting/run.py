"""`kolm select`: read rows, embed them where they are texts, select, and write what was kept and why.

Everything happens on this machine. Exit codes: 2 bad input, 1 what is not the input's fault.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from backend.domain.errors import InvalidInput
from backend.domain.selection.pool import checked_pool
from backend.domain.selection.select import Selection
from backend.domain.selection.select import select as select_rows
from gpu_runners.errors import JobFailed
from gpu_runners.selecting.lines import json_row, text_row
from gpu_runners.selecting.outcome import Outcome
from gpu_runners.selecting.progress import SelectProgress, progress_on
from gpu_runners.selecting.request import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, Refused, Request, check
from gpu_runners.selecting.rows import BadRows, RowSet, read_embeddings, read_rows, refuse_large
from gpu_runners.selecting.writing import print_log, result_lines, write_files


def select(request: Request) -> int:
    try:
        check(request)
        with progress_on(sys.stderr) as progress:
            rows = _read(request, progress)
            outcome = _select(request, rows, progress)
            write_files(request, outcome, progress)
            result = result_lines(request, outcome, progress)
        print_log(request, outcome)
        for line in result:
            print(line)
    except Refused as error:
        print(f"kolm: {error}", file=sys.stderr)
        return error.exit_code
    except (BadRows, InvalidInput) as error:
        print(f"kolm: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_OK


def _read(request: Request, progress: SelectProgress) -> RowSet:
    """All rows, with embeddings where they came with some."""
    name = "standard input" if request.file == "-" else request.file
    try:
        with _open(request.file) as stream:
            refuse_large(stream, name)

            def count_lines(n_lines: int) -> None:
                progress.show("reading lines", n_lines, 0)

            if request.text_lines:
                return read_rows(stream, name, text_row, on_line=count_lines)
            has_file = request.embeddings is not None
            rows = read_rows(
                stream, name, lambda line, _: json_row(line, has_embeddings_file=has_file), on_line=count_lines
            )
    except OSError as error:
        raise Refused(f"{name} cannot be read: {error.strerror or error}.") from error
    if request.embeddings is None:
        return rows
    return replace(rows, embeddings=read_embeddings(Path(request.embeddings), n=len(rows)))


def _open(file: str) -> AbstractContextManager[BinaryIO]:
    """Standard input is not ours to close."""
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")


def _select(request: Request, rows: RowSet, progress: SelectProgress) -> Outcome:
    unknown = [name for name in request.explain if name not in rows.ids]
    if unknown:
        raise Refused(f"--explain {unknown[0]}: there is no row with this id.")
    if rows.embeddings is None:
        rows = _embed(rows, progress)
    assert rows.embeddings is not None
    scores = [0.0] * len(rows) if rows.scores is None else rows.scores.tolist()
    keys = rows.keys()

    def run_selection(k: int) -> Selection:
        return select_rows(
            rows.embeddings,  # type: ignore[arg-type]
            scores,
            keys,
            k=k,
            labels=rows.labels,
            stratify=request.stratify,
            method=request.method,
            linkage=request.linkage,
            score_floor=request.score_floor,
            diversity_lambda=request.diversity_lambda,
            penalty=request.penalty,
            min_distance=request.min_distance,
            overcluster=request.overcluster,
            seed=request.seed,
            is_traffic=request.is_traffic,
            on_progress=progress.show,
        )

    k = -(-len(rows) // 3) if request.k is None else request.k
    selection = run_selection(k)
    if request.drop_k and selection.report.n_groups < k:
        selection = run_selection(selection.report.n_groups)
    units = checked_pool(rows.embeddings, scores, keys, rows.labels).rows
    return Outcome(rows=rows, units=units, selection=selection, k_asked=k)


def _embed(rows: RowSet, progress: SelectProgress) -> RowSet:
    try:
        from gpu_runners.config import base_dir
        from gpu_runners.models.text_embedding import load_text_embedder

        embedder = load_text_embedder(n_texts=len(rows), base_dir=base_dir())
        embeddings = embedder.embed(rows.texts, on_progress=lambda done, n: progress.show("embedding", done, n))
    except ImportError as error:
        raise Refused(
            f"{error.name} is needed to embed texts: install kolm with its extra 'runner' (docs/client.md), or bring "
            "embeddings of your own.",
            exit_code=EXIT_FAILED,
        ) from error
    except JobFailed as error:
        raise Refused(error.message, exit_code=EXIT_FAILED) from error
    return replace(rows, embeddings=embeddings)
