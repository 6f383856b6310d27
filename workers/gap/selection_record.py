"""The records that a selection leaves behind: `Slice.selection`, the event `selection.report`, and the seed's
cluster-gap log as text."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.compiles.events import append_event
from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import own
from backend.domain.answers.candidates import Origin
from backend.domain.selection.select import Selection, SelectionReport, cohesion_log
from workers.step.durable import CompileRun

log = logging.getLogger("kolm.selection")

PER_CANDIDATE = frozenset({"cluster_of", "floor_dropped", "nearest_pick_ppm", "picks"})  # as long as the pool
_FORCED = (  # what the split at the K that was asked for looked like
    "k_natural",
    "silhouette_natural_ppm",
    "silhouette_forced_ppm",
    "min_inter_cluster_ppm",
    "n_groups",
    "gap_detected",
    "severity",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`first` is the selection at the K that was asked for; `selection` is what counts, at the K it came to."""

    first: Selection
    selection: Selection
    mitigation: str  # none, drop_k, resynthesize


def selection_record(slice_row: Slice, rows: Sequence[Candidate], chosen: Chosen) -> dict[str, Any]:
    """The report of the selection that counts, in integers, with each pick; that of the one at the K that was asked for
    under `at_k_requested` where it is another."""
    first, report = chosen.first.report, chosen.selection.report
    record = report.to_json() | _outcome(slice_row, first, chosen.mitigation, n_picks=len(chosen.selection.picks))
    record["picks"] = [
        {
            "cand_sha256": hashlib.sha256(rows[i].text.encode()).hexdigest(),
            "cluster": report.cluster_of[i],
            "score_ppm": _ppm(rows[i].score),
            "nn_distance_ppm": _ppm(distance),
            "from_cache": rows[i].origin == Origin.DRAFT,
        }
        for i, distance in zip(chosen.selection.picks, report.nearest_pick, strict=True)
    ]
    if chosen.selection is not chosen.first:
        record["at_k_requested"] = without_columns(first.to_json())
    return record


def split_record(slice_row: Slice, report: SelectionReport) -> dict[str, Any]:
    """The record of a slice that was made into two: why, and that it picks nothing itself."""
    forced = without_columns(report.to_json())
    record = {name: forced[name] for name in ("requested_method", "method", "n", *_FORCED)}
    return record | _outcome(slice_row, report, "split", n_picks=0) | {"picks": [], "at_k_requested": forced}


def _outcome(slice_row: Slice, first: SelectionReport, mitigation: str, *, n_picks: int) -> dict[str, Any]:
    text = cohesion_log(replace(first, k_actual=n_picks), slice_row.name)
    rounds = sum(entry["reaction"] == "resynthesize" for entry in own(slice_row))
    if mitigation != "none" or rounds:
        text += f"\n  mitigation: {mitigation}; rounds of resynthesis: {rounds}"
    return {
        "mitigation": mitigation,
        "resynth_rounds": rounds,
        "signal": slice_row.signal,
        "k_requested": slice_row.k_requested,
        "k_actual": n_picks,
        "log": text,
    }


def at_k_requested(record: dict[str, Any]) -> dict[str, Any]:
    """The report on the split at the K that was asked for."""
    forced: dict[str, Any] = record.get("at_k_requested", record)
    return forced


def without_columns(report: dict[str, Any]) -> dict[str, Any]:
    """The report without what is as long as the pool: that stands in the candidates."""
    return {name: value for name, value in report.items() if name not in PER_CANDIDATE}


def emit_report(run: CompileRun, slice_row: Slice) -> None:
    """The event of a slice's selection, in the transaction of its picks, and a line in the worker's log, which holds no
    word of the tenant's."""
    record = slice_row.selection or {}
    forced = at_k_requested(record)
    data = {
        "slice": slice_row.name,
        "n": record["n"],
        "k_requested": slice_row.k_requested,
        "k_actual": slice_row.k_actual,
        "k_natural": forced["k_natural"],
        "silhouette_natural_ppm": forced["silhouette_natural_ppm"],
        "silhouette_forced_ppm": forced["silhouette_forced_ppm"],
        "min_inter_cluster_ppm": forced["min_inter_cluster_ppm"],
        "n_groups": forced["n_groups"],
        "gap_detected": forced["gap_detected"],
        "severity": forced["severity"],
        "method": record["method"],
        "mitigation": record["mitigation"],
        "resynth_rounds": record["resynth_rounds"],
        "picks_sha256": record.get("picks_sha256"),
        "log": record["log"],
    }
    append_event(run.tenant_id, run.compile_id, "selection.report", data)
    numbers = " ".join(f"{name}={value}" for name, value in data.items() if name not in ("slice", "log"))
    log.info("selection of compile %s, slice %d: %s", run.compile_id, slice_row.position, numbers)


def _ppm(value: float | None) -> int | None:
    return None if value is None else round(value * 1_000_000)
