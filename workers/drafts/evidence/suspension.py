"""Suspension: where more of a family's accepted drafts are bad than its spec allows, beyond doubt, it generates afresh
from then on; where another model accepted them, the teacher judges from then on."""

from typing import Any

from backend.domain.drafts.vocabulary import Strategy
from backend.domain.number_words import percent
from backend.drafts.calibrations import measured_bad_rate, suspend
from backend.drafts.models import Calibration
from workers.step.durable import CompileRun


def suspend_beyond_bound(run: CompileRun, row: Calibration, **data: Any) -> None:
    """Suspend a locked row whose rate of bad drafts is above the spec's bound, and warn, once; `data` goes with the
    warning. The caller saves the row."""
    bound = run.spec.draft_cache.max_bad_rate
    row.max_bad_rate = bound
    if row.suspended_at is not None:
        return
    measured = measured_bad_rate(row)
    if not measured.is_above(bound):
        return
    suspend(row)
    low, allowed = (percent(round(share * 1_000_000)) for share in (measured.low, bound))
    if row.strategy == Strategy.DELEGATE:
        run.warn(
            "draft_judge_suspended",
            f"At least {low} of the drafts of family {run.spec.family} that {row.judge} accepted are bad, "
            f"and {allowed} are allowed: from now on the teacher judges them. Another draft_cache.judge begins anew.",
            **data,
        )
        return
    run.warn(
        "drafts_suspended",
        f"At least {low} of the accepted drafts of family {run.spec.family} are bad, and "
        f"{allowed} are allowed: from now on it is generated afresh. Delete the family's drafts (DELETE "
        "/v1/drafts?family=) to begin again.",
        **data,
    )
