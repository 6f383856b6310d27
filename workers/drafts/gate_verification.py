"""The verifier gate, which a spec opts into: drafts that the task's own verifiers score high on the new slice enter
without a question to the teacher, once the judge's verdicts on such drafts have certified a threshold. It says nothing
about what the teacher would write."""

from collections.abc import Sequence
from uuid import UUID

from backend.blobs import get_jsonl
from backend.compiles.models import Slice
from backend.domain.drafts.judge_controls import ControlCounts, GateAudit, certified_threshold
from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.parsing import Spec
from backend.drafts.calibrations import calibration, control_counts
from backend.drafts.models import Verdict
from workers.candidates.ranking import reference_rows
from workers.scoring.verifier import rank_scores
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.teachers.verifiers.gate_verifier import GateVerifier

MOST_AUDITS = 20_000  # the newest judged drafts of a scope that a threshold is certified on


def gate_scores(run: CompileRun, slice_row: Slice, texts: Sequence[str]) -> list[float] | None:
    """The scores that the spec's ranking verifiers give these texts on this slice, in [0, 1]; None where it names
    none."""
    embedder = embedder_of(run)
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    rows = embedder.embed(list(texts))
    return rank_scores(run.spec, texts, rows, reference_rows(run, slice_row, embedder, gold))


def certified_threshold_of(tenant_id: UUID, spec: Spec, scope_id: UUID) -> float | None:
    """The threshold that the scope's judged drafts have certified against the spec's bound on bad drafts, or None."""
    judged = Verdict.objects.filter(
        tenant_id=tenant_id,
        scope_id=scope_id,
        strategy=Strategy.JUDGE,
        kind=VerdictKind.VERDICT,
        gate_score__isnull=False,
    ).order_by("-id")[:MOST_AUDITS]
    audits = [
        GateAudit(score=score, is_refused=not is_accepted)
        for score, is_accepted in judged.values_list("gate_score", "is_accepted")
    ]
    controls: ControlCounts = control_counts(calibration(tenant_id, scope_id, Strategy.JUDGE))
    return certified_threshold(audits, controls, contamination=spec.draft_cache.max_bad_rate)


def gate_verifier(run: CompileRun, slice_row: Slice, threshold: float | None) -> GateVerifier:
    """The gate of this slice, ready to verify."""
    return GateVerifier(scores=lambda texts: gate_scores(run, slice_row, texts), threshold=threshold)
