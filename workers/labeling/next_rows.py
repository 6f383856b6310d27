"""The rows that a round of labelling buys, and those it asks about again."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import bought_rounds
from backend.domain.labeling.linear_head import Flags, Ints
from backend.domain.labeling.rounds import Why, next_rows, random_order
from backend.domain.labeling.votes_again import changed_votes, unsure_rows
from backend.domain.planning.label_plans import writes_more
from backend.domain.spec.outputs import Label, LabelOutput
from backend.domain.spec.parsing import Spec, first_votes, most_votes, votes_as_needed
from workers.labeling.asking import n_label_calls, n_wanted
from workers.labeling.call_prices import LabelCalls, worst_of
from workers.labeling.posteriors import Weighed
from workers.labeling.reuse import are_taken_over
from workers.labeling.rounds import Bought
from workers.labeling.warnings import is_guessing, missing_labels
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of

NEAR_A_LABEL = 2  # rows nearest to the description of a label that no row has


def rows_to_buy(
    run: CompileRun, weighed: Weighed, is_open: Flags, m: int, *, is_first: bool, n_asked: int
) -> list[Bought]:
    """The next `m` rows with the reason of each, all of fewer; each is asked for `n_asked` answers, or has those of an
    earlier compile. In the first round those nearest to a label that no row has come before all others; where a student
    learns nothing from the labels they are drawn at random."""
    rows, seed = weighed.pool.rows, run.spec.sampling.seed
    near = _near_missing(run, weighed, is_open)[:m] if is_first else []
    is_left = is_open.copy()
    is_left[near] = False
    later = _written_later(run)

    def row(at: int, why: Why) -> Bought:
        is_later = (rows[at].slice_id, rows[at].round) in later  # type: ignore[attr-defined]  # Django's
        n_wanted = 0 if rows[at].known_answers or n_asked == first_votes(run.spec) else n_asked
        return Bought(row=rows[at], why=Why.LOSING if is_later else why, n_asked=n_asked, n_wanted=n_wanted)

    bought = [row(at, Why.RARE) for at in near]
    if is_guessing(weighed):
        order = random_order(weighed.pool.places.points.keys, seed)
        return bought + [row(at, Why.RANDOM) for at in order[is_left[order]].tolist()[: m - len(near)]]
    picks = next_rows(
        weighed.pool.places.points,
        weighed.probabilities(),
        is_left,
        m - len(near),
        n_by_label=weighed.n_by_label,
        seed=seed,
    )
    return bought + [row(at, why) for at, why in zip(picks.rows.tolist(), picks.why, strict=True)]


def ask_again(run: CompileRun, weighed: Weighed, n_votes: int) -> list[Bought]:
    """The rows to ask again, for `n_votes` more or as many as they may still have, the least sure first: those whose
    label is too improbable, and those whose one answer the student disputes; none that an arm has taken over."""
    if not votes_as_needed(run.spec):
        return []
    known, pool = weighed.known, weighed.pool
    most = most_votes(run.spec)
    order = unsure_rows(pool.votes[known], weighed.believed, weighed.predicted, most=most)
    is_own = ~are_taken_over(run, pool.rows)
    rows = [pool.rows[at] for at in known[order].tolist() if at < pool.n and is_own[at]]
    due = [(row, _n_due(run.spec, row)) for row in rows]
    return [
        Bought(row=row, why=Why.ASKED_AGAIN, n_asked=min(n_votes, most - n), n_wanted=min(n + n_votes, most))
        for row, n in due
        if n < most
    ]


def votes_so_far(run: CompileRun, weighed: Weighed) -> dict[str, Any]:
    """The calls that this compile has made and the votes beside each row's first, as a `PlanState` counts them. What an
    earlier compile's teacher answered is none that was asked for again; of an arm they are those on its own rows, and
    an answer that was known counts as a call."""
    pool, n_first = weighed.pool, first_votes(run.spec)
    further = np.zeros(len(pool.votes), dtype=np.int64)
    further[: pool.n] = [_n_due(run.spec, row) - max(n_first, _n_known(row)) for row in pool.rows]
    n_rows = weighed.n_asked - int((weighed.is_asked & are_taken_over(run, pool.rows)).sum())
    n_again = _calls_again(run, weighed)
    return {
        "n_calls": n_rows * n_first + n_again,
        "n_calls_again": n_again,
        "n_further": int(further.sum()),
        "n_changed": changed_votes(pool.votes, further),
    }


def _calls_again(run: CompileRun, weighed: Weighed) -> int:
    """Count the calls about a row that has had an answer."""
    made = n_label_calls(run)
    rows = [row for row, is_asked in zip(weighed.pool.rows, weighed.is_asked, strict=True) if is_asked]
    return sum(max(made[row.text_key] - (not row.known_answers), 0) for row in rows)


def affordable(
    run: CompileRun, bought: Sequence[Bought], left: int, calls: LabelCalls, *, pair: int = 0
) -> list[Bought]:
    """The first of these that `left` micro-USD can pay at their worst, with the training on new ones, `pair` each."""
    kept = []
    for one in bought:
        is_new = one.why != Why.ASKED_AGAIN
        left -= worst_of(run, one.row, one.n_asked, calls)
        left -= pair if is_new else 0
        if left < 0:
            break
        kept.append(one)
    return kept


def _n_due(spec: Spec, row: Candidate) -> int:
    """Answers that a row has once those that it waits for are there: an earlier compile may have had more."""
    return max(n_wanted(spec, row), _n_known(row))


def _n_known(row: Candidate) -> int:
    return len(row.known_answers or ())


def _written_later(run: CompileRun) -> set[tuple[UUID, int]]:
    """The slices and rounds of candidates that the plan has bought: drawn at random, they look like no traffic."""
    if not writes_more(run.spec):
        return set()
    with run.transaction():
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id))
    return {(part.id, number) for part in slices for number in bought_rounds(part)}


def _near_missing(run: CompileRun, weighed: Weighed, is_open: Flags) -> list[int]:
    """The open rows nearest to name and description of each label that no row has."""
    missing = missing_labels(weighed)
    if not missing or not isinstance(run.spec.output, LabelOutput):
        return []
    texts = [_text(label) for label in run.spec.output.labels if label.name in missing]
    near = embedder_of(run).embed(texts).astype(np.float64) @ weighed.pool.places.points.rows.T
    near[:, ~is_open] = -np.inf
    nearest: Ints = np.argsort(-near, axis=1, kind="stable")[:, :NEAR_A_LABEL]
    return [at for at in dict.fromkeys(nearest.T.ravel().tolist()) if is_open[at]]


def _text(label: Label) -> str:
    return " ".join(part for part in (label.name.replace("_", " "), label.description) if part)
