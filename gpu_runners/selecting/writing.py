"""The output of `kolm select`: the files that were asked for, the cohesion log and the result."""

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from backend.domain.selection.select import cohesion_log
from gpu_runners.selecting.explain import explain
from gpu_runners.selecting.outcome import Outcome, json_line
from gpu_runners.selecting.progress import SelectProgress
from gpu_runners.selecting.request import EXIT_FAILED, Refused, Request, is_stream

_LISTED, _LISTED_LABELS = 5, 30


def write_files(request: Request, outcome: Outcome, progress: SelectProgress) -> None:
    if request.out is not None:
        _write(request.out, (f"{line}\n".encode() for line in outcome.kept_lines(progress.show)))
    if request.dropped is not None:
        _write(request.dropped, (f"{line}\n".encode() for line in outcome.dropped_lines(progress.show)))
    if request.report is not None:
        fields = ",\n".join(f"  {json.dumps(name)}: {json_line(v)}" for name, v in outcome.report_json().items())
        _write(request.report, [f"{{\n{fields}\n}}\n".encode()])
    if request.map is not None:
        progress.show("drawing the map", 0, 0)
        _write(request.map, [_map(outcome)])


def _map(outcome: Outcome) -> bytes:
    from gpu_runners.selecting.map import Mapped, picture_of
    from gpu_runners.selecting.svg import svg_of

    rows, report = outcome.rows, outcome.report
    picture = picture_of(
        Mapped(
            rows=outcome.units,
            picks=outcome.selection.picks,
            below_floor=report.floor_dropped,
            clusters=report.cluster_of,
            labels=rows.labels,
            scores=None if rows.scores is None else rows.scores.tolist(),
            ids=rows.ids,
            texts=rows.texts,
            method=report.method,
            k=report.k_requested,
        )
    )
    return svg_of(picture).encode("utf-8")


def _write(path: str, chunks: Iterable[bytes]) -> None:
    """Whole or not at all, where it is a file."""
    place = Path(path)
    try:
        if is_stream(path):
            with place.open("wb") as stream:
                stream.writelines(chunks)
            return
        handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.writelines(chunks)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(place)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}.", exit_code=EXIT_FAILED) from error


def print_log(request: Request, outcome: Outcome) -> None:
    """The cohesion log and what else the reader should know, on standard error."""
    report, rows = outcome.report, outcome.rows
    name = "standard input" if request.file == "-" else Path(request.file).name
    print(cohesion_log(report, name), file=sys.stderr)
    for stratum in report.strata[:_LISTED_LABELS]:
        groups = f"natural clusters {stratum.k_natural:,}, near-duplicate groups {stratum.n_groups:,}"
        kept = f"{stratum.k_actual:,} of {stratum.n:,} kept"
        print(f"  label {stratum.label!r}: {kept}, {groups}, split {stratum.severity}", file=sys.stderr)
    warnings = []
    if report.method_reason:
        warnings.append(f"auto chose {report.method}: {report.method_reason}")
    if rows.scores is None:
        warnings.append("no row has a score, so all count the same and the score floor drops none")
    if outcome.k_asked > report.k_requested:
        warnings.append(f"K was dropped from {outcome.k_asked:,} to {report.k_requested:,}, the near-duplicate groups")
    if report.zero_rows:
        names = ", ".join(outcome.name(i) for i in report.zero_rows[:_LISTED])
        warnings.append(f"{len(report.zero_rows):,} rows have an embedding of length 0 (distance 1 to all): {names}")
    if report.n_twin_picks:
        warnings.append(
            f"{report.n_twin_picks:,} picks repeat an earlier pick's embedding; --drop-k would leave them out"
        )
    for warning in warnings:
        print(f"  note: {warning}", file=sys.stderr)


def result_lines(request: Request, outcome: Outcome, progress: SelectProgress) -> list[str]:
    """The lines for standard output: the kept rows, or explanations where they were asked for, or one JSON object with
    everything."""
    places = {name: at for at, name in enumerate(outcome.rows.ids)}
    explained = {name: explain(outcome, places[name]) for name in request.explain}
    if request.as_json:
        picks = [outcome.rows.ids[i] for i in outcome.selection.picks]
        return [json_line({"picks": picks, "report": outcome.report_json(), "explanations": explained})]
    if explained:
        return ["\n  ".join(sentences) for sentences in explained.values()]
    return [] if request.out is not None else list(outcome.kept_lines(progress.show))
