"""The acceptance that a tenant's scope has learnt, as rows: read for a decision, written with the verdicts that taught
it. One row a scope and strategy; it can be computed again from the verdict log (`replay`)."""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.utils import timezone

from backend.domain.drafts.calibration import GRID_VERSION, Curve, SourceCount, flat_curve, from_bytes, to_bytes, update
from backend.domain.drafts.judge_controls import Audits, BadRate, ControlCounts, bad_rate
from backend.domain.drafts.label_votes import LabelVotes
from backend.domain.drafts.policy import Ledger
from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.drafts.models import Calibration, Verdict


def calibration(tenant_id: UUID, scope_id: UUID, strategy: Strategy) -> Calibration:
    """The row, or a new one that is not saved. A grid of another version says nothing to this code: back to flat."""
    row = Calibration.objects.filter(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy).first()
    if row is None:
        row = Calibration(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy, log_posterior=b"")
    if row.grid_version != GRID_VERSION or not row.log_posterior:
        row.grid_version, row.n_observations = GRID_VERSION, 0
        row.log_posterior = to_bytes(flat_curve())
    return row


def locked_calibration(tenant_id: UUID, scope_id: UUID, strategy: Strategy) -> Calibration:
    """Return the `calibration`, saved and locked until the transaction ends: two compiles of a family learn one after
    the other."""
    fresh = calibration(tenant_id, scope_id, strategy)
    if fresh._state.adding:
        Calibration.objects.bulk_create([fresh], ignore_conflicts=True)
    Calibration.objects.select_for_update().get(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy)
    return calibration(tenant_id, scope_id, strategy)


def curve_of(row: Calibration) -> Curve:
    return from_bytes(bytes(row.log_posterior), row.n_observations)


def ledger_of(row: Calibration) -> Ledger:
    return Ledger(
        n_lookups=row.n_lookups,
        n_since_shown=row.n_since_shown,
        spent_microusd=row.spent_microusd,
        explored_microusd=row.explored_microusd,
    )


def learn(row: Calibration, verdicts: Sequence[Verdict]) -> None:
    """Take one slice's verdicts into the curve of a locked row; what does not count for acceptance is passed over."""
    counts = source_counts(verdicts)
    if counts:
        curve = update(curve_of(row), counts.values())
        row.log_posterior, row.n_observations = to_bytes(curve), curve.n_observations


def source_counts(verdicts: Sequence[Verdict]) -> dict[UUID, SourceCount]:
    """Count what was shown and accepted by source, in the order of first verdicts: drafts of a slice are one
    observation."""
    by_source: dict[UUID, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.kind == VerdictKind.VERDICT:
            by_source[verdict.source_id].append(verdict)
    return {
        id: SourceCount(distance=rows[0].distance, n_shown=len(rows), n_accepted=sum(row.is_accepted for row in rows))
        for id, rows in by_source.items()
    }


def replay(tenant_id: UUID, scope_id: UUID, strategy: Strategy) -> Curve:
    """The curve computed again from the verdict log, slice by slice in the order they were saved."""
    rows = Verdict.objects.filter(tenant_id=tenant_id, scope_id=scope_id, strategy=strategy).order_by("id")
    by_offer: dict[UUID, list[Verdict]] = defaultdict(list)
    for row in rows:
        by_offer[row.offer_id].append(row)
    curve = flat_curve()
    for verdicts in by_offer.values():
        counts = source_counts(verdicts)
        if counts:
            curve = update(curve, counts.values())
    return curve


def measured_bad_rate(row: Calibration) -> BadRate:
    """Return the share of bad drafts among those that this strategy accepted in this scope, with bounds that hold at
    all times at once."""
    audits = Audits(n=row.n_audited, n_refused=row.n_audited_refused, n_refused_twice=row.n_audited_bad)
    return bad_rate(audits, control_counts(row), LabelVotes.from_json(row.label_votes))


def count_votes(row: Calibration, votes: LabelVotes) -> None:
    """Add a compile's label votes to a locked row."""
    row.label_votes = (LabelVotes.from_json(row.label_votes) + votes).to_json()


def control_counts(row: Calibration) -> ControlCounts:
    return ControlCounts(
        n_negative=row.n_negative_controls,
        n_negative_accepted=row.n_negative_accepted,
        n_positive=row.n_positive_controls,
        n_positive_accepted=row.n_positive_accepted,
    )


def suspend(row: Calibration) -> None:
    row.suspended_at = row.suspended_at or timezone.now()
