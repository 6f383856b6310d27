"""The verdicts of one slice as rows, and what they teach: calibration, counts of controls, quarantine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from django.db.models import F

from backend.domain.drafts.judge_controls import controls_of
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import (
    DraftState,
    DraftVerdict,
    Kinship,
    StoredDraft,
    Strategy,
    VerdictKind,
    Verification,
)
from backend.drafts.calibrations import learn
from backend.drafts.models import Calibration, Draft, Source, Verdict
from workers.drafts.delegates import locked_row
from workers.step.durable import CompileRun

NO_ID = UUID(int=0)
MAX_USES = 8  # a draft that entered this many pools is retired


def save_verdicts(
    run: CompileRun,
    plan: OfferPlan,
    verification: Verification,
    shown: Sequence[StoredDraft],
    scores: Mapping[UUID, float],
) -> None:
    """Save the verdicts in the transaction of the accepted candidates. Two compiles of a family learn one after the
    other."""
    scope_id, strategy = verified_by(plan)
    row = locked_row(run, scope_id, strategy)
    expected = {one.draft_id: (one.predicted, one.propensity) for one in (*plan.shown, *plan.pooled)}
    by_id = {draft.draft_id: draft for draft in shown}
    verdicts = [
        _row(run, plan, verification, verdict, by_id.get(verdict.draft_id), expected.get(verdict.draft_id, (0.0, 1.0)))
        for verdict in (*verification.verdicts, *verification.controls)
    ]
    for verdict in verdicts:
        verdict.gate_score = scores.get(verdict.draft_id)
    Verdict.objects.bulk_create(verdicts, batch_size=500)
    learn(row, verdicts)
    count_controls(row, verification.controls)
    if verification.verdicts:
        row.n_since_shown = 0
    row.save()
    _count_uses(run, verdicts, quarantines=strategy is not Strategy.DELEGATE)


def save_repeats(run: CompileRun, plan: OfferPlan, verification: Verification, drafts: Sequence[StoredDraft]) -> None:
    """Save the verdicts on drafts that nobody was asked about: they teach no curve."""
    by_id = {draft.draft_id: draft for draft in drafts}
    verdicts = [
        _row(run, replace(plan, strategy=Strategy.REPEAT), verification, verdict, by_id[verdict.draft_id], (1.0, 1.0))
        for verdict in verification.verdicts
    ]
    Verdict.objects.bulk_create(verdicts, batch_size=500)
    _count_uses(run, verdicts)


def record_verdicts(plan: OfferPlan, verification: Verification, n_added: int) -> OfferPlan:
    """Count the verdicts on the slice's plan: no text."""
    kept = dict(plan.kept_tokens)
    for verdict in verification.verdicts:
        if verdict.certificate is not None and verdict.kept_tokens:
            kept[verdict.certificate] = kept.get(verdict.certificate, 0) + verdict.kept_tokens
    return replace(
        plan,
        n_shown=plan.n_shown + len(verification.verdicts),
        n_accepted=plan.n_accepted + sum(verdict.is_accepted for verdict in verification.verdicts),
        n_entered=plan.n_entered + n_added,
        n_void=plan.n_void + sum(verdict.kind == VerdictKind.VOID for verdict in verification.verdicts),
        kept_tokens=kept,
        repeatability=plan.repeatability + verification.repeatability,
    )


def verified_by(plan: OfferPlan) -> tuple[UUID, Strategy]:
    """The scope and the strategy of a plan whose drafts get verdicts."""
    assert plan.scope_id is not None
    assert plan.strategy is not None
    return plan.scope_id, plan.strategy


def count_controls(row: Calibration, controls: Iterable[DraftVerdict]) -> None:
    counted = controls_of(controls)
    row.n_negative_controls += counted.n_negative
    row.n_negative_accepted += counted.n_negative_accepted
    row.n_positive_controls += counted.n_positive
    row.n_positive_accepted += counted.n_positive_accepted


def count_audit_controls(row: Calibration, controls: Iterable[DraftVerdict]) -> None:
    counted = controls_of(controls)
    row.n_audit_negatives += counted.n_negative
    row.n_audit_negatives_accepted += counted.n_negative_accepted
    row.n_audit_positives += counted.n_positive
    row.n_audit_positives_accepted += counted.n_positive_accepted


def audit_rows(run: CompileRun, plan: OfferPlan, verification: Verification) -> list[Verdict]:
    """An audit's verdicts and controls, as rows that teach the curve nothing."""
    return [
        _row(run, plan, verification, verdict, None, (0.0, 1.0))
        for verdict in (*verification.verdicts, *verification.controls)
    ]


def _row(
    run: CompileRun,
    plan: OfferPlan,
    verification: Verification,
    verdict: DraftVerdict,
    draft: StoredDraft | None,
    expected: tuple[float, float],
) -> Verdict:
    scope_id, strategy = verified_by(plan)
    return Verdict(
        tenant_id=run.tenant_id,
        offer_id=plan.offer_id,
        compile_id=run.compile_id,
        scope_id=scope_id,
        source_id=NO_ID if draft is None else draft.source_id,
        draft_id=verdict.draft_id,
        strategy=strategy,
        kind=verdict.kind,
        certificate=verdict.certificate or "",
        distance=1.0 if draft is None else draft.distance,
        kinship=Kinship.OTHER if draft is None else draft.kinship,
        predicted=expected[0],
        propensity=expected[1],
        is_accepted=verdict.is_accepted,
        n_tokens=verdict.n_tokens if draft is None else draft.n_tokens,
        n_tokens_kept=verdict.kept_tokens,
        cost_microusd=verdict.cost_microusd,
        price_version=verification.cost.price_version,
    )


def _count_uses(run: CompileRun, verdicts: Sequence[Verdict], *, quarantines: bool = True) -> None:
    """Drafts and sources remember how often they were shown and accepted. Where a planted draft of a far slice was
    accepted, those whose verdicts stayed void stood beside it twice: they are shown no more. An answer that was no
    answer says nothing against them, nor (not `quarantines`) does a judge that may be lenient with all."""
    mine = Draft.objects.filter(tenant_id=run.tenant_id)
    counted = [row for row in verdicts if row.kind == VerdictKind.VERDICT]
    is_fooled = any(row.kind == VerdictKind.NEGATIVE and row.is_accepted for row in verdicts)
    void = [row.draft_id for row in verdicts if row.kind == VerdictKind.VOID and is_fooled and quarantines]
    accepted = [row.draft_id for row in counted if row.is_accepted]
    mine.filter(id__in=[row.draft_id for row in counted]).update(n_shown=F("n_shown") + 1)
    mine.filter(id__in=accepted).update(n_accepted=F("n_accepted") + 1)
    mine.filter(id__in=accepted, n_accepted__gte=MAX_USES).update(state=DraftState.RETIRED)
    mine.filter(id__in=void).update(state=DraftState.QUARANTINED)
    for count, source_id in [(_count(counted, id), id) for id in sorted({row.source_id for row in counted})]:
        Source.objects.filter(tenant_id=run.tenant_id, id=source_id).update(
            n_shown=F("n_shown") + count[0], n_accepted=F("n_accepted") + count[1]
        )


def _count(counted: Sequence[Verdict], source_id: UUID) -> tuple[int, int]:
    rows = [row for row in counted if row.source_id == source_id]
    return len(rows), sum(row.is_accepted for row in rows)
