"""The acceptance that a tenant's scope has learnt, as rows: read for a decision, written with the verdicts that taught
it. One row a scope and strategy; it can be computed again from the verdict log (`replay`)."""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from backend.domain.drafts.calibration import (
    GRID_VERSION,
    Curves,
    SourceCount,
    curves_from_bytes,
    curves_to_bytes,
    flat_curves,
    learn_from,
    prior_curves,
)
from backend.domain.drafts.delegate_bounds import why_no_judge
from backend.domain.drafts.judge_controls import Audits, BadRate, ControlCounts, bad_rate
from backend.domain.drafts.label_votes import LabelVotes
from backend.domain.drafts.policy import Ledger
from backend.domain.drafts.vocabulary import Kinship, Strategy, VerdictKind
from backend.drafts.models import Calibration, Verdict


def calibration(tenant_id: UUID, scope_id: UUID, strategy: Strategy, *, judge: str = "") -> Calibration:
    """The row, or a new one that is not saved. A grid of another version says nothing: back to the start. What is known
    of another judge than `judge` says nothing of this one: the row is as new, apart from its id."""
    row = Calibration.objects.filter(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy).first()
    if row is None or row.judge != judge:
        row = _as_new(Calibration(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy, judge=judge), row)
    if row.grid_version != GRID_VERSION or not row.log_posterior:
        row.grid_version, row.n_observations = GRID_VERSION, 0
        row.log_posterior = curves_to_bytes(initial_curves(strategy))
    return row


def _as_new(row: Calibration, before: Calibration | None) -> Calibration:
    """A row without evidence, in the place of one about another judge."""
    row.log_posterior = b""
    if before is not None:
        row.id, row.begun_at, row._state.adding = before.id, timezone.now(), False
    return row


def locked_calibration(tenant_id: UUID, scope_id: UUID, strategy: Strategy, *, judge: str = "") -> Calibration:
    """Return the `calibration`, saved and locked until the transaction ends: two compiles of a family learn one after
    the other."""
    fresh = calibration(tenant_id, scope_id, strategy, judge=judge)
    if fresh._state.adding:
        Calibration.objects.bulk_create([fresh], ignore_conflicts=True)
    Calibration.objects.select_for_update().get(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy)
    return calibration(tenant_id, scope_id, strategy, judge=judge)


def initial_curves(strategy: Strategy) -> Curves:
    """The curves before the first verdict. Priors were fitted to judges' verdicts, and to nothing else."""
    return prior_curves() if strategy in (Strategy.JUDGE, Strategy.DELEGATE) else flat_curves()


def curves_of(row: Calibration) -> Curves:
    return curves_from_bytes(bytes(row.log_posterior))


def ledger_of(row: Calibration) -> Ledger:
    return Ledger(
        n_lookups=row.n_lookups,
        n_since_shown=row.n_since_shown,
        spent_microusd=row.spent_microusd,
        explored_microusd=row.explored_microusd,
    )


def learn(row: Calibration, verdicts: Sequence[Verdict]) -> None:
    """Take one slice's verdicts into the curves of a locked row; what does not count for acceptance is passed over."""
    counts = source_counts(verdicts)
    if counts:
        curves = learn_from(curves_of(row), counts.values(), initial_curves(Strategy(row.strategy)))
        row.log_posterior, row.n_observations = curves_to_bytes(curves), curves.n_observations


def source_counts(verdicts: Sequence[Verdict]) -> dict[UUID, SourceCount]:
    """Count what was shown and accepted by source, in the order of first verdicts: drafts of a slice are one
    observation."""
    by_source: dict[UUID, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.kind == VerdictKind.VERDICT:
            by_source[verdict.source_id].append(verdict)
    return {
        id: SourceCount(
            distance=rows[0].distance,
            n_shown=len(rows),
            n_accepted=sum(row.is_accepted for row in rows),
            kinship=Kinship(rows[0].kinship),
        )
        for id, rows in by_source.items()
    }


def replay(tenant_id: UUID, scope_id: UUID, strategy: Strategy) -> Curves:
    """The curves computed again from the verdict log, slice by slice in the order they were saved, from where the row's
    evidence begins."""
    rows = Verdict.objects.filter(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy).order_by("id")
    row = Calibration.objects.filter(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy).first()
    if row is not None and row.begun_at is not None:
        rows = rows.filter(created_at__gte=row.begun_at)
    by_offer: dict[UUID, list[Verdict]] = defaultdict(list)
    for row in rows:
        by_offer[row.offer_id].append(row)
    start = curves = initial_curves(strategy)
    for verdicts in by_offer.values():
        counts = source_counts(verdicts)
        if counts:
            curves = learn_from(curves, counts.values(), start)
    return curves


def measured_bad_rate(row: Calibration) -> BadRate:
    """Return the share of bad drafts among those that this strategy accepted in this scope, with bounds that hold at
    all times at once."""
    audits = Audits(n=row.n_audited, n_refused=row.n_audited_refused, n_refused_twice=row.n_audited_bad)
    controls = ControlCounts(
        n_negative=row.n_audit_negatives,
        n_negative_accepted=row.n_audit_negatives_accepted,
        n_positive=row.n_audit_positives,
        n_positive_accepted=row.n_audit_positives_accepted,
    )
    return bad_rate(audits, controls, LabelVotes.from_json(row.label_votes))


def count_votes(row: Calibration, votes: LabelVotes) -> None:
    """Add a compile's label votes to a locked row."""
    row.label_votes = (LabelVotes.from_json(row.label_votes) + votes).to_json()


def control_counts(row: Calibration) -> ControlCounts:
    """The controls among the drafts of the question itself; those of audits are about another prompt."""
    return ControlCounts(
        n_negative=row.n_negative_controls,
        n_negative_accepted=row.n_negative_accepted,
        n_positive=row.n_positive_controls,
        n_positive_accepted=row.n_positive_accepted,
    )


def judge_refusal(row: Calibration) -> str:
    """The reason, as a clause, why the teacher judges in place of the spec's own judge; "" where it does not."""
    if row.suspended_at is not None:
        return "too many of the drafts that it accepted were bad"
    return why_no_judge(control_counts(row))


def suspend(row: Calibration) -> None:
    row.suspended_at = row.suspended_at or timezone.now()
