"""The states of a compile and of its steps, and the moves allowed between them: one table each."""

from enum import StrEnum

from backend.domain.errors import Conflict


class CompileStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_BATCH = "awaiting_batch"  # its teacher's vendor has a batch; no process works on it
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    GATE_FAILED = "gate_failed"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"


class StepName(StrEnum):
    """The steps of the pipeline in order; a compile has one step row of each."""

    SLICING = "slicing"
    SYNTHESIS = "synthesis"
    VERIFICATION = "verification"
    SELECTION = "selection"
    LABELING = "labeling"
    DISTILLATION = "distillation"
    EVALUATION = "evaluation"
    GATE = "gate"
    PACKAGING = "packaging"


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


STEPS: tuple[StepName, ...] = tuple(StepName)

TERMINAL = frozenset(
    {
        CompileStatus.SUCCEEDED,
        CompileStatus.GATE_FAILED,
        CompileStatus.FAILED,
        CompileStatus.CANCELED,
        CompileStatus.EXPIRED,
    }
)

MOVES: dict[CompileStatus, frozenset[CompileStatus]] = {
    CompileStatus.QUEUED: frozenset(
        {CompileStatus.RUNNING, CompileStatus.CANCELED, CompileStatus.EXPIRED, CompileStatus.FAILED}
    ),
    CompileStatus.RUNNING: frozenset(
        {
            CompileStatus.AWAITING_BATCH,
            CompileStatus.CANCELING,
            CompileStatus.SUCCEEDED,
            CompileStatus.GATE_FAILED,
            CompileStatus.FAILED,
            CompileStatus.EXPIRED,
        }
    ),
    CompileStatus.AWAITING_BATCH: frozenset(
        {CompileStatus.RUNNING, CompileStatus.CANCELING, CompileStatus.FAILED, CompileStatus.EXPIRED}
    ),
    CompileStatus.CANCELING: frozenset({CompileStatus.CANCELED, CompileStatus.FAILED}),
    # resume: what failed or expired goes back to the queue and starts at the first unfinished step
    CompileStatus.FAILED: frozenset({CompileStatus.QUEUED}),
    CompileStatus.EXPIRED: frozenset({CompileStatus.QUEUED}),
    CompileStatus.CANCELED: frozenset({CompileStatus.QUEUED}),
    CompileStatus.SUCCEEDED: frozenset(),
    CompileStatus.GATE_FAILED: frozenset(),
}


def check_move(now: CompileStatus, to: CompileStatus) -> None:
    """Raise Conflict unless a compile in state `now` may become `to`."""
    if to not in MOVES[now]:
        allowed = ", ".join(sorted(MOVES[now])) or "nothing: it has ended"
        raise Conflict(f"A compile that is {now} cannot become {to}; from here it can become {allowed}.")
