"""Suspension: where more of a family's accepted drafts are bad than its spec allows, beyond doubt, it generates afresh
from then on."""

from typing import Any

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
    if measured.is_above(bound):
        suspend(row)
        run.warn(
            "drafts_suspended",
            f"At least {measured.low:.1%} of the accepted drafts of family {run.spec.family} are bad, and "
            f"{bound:.1%} are allowed: from now on it is generated afresh. Delete the family's drafts (DELETE "
            "/v1/drafts?family=) to begin again.",
            **data,
        )
