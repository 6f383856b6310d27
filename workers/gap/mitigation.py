"""The reactions to a slice that holds fewer distinct candidates than the K picks asked of it: `sampling.on_gap`, in
order.

A gap is acted on only when the split at K is degenerate: the pool has fewer near-duplicate groups than min(K, n), so
some picks would be variants of others; and not where K = N asks for all of them. A mere warning is reported and nothing
is done. What cannot help here is passed over, with the reason, and the next is tried:

    resynthesize   N/2 more candidates, hotter; at most `resynthesis_rounds` times, within the budget, not for captures,
                   not after a round that added under 5 % new groups or that the teacher refused
    split_slice    two slices in its place (`splitting`); within the budget, not for captures, nor a half, nor one group
    drop_k         K' = the number of near-duplicate groups (the silhouette's was measured to lose up to 12 points)
    fail           the compile ends

When nothing is left, K stays as asked and the warning says how many picks are variants. Every step is a transaction on
the slice's row, so a process that dies is followed by one that goes on from there.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import note, own, passed_over, times
from backend.domain.answers.candidates import Signal
from backend.domain.errors import CustomerError
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.options import Method
from backend.domain.selection.select import Selection, SelectionReport, select
from workers.candidates.generation import hotter_ppm, later_round_size
from workers.candidates.headroom import can_spare, worst_round
from workers.candidates.ranking import stack
from workers.gap.other_slices import labels_beside
from workers.gap.selection_record import Chosen
from workers.gap.splitting import plan_division, split
from workers.scoring.verifier import has_ranking
from workers.step.durable import CompileRun

LEAST_GROWTH = 0.05  # of the groups there were, by which a round must add new ones to be worth another
LEAST_FORM = 0.5  # of a capture that stays in the pool while enough others are left
REPRESENTS = frozenset({Method.AUTO, Method.REPRESENTATIVE})
BASELINES = frozenset({Method.RANDOM, Method.ALL})  # they show what selection does by not doing it

_REASONS = {
    "captured": "captures are what the customer sent",
    "rounds_used": "all rounds of resynthesis are used",
    "stopped_growing": "the last round added under 5 % new groups",
    "refused": "the teacher refused the last round",
    "budget": "the budget does not cover it and the rest of the compile",
    "already_split": "the slice is a half of one that was split",
    "one_group": "the candidates are one group, which cannot be split",
}


def choose(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate]) -> Chosen | None:
    """Select, and answer a degenerate split as `on_gap` says. None: the slice has changed (another round was opened, or
    it was split) and is to be looked at again. Raises CustomerError (cluster_gap)."""
    first = select_as_asked(run, slice_row, rows, slice_row.k_requested)
    as_asked = Chosen(first=first, selection=first, mitigation="resynthesize" if _n_own_rounds(slice_row) else "none")
    if not is_degenerate(first.report) or slice_row.k_requested >= slice_row.n_candidates:  # all of them were asked for
        return as_asked
    for mitigation in run.spec.sampling.on_gap:
        if passed_over(slice_row, mitigation):
            continue
        match mitigation:
            case "fail":
                raise _failure(slice_row, first.report)
            case "drop_k":
                return _drop_k(run, slice_row, rows, first)
            case "resynthesize":
                reason = _why_no_round(run, slice_row, first.report)
                if reason is None:
                    _open_round(run, slice_row, first.report)
                    return None
            case "split_slice":
                division = plan_division(run, slice_row, rows)
                if not isinstance(division, str):
                    split(run, slice_row, division, first.report)
                    return None
                reason = division
        _pass_over(run, slice_row, mitigation, reason)
    return as_asked


def is_degenerate(report: SelectionReport) -> bool:
    return report.requested_method not in BASELINES and report.n_groups < min(report.k_requested, report.n)


def select_as_asked(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate], k: int, **instead: Any) -> Selection:
    """Select as the spec says, but for `instead`. Captures are traffic: `auto` represents them."""
    sampling = run.spec.sampling
    options: dict[str, Any] = {
        "method": sampling.method,
        "linkage": sampling.linkage,
        "score_floor": _floor(run, slice_row, rows),
        "diversity_lambda": sampling.diversity_lambda,
        "penalty": sampling.penalty,
        "min_distance": sampling.min_distance,
        "overcluster": sampling.overcluster,
        "seed": sampling.seed,
        "is_traffic": slice_row.is_captured,
        **labels_beside(run, slice_row, len(rows)),
    }
    return select(
        stack([row.embedding for row in rows]),
        [0.0 if row.score is None else row.score for row in rows],
        [row.text_key for row in rows],
        k=k,
        on_progress=lambda *_: run.stop.check(),  # a large pool takes minutes
        **options | instead,
    )


def _floor(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate]) -> float | None:
    """The spec's floor, else of captures the share whose form is no input's: form sets aside, it ranks nothing."""
    sampling = run.spec.sampling
    by_form = slice_row.is_captured and slice_row.signal == Signal.VERIFIER and not has_ranking(run.spec)
    if sampling.score_floor is not None or not by_form or sampling.method not in REPRESENTS:
        return sampling.score_floor
    return sum(1 for row in rows if (row.score or 0.0) < LEAST_FORM) / max(1, len(rows))


def _failure(slice_row: Slice, report: SelectionReport) -> CustomerError:
    return CustomerError(
        f"Slice {slice_row.name!r} has {report.n_groups} distinct groups for K = {slice_row.k_requested}. "
        "Lower k_select, widen the slice's hint, or put resynthesize, split_slice or drop_k in place of fail in "
        "on_gap.",
        code="cluster_gap",
    )


def _drop_k(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate], first: Selection) -> Chosen:
    """Select at K' = the groups there are; again where the floor, which bites deeper at a smaller K, leaves fewer
    still. What `auto` is to take then is known: the best of each group, above the floor it chose at K."""
    is_auto = first.report.requested_method == Method.AUTO
    best_of_each: dict[str, Any] = {"method": Method.TWO_STEP, "linkage": Linkage.AVERAGE, "overcluster": 1.0}
    fixed = best_of_each | {"score_floor": first.report.score_floor} if is_auto else {}
    selection = first
    while is_degenerate(selection.report):
        selection = select_as_asked(run, slice_row, rows, max(1, selection.report.n_groups), **fixed)
    if is_auto:
        reason = "K was dropped to the number of near-duplicate groups: the best of each was kept."
        report = replace(selection.report, requested_method=Method.AUTO, method_reason=reason)
        selection = replace(selection, report=report)
    return Chosen(first=first, selection=selection, mitigation="drop_k")


def _why_no_round(run: CompileRun, slice_row: Slice, report: SelectionReport) -> str | None:
    """The reason why another round of candidates cannot help; None where it may."""
    if slice_row.is_captured:
        return "captured"
    if own(slice_row) and own(slice_row)[-1]["reaction"] == "refused":
        return "refused"
    if times(slice_row, "resynthesize") >= run.spec.sampling.resynthesis_rounds:
        return "rounds_used"
    before = [entry["n_groups"] for entry in own(slice_row) if entry["reaction"] == "resynthesize"]
    if before and report.n_groups - before[-1] < LEAST_GROWTH * before[-1]:
        return "stopped_growing"
    return None if can_spare(run, worst_round(run, slice_row, later_round_size(slice_row))) else "budget"


def _n_own_rounds(slice_row: Slice) -> int:
    return sum(entry["reaction"] == "resynthesize" for entry in own(slice_row))


def _open_round(run: CompileRun, slice_row: Slice, report: SelectionReport) -> None:
    """One more, hotter round of candidates for this slice."""
    with run.transaction():
        slice_row.round += 1
        slice_row.is_synthesized = False
        slice_row.temperature_ppm = hotter_ppm(slice_row)
        note(slice_row, "resynthesize", n_groups=report.n_groups)
        slice_row.save()
        run.warn(
            "cluster_gap",
            f"Slice {slice_row.name}: {report.n_groups} distinct groups for K = {slice_row.k_requested}; asking for "
            f"{later_round_size(slice_row)} more candidates at temperature {slice_row.temperature_ppm / 1e6:.1f}.",
            slice=slice_row.name,
        )


def _pass_over(run: CompileRun, slice_row: Slice, mitigation: str, reason: str) -> None:
    with run.transaction():
        note(slice_row, "passed_over", mitigation=mitigation, reason=reason)
        slice_row.save()
        run.warn(
            "mitigation_passed_over",
            f"Slice {slice_row.name}: {mitigation} is passed over: {_REASONS[reason]}.",
            slice=slice_row.name,
            mitigation=mitigation,
            reason=reason,
        )


def warn_of_gap(run: CompileRun, slice_row: Slice, chosen: Chosen) -> None:
    """Warn, in the transaction of the picks, of what the pool allowed, and what is kept."""
    first, kept = chosen.first.report, chosen.selection.report
    if not first.gap_detected or first.requested_method in BASELINES:
        return
    n_variants = kept.k_actual - kept.n_groups if is_degenerate(kept) else 0
    variants = f"; at least {n_variants} of them are variants of others" if n_variants > 0 else ""
    run.warn(
        "cluster_gap",
        f"Slice {slice_row.name}: {first.k_natural} natural clusters, {first.n_groups} distinct groups for K = "
        f"{slice_row.k_requested}; keeping {kept.k_actual} (mitigation: {chosen.mitigation}){variants}.",
        slice=slice_row.name,
        k_requested=slice_row.k_requested,
        k_actual=kept.k_actual,
    )
