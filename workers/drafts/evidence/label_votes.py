"""The label votes of a compile's picks, counted as evidence of bad drafts: they are paid for anyway, and they are the
teacher's answer to another question than whether it would have written the text."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from uuid import UUID

from django.db.models import Q

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import LABELED_STATES
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.label_votes import LabelVotes, SliceVotes
from backend.domain.drafts.vocabulary import CERTIFIES, Certificate, Strategy, VerdictKind
from backend.domain.labeling.rounds import Why
from backend.domain.spec.parsing import LabelOutput, judge_name
from backend.drafts.calibrations import count_votes
from backend.drafts.models import Calibration, Scope, Verdict
from workers.drafts.delegates import locked_row
from workers.drafts.evidence.suspension import suspend_beyond_bound
from workers.step.durable import CompileRun

VOTED_ON = CERTIFIES | {Strategy.GATE: Certificate.GATED}
Key = tuple[UUID, Strategy]  # of a calibration


def count_label_votes(run: CompileRun, compile: Compile) -> None:
    """Count the votes, and suspend where they show more bad drafts than the spec allows; once a compile, inside the
    transaction that ends its labelling. An ablation's arm counts nothing: its picks are another compile's."""
    if compile.arm or not run.spec.draft_cache.enabled or not isinstance(run.spec.output, LabelOutput):
        return
    for key, votes in _by_calibration(run).items():
        row = locked_row(run, *key)
        count_votes(row, votes)
        suspend_beyond_bound(run, row)
        row.save()


def _by_calibration(run: CompileRun) -> dict[Key, LabelVotes]:
    """The slices' votes for each calibration, in an order that is the same in every compile: two that lock several do
    not wait for each other. A slice without drafts of a strategy is compared with, where that was ever used."""
    mine = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=False)
    slices = list(mine.exclude(label="").order_by("position"))
    scope_of = _scopes(run, slices)
    scopes = set(scope_of.values())
    picks = _first_picks(run, slices)
    used = _used_before(run, scopes, picks)
    counted: dict[Key, list[SliceVotes]] = defaultdict(list)
    for slice_row in slices:
        for strategy, certificate in VOTED_ON.items() if slice_row.id in scope_of else ():
            votes = _votes(slice_row, picks[slice_row.id], certificate, used)
            counted[scope_of[slice_row.id], strategy].append(votes)
    rows = Calibration.objects.filter(tenant_id=run.tenant_id, scope_id__in=scopes, strategy__in=VOTED_ON)
    rows = rows.filter(~Q(strategy=Strategy.DELEGATE) | Q(judge=judge_name(run.spec)))
    known = set(rows.values_list("scope_id", "strategy"))
    return {
        key: LabelVotes.of(votes for votes in counted[key] if any(votes))
        for key in sorted(counted)
        if key in known or any(votes.n_drafts for votes in counted[key])
    }


def _scopes(run: CompileRun, slices: Sequence[Slice]) -> dict[UUID, UUID]:
    """The scope of each slice: where it looked for drafts, else where the others did if that is one. A scope that was
    purged since has none."""
    plans = {slice_row.id: slice_row.offer_plan for slice_row in slices}
    looked = {id: plan.scope_id for id, plan in plans.items() if plan is not None and plan.scope_id is not None}
    scopes = set(looked.values())
    there = set(Scope.objects.filter(tenant_id=run.tenant_id, id__in=scopes).values_list("id", flat=True))
    everywhere = dict.fromkeys(plans, *scopes) if len(scopes) == 1 else {}
    return {id: scope for id, scope in (everywhere | looked).items() if scope in there}


def _first_picks(run: CompileRun, slices: Sequence[Slice]) -> Mapping[UUID, list[Candidate]]:
    """The picks with votes by slice, those of its selection and those bought at random: a round that buys what a model
    is unsure of would find bad drafts oftener than they are."""
    rows = Candidate.objects.filter(
        Q(bought_in=None) | Q(bought_for=Why.RANDOM),
        tenant_id=run.tenant_id,
        slice__in=slices,
        state__in=LABELED_STATES,
    ).only("slice_id", "origin", "certificate", "draft_id", "votes")
    picks: dict[UUID, list[Candidate]] = defaultdict(list)
    for row in rows:
        if row.votes:
            picks[row.slice_id].append(row)
    return picks


def _used_before(run: CompileRun, scopes: set[UUID], picks: Mapping[UUID, list[Candidate]]) -> set[UUID]:
    """The drafts that another compile accepted too. The same text is voted on alike each time, so it counts once."""
    ids = [row.draft_id for rows in picks.values() for row in rows if row.draft_id is not None]
    accepted = Verdict.objects.filter(
        tenant_id=run.tenant_id, scope_id__in=scopes, draft_id__in=ids, kind=VerdictKind.VERDICT, is_accepted=True
    )
    return set(accepted.exclude(compile_id=run.compile_id).values_list("draft_id", flat=True))


def _votes(slice_row: Slice, picks: Sequence[Candidate], certificate: Certificate, used: set[UUID]) -> SliceVotes:
    drafts = [row for row in picks if row.certificate == certificate and row.draft_id not in used]
    fresh = [row for row in picks if row.origin == Origin.FRESH]
    return SliceVotes(
        n_drafts=len(drafts),
        n_drafts_other=sum(_is_other(row.votes, slice_row.label) for row in drafts),
        n_fresh=len(fresh),
        n_fresh_other=sum(_is_other(row.votes, slice_row.label) for row in fresh),
    )


def _is_other(votes: Mapping[str, int], label: str) -> bool:
    """Say whether another label has more votes than the slice's; a tie names none.

    >>> [_is_other(votes, "refund") for votes in ({"refund": 3}, {"refund": 1, "other": 1}, {"other": 1})]
    [False, False, True]
    """
    return Counter(votes)[label] < max(votes.values())
