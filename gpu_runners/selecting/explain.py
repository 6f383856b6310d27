"""The reasons why one row was kept or dropped, in sentences."""

from collections.abc import Sequence

import numpy as np

from backend.domain.selection.linkage.clustering import NEAR_DUPLICATE_CUT
from backend.domain.selection.select import Method
from gpu_runners.selecting.outcome import Neighbour, Outcome, Why

_LISTED = 5
_TEXT_CHARACTERS = 100


def explain(outcome: Outcome, row: int) -> list[str]:
    """The first sentence is the verdict; the others are what it rests on."""
    nearest = outcome.nearest_picks([row])[0]
    sentences = [
        _verdict(outcome, row),
        _score(outcome, row),
        _floor(outcome, row),
        _label(outcome, row),
        _cluster(outcome, row),
        _distance(outcome, row, nearest),
        _last_reason(outcome, row, nearest),
        _likes(outcome, row),
    ]
    return [sentence for sentence in sentences if sentence]


def _verdict(outcome: Outcome, row: int) -> str:
    name, text = outcome.name(row), outcome.rows.texts[row]
    head = text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
    quoted = f" ({' '.join(head.split())!r})" if head else ""
    rank, report = outcome.rank_of.get(row), outcome.report
    verdict = f"kept, as number {rank:,} of {report.k_actual:,}" if rank else "dropped"
    chosen = f", which auto chose. {report.method_reason}" if report.requested_method == Method.AUTO else "."
    return f"{name}{quoted} was {verdict}, by {report.method}{chosen}"


def _score(outcome: Outcome, row: int) -> str:
    if outcome.rows.scores is None:
        return "No row has a score: all count the same, and their content alone orders them."
    scores, own = outcome.rows.scores, outcome.rows.scores[row]
    n_better, n_equal = int((scores > own).sum()), int((scores == own).sum()) - 1
    shared = f", which {n_equal:,} other{_s(n_equal)} share{'s' if n_equal == 1 else ''}" if n_equal else ""
    return f"Its score, {own:g}, is number {n_better + 1:,} of {len(scores):,}{shared}."


def _floor(outcome: Outcome, row: int) -> str:
    dropped, report = outcome.below_floor, outcome.report
    if not dropped:
        return "No row fell below a score floor." if report.score_floor else ""
    share = f"{100 * report.score_floor:.0f} %"
    if report.requested_method == Method.AUTO and outcome.rows.labels is not None:
        placed = "It is one of" if row in dropped else "It is not one of"
        return (
            f"{placed} the {len(dropped):,} row{_s(len(dropped))} that auto set aside first, by a score from which it "
            "takes off how far similar rows contradict the label."
        )
    if row in dropped:
        return (
            f"It is below the score floor: the worst {share} were set aside before anything else ({len(dropped):,} "
            f"row{_s(len(dropped))}), because a method that spreads its picks gives every outlier a seat."
        )
    return f"It is above the score floor, under which the worst {share} were set aside ({len(dropped):,} rows)."


def _label(outcome: Outcome, row: int) -> str:
    if outcome.rows.labels is None or not outcome.report.strata:
        return ""
    label = outcome.rows.labels[row]
    share = next(stratum for stratum in outcome.report.strata if stratum.label == label)
    return (
        f"K is shared out over the labels: {label!r} has {share.n:,} of the {outcome.report.n:,} rows and got "
        f"{share.k_requested:,} of the {outcome.report.k_requested:,} seats."
    )


def _cluster(outcome: Outcome, row: int) -> str:
    cluster = outcome.report.cluster_of[row]
    if cluster < 0:
        return ""
    n_others = outcome.report.cluster_of.count(cluster) - 1
    if n_others == 0:
        return f"It is alone in cluster {cluster}."
    place = f"It is in cluster {cluster} with {n_others:,} other row{_s(n_others)}"
    winners = outcome.picks_of.get(cluster, [])
    if winners == [row]:
        return f"{place}, and is the one that was kept from it."
    others = [pick for pick in winners if pick != row]
    if not others:
        return f"{place}; none of them was kept."
    return f"{place}; kept from it: {_name_of(outcome, others)}."


def _distance(outcome: Outcome, row: int, nearest: Neighbour | None) -> str:
    if nearest is None:
        return ""
    other = "other " if row in outcome.rank_of else ""
    meaning = ""
    if nearest.distance == 0:
        meaning = ", its twin"
    elif nearest.distance <= NEAR_DUPLICATE_CUT:
        meaning = f", a near-duplicate (up to {NEAR_DUPLICATE_CUT:g})"
    pick = outcome.name(nearest.row)
    return f"The nearest {other}pick is {pick} at cosine distance {nearest.distance:.3f}{meaning}."


def _last_reason(outcome: Outcome, row: int, nearest: Neighbour | None) -> str:
    """The reason that decided for a row above the floor that was not picked."""
    why, report, scores = outcome.why(row), outcome.report, outcome.rows.scores
    if why is Why.OUTSCORED:
        winner = outcome.picks_of[report.cluster_of[row]][0]
        is_equal = scores is None or scores[winner] == scores[row]
        how = "has the same score and comes first by content" if is_equal else f"has {scores[winner]:g}"  # type: ignore[index]
        return f"two_step keeps the best-scored row of each cluster: {outcome.name(winner)} {how}."
    if why is not Why.NOT_PICKED:
        return ""
    if report.min_distance > 0 and nearest is not None and nearest.distance < report.min_distance:
        return f"It is closer to a pick than the minimum distance of {report.min_distance:g}."
    return _METHOD_REASONS.get(Method(report.method), "").format(weight=f"{report.diversity_lambda:g}")


_METHOD_REASONS = {
    Method.TOP_K: "top_k keeps the best scores, and K of them are better or equal.",
    Method.TWO_STEP: "Its cluster got no seat: more clusters were cut than K, and the best of their best were kept.",
    Method.DIVERSE: "diverse takes off {weight} times the closeness to the nearest pick; what was left of its score "
    "was never the most.",
    Method.DPP: "dpp weighs score against likeness (lambda {weight}); with the picks made, others always added more.",
    Method.FACILITY_LOCATION: "facility_location adds {weight} times what a pick covers to its score; others always "
    "added more.",
    Method.K_CENTER: "k_center always takes the row that is farthest from the picks so far; it never was.",
    Method.REPRESENTATIVE: "representative keeps one of each group of near-duplicates first, those that stand for most "
    "rows; with the picks made, others always stood for more.",
    Method.RANDOM: "random draws K rows by the seed; it was not drawn.",
}


def _likes(outcome: Outcome, row: int) -> str:
    """The twins of a row, and how many rows are nearly the same."""
    distances = 1.0 - (outcome.units @ outcome.units[row]).astype(np.float64)
    distances[row] = np.inf
    twins = np.flatnonzero(distances < 1e-6).tolist()
    n_near = int((distances <= NEAR_DUPLICATE_CUT).sum()) - len(twins)
    twin_part = f"Its twin{_s(len(twins))}: {_name_of(outcome, twins)}." if twins else "It has no twin."
    near_part = f" {n_near:,} more row{_s(n_near)} within {NEAR_DUPLICATE_CUT:g}." if n_near else ""
    return twin_part + near_part


def _name_of(outcome: Outcome, rows: Sequence[int]) -> str:
    scores = outcome.rows.scores
    names = [outcome.name(row) + ("" if scores is None else f" (score {scores[row]:g})") for row in rows[:_LISTED]]
    more = f" and {len(rows) - _LISTED:,} more" if len(rows) > _LISTED else ""
    return ", ".join(names) + more


def _s(count: int) -> str:
    return "" if count == 1 else "s"
