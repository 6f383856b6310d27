"""The spec's own judge of drafts: whether it is asked in the teacher's place, by what is known of it."""

from dataclasses import dataclass
from uuid import UUID

from backend.domain.drafts.vocabulary import Strategy
from backend.domain.spec.parsing import Spec, judge_name
from backend.drafts.calibrations import calibration, judge_refusal, locked_calibration
from backend.drafts.models import Calibration
from workers.step.durable import CompileRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The evidence about a spec's own judge in one scope; `refusal` says in a sentence why the teacher judges in its
    place, "" where it does not."""

    row: Calibration
    refusal: str = ""


def standing_of(tenant_id: UUID, spec: Spec, scope_id: UUID) -> Standing | None:
    """Find how the spec's own judge stands; None where the spec names none."""
    name = judge_name(spec)
    if not name:
        return None
    row = calibration(tenant_id, scope_id, Strategy.DELEGATE, judge=name)
    reason = judge_refusal(row)
    return Standing(row=row, refusal=f"The teacher judges in place of {name}: {reason}." if reason else "")


def locked_row(run: CompileRun, scope_id: UUID, strategy: Strategy) -> Calibration:
    """The locked calibration of a strategy; of the spec's own judge the one that is about it."""
    judge = judge_name(run.spec) if strategy is Strategy.DELEGATE else ""
    return locked_calibration(run.tenant_id, scope_id, strategy, judge=judge)
