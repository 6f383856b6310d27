"""Rounds of labelling: rows that are bought, and rows that are asked about again, each round opened in one transaction
with the note of why. Whoever goes on after a crash finds the picks and asks about those that have no votes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F

from backend.compiles.models import Candidate, Slice, StepRun
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.labeling.rounds import Why
from backend.domain.lifecycle import StepName
from backend.domain.number_words import percent
from backend.domain.spec.parsing import LabelOutput, votes_as_needed
from workers.labeling.asking import answers_so_far, n_answers, want_no_more
from workers.labeling.voting import VOTED, vote_on
from workers.step.durable import CompileRun

KNOWN = ("n_rows", "n_votes", "accuracy_ppm")  # what an entry says of the labels before it
CANDIDATES = "candidates"  # the kind of an entry that is a round of candidates
BOUGHT = ["state", "bought_in", "bought_for", "n_wanted"]
_WORDS = {
    Why.START: "near to a label's description",
    Why.UNCERTAIN: "the least sure",
    Why.RARE: "of rare labels",
    Why.RANDOM: "drawn at random",
    Why.LOSING: "of slices that lose",
    Why.ASKED_AGAIN: "asked again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """One row of a round: why, for how many answers it is asked, and how many it then waits for in all (0: as many as
    the spec asks of every pick)."""

    row: Candidate
    why: Why
    n_asked: int = 1
    n_wanted: int = 0


Purchases = Sequence[Mapping[str, Any]]


def n_rounds_of(purchases: Purchases) -> tuple[int, int]:
    """Rounds of rows, and of further votes."""
    n_votes = sum(Why.ASKED_AGAIN in one["why"] for one in purchases)
    return len(purchases) - n_votes - n_written(purchases), n_votes


def n_written(purchases: Purchases) -> int:
    """Rounds of candidates."""
    return sum(one.get("kind") == CANDIDATES for one in purchases)


def purchases_of(run: CompileRun) -> list[dict[str, Any]]:
    """The rounds so far, and at the end why there were no more; read inside a transaction."""
    return run.step(StepName.LABELING).purchases or []


def open_round(run: CompileRun, bought: Sequence[Bought], facts: Mapping[str, Any]) -> None:
    """Pick the rows and note the purchase."""
    with run.transaction():
        purchases = purchases_of(run)
        number = len(purchases) + 1
        for one in bought:
            one.row.move(CandidateState.PICKED)
            one.row.n_wanted = one.n_wanted
            if one.why != Why.ASKED_AGAIN:
                one.row.bought_in, one.row.bought_for = number, one.why
        Candidate.objects.bulk_update([one.row for one in bought], BOUGHT, batch_size=500)
        _count(run, [one.row for one in bought if one.why != Why.ASKED_AGAIN], is_bought=True)
        why = Counter(one.why for one in bought)
        most = max((one.n_asked for one in bought), default=1)
        size = {"answers_a_call": most} if most > 1 else {}
        entry = {"round": number, "n": len(bought), "why": dict(sorted(why.items())), **size, **facts}
        _save(run, [*purchases, entry])
        _show(run, _message(number, why, facts))


def note_candidates(run: CompileRun, facts: Mapping[str, Any]) -> None:
    """Note the purchase of candidates, inside a transaction."""
    purchases = purchases_of(run)
    entry = {"round": len(purchases) + 1, "kind": CANDIDATES, "why": {}, **facts}
    _save(run, [*purchases, entry])
    _show(run, f"round {entry['round']}: {entry['n']} more candidates for {', '.join(entry['slices'])}")


def replace_last(run: CompileRun, facts: Mapping[str, Any]) -> None:
    """Note what came of the last round, inside a transaction."""
    *before, last = purchases_of(run)
    _save(run, [*before, {**last, **facts}])


def close_round(run: CompileRun) -> None:
    """End a round whose budget has ended: picks with an answer have their votes, the others are rejects again, and the
    round's note says how many."""
    with run.transaction():
        picked = list(
            Candidate.objects.filter(
                tenant_id=run.tenant_id, compile_id=run.compile_id, state=CandidateState.PICKED
            ).order_by("text_key")
        )
    answers = answers_so_far(run, picked)
    asked = [row for row in picked if n_answers(row, answers[row.text_key])]
    left = [row for row in picked if not n_answers(row, answers[row.text_key])]
    if votes_as_needed(run.spec):
        want_no_more(asked, answers)
    vote_on(run.spec, asked, answers)
    with run.transaction():
        for row in left:
            row.move(CandidateState.DROPPED)
            row.bought_in, row.bought_for, row.n_wanted = None, "", 0
        Candidate.objects.bulk_update(asked, [*VOTED, "n_wanted"], batch_size=500)
        Candidate.objects.bulk_update(left, BOUGHT, batch_size=500)
        _count(run, left, is_bought=False)
        replace_last(run, {"n_unpaid": purchases_of(run)[-1].get("n_unpaid", 0) + len(left)})


def stop(run: CompileRun, why: str, facts: Mapping[str, Any]) -> None:
    """Note that nothing more is bought, and why, inside a transaction."""
    _save(run, [*purchases_of(run), {"stopped_for": why, **facts}])


def is_stopped(purchases: Purchases) -> bool:
    return bool(purchases) and "stopped_for" in purchases[-1]


def purchase_facts(run: CompileRun) -> dict[str, Any]:
    """The facts of a label task's receipt that say what was bought, inside a transaction; none of another task's."""
    if not isinstance(run.spec.output, LabelOutput):
        return {}
    rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=LABELED_STATES)
    n_votes = Counter(sum(votes.values()) for votes in rows.values_list("votes", flat=True))
    facts: dict[str, Any] = {"votes": {"n": sum(n * k for n, k in n_votes.items()), "rows": _by_number(n_votes)}}
    purchases = purchases_of(run)
    if purchases:
        last = purchases[-1]
        facts |= {"noise": last.get("noise"), "curve": last.get("curve"), "stopped_for": last.get("stopped_for")}
        facts["at_end"] = {name: last[name] for name in KNOWN if name in last}
        facts["purchases"] = [
            {name: value for name, value in one.items() if name not in ("noise", "curve")}
            for one in purchases
            if "round" in one
        ]
    return facts


def _by_number(n_votes: Mapping[int, int]) -> dict[str, int]:
    return {str(n): k for n, k in sorted(n_votes.items())}


def _count(run: CompileRun, rows: Sequence[Candidate], *, is_bought: bool) -> None:
    """A slice has so many picks more, or fewer. A reject that is bought stays a draft: the next similar compile may be
    offered it."""
    slices = Counter(row.slice_id for row in rows)  # type: ignore[attr-defined]  # Django's, of the foreign key
    for slice_id, n in slices.items():
        change = n if is_bought else -n
        Slice.objects.filter(tenant_id=run.tenant_id, id=slice_id).update(k_actual=F("k_actual") + change)


def _save(run: CompileRun, purchases: list[dict[str, Any]]) -> None:
    step = StepRun.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, name=StepName.LABELING)
    step.update(purchases=purchases)


def _show(run: CompileRun, message: str) -> None:
    step = run.step(StepName.LABELING)
    run.progress(StepName.LABELING, done=step.done, total=step.total, message=message)


def _message(number: int, why: Counter[Why], facts: Mapping[str, Any]) -> str:
    """
    >>> _message(3, Counter({Why.UNCERTAIN: 96, Why.RANDOM: 24}), {"accuracy_ppm": 870_000})
    'round 3: 120 more inputs, the least sure; cross-validated 87 %'
    """
    n, most = why.total(), why.most_common(1)[0][0]
    what = f"{n} inputs asked again" if most == Why.ASKED_AGAIN else f"{n} more inputs, {_WORDS[most]}"
    shown = facts.get("accuracy_ppm")
    return f"round {number}: {what}" + ("" if shown is None else f"; cross-validated {percent(shown)}")
