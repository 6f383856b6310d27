"""The events of a compile that webhooks get: every change of its status and every finished step, in the transaction of
the change.

`transitions.move` is the only way from one status to another and calls `notify_status`, so that no end goes untold.
"""

from typing import Any

from backend.compiles.models import Compile, StepRun
from backend.compiles.shapes import CompileNotice
from backend.domain.lifecycle import STEPS, CompileStatus, StepName, StepStatus
from backend.domain.webhooks.events import EventType
from backend.webhooks.emit import emit

EVENT_OF: dict[CompileStatus, EventType | None] = {
    CompileStatus.QUEUED: EventType.COMPILE_QUEUED,
    CompileStatus.RUNNING: EventType.COMPILE_STARTED,
    CompileStatus.AWAITING_BATCH: None,
    CompileStatus.CANCELING: None,
    CompileStatus.SUCCEEDED: EventType.COMPILE_SUCCEEDED,
    CompileStatus.GATE_FAILED: EventType.COMPILE_GATE_FAILED,
    CompileStatus.FAILED: EventType.COMPILE_FAILED,
    CompileStatus.CANCELED: EventType.COMPILE_CANCELED,
    CompileStatus.EXPIRED: EventType.COMPILE_FAILED,
}


def notify_status(compile: Compile, status: CompileStatus) -> None:
    """Emit the event of a status, if it has one."""
    type = EVENT_OF[status]
    if type is not None:
        emit(compile.tenant_id, type, {"object": _object(compile)})


def notify_progress(compile: Compile, step: StepName) -> None:
    """Emit that a step was finished."""
    n_done = StepRun.objects.filter(
        tenant_id=compile.tenant_id, compile_id=compile.id, status=StepStatus.SUCCEEDED
    ).count()
    progress = {"step": step.value, "steps_done": n_done, "steps_total": len(STEPS)}
    emit(compile.tenant_id, EventType.COMPILE_PROGRESS, {"object": _object(compile) | {"progress": progress}})


def _object(compile: Compile) -> dict[str, Any]:
    row = Compile.objects.get(tenant_id=compile.tenant_id, id=compile.id)  # its numbers move past the caller's copy
    return CompileNotice.of(row)
