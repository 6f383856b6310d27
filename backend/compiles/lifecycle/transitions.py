"""Moving a compile along `domain.lifecycle`: status, times, event, lease, in the caller's transaction."""

from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.compiles import booking, leases
from backend.compiles.booking import Fenced
from backend.compiles.events import append_event, touch
from backend.compiles.lifecycle.concurrency import check_room
from backend.compiles.models import Compile, StepRun
from backend.compiles.notices import notify_status
from backend.domain.errors import Conflict, NotFound
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepStatus, check_move
from backend.tenants import audit
from backend.tenants.actors import SYSTEM, Actor

FORGOTTEN = "data_forgotten"  # `failure_code` of a compile that cannot go on for want of its candidates


def move(fenced: Fenced, to: CompileStatus, **changes: Any) -> None:
    """Change the status of a locked compile. The end of one books what it used and gives back what was set aside for
    it, which locks the account: lock nothing else after it. Raises Conflict for a move the table does not allow."""
    compile = fenced.compile
    check_move(CompileStatus(compile.status), to)
    now = timezone.now()
    if to == CompileStatus.RUNNING and compile.started_at is None:
        changes["started_at"] = now
    if to in TERMINAL:
        changes.setdefault("reserved_microusd", 0)
        changes["ended_at"] = now
    touch(compile, status=to, **changes)
    append_event(compile.tenant_id, compile.id, "compile.status", {"status": to.value})
    if to in TERMINAL:
        append_event(compile.tenant_id, compile.id, f"compile.{to.value}", _summary(compile))
    notify_status(compile, to)
    if to in TERMINAL:
        booking.end(fenced)


def _summary(compile: Compile) -> dict[str, Any]:
    data: dict[str, Any] = {"spent_microusd": compile.spent_microusd, "k_score_ppm": compile.k_score_ppm}
    if compile.failure_code:
        data |= {"code": compile.failure_code, "message": compile.failure_message, "step": compile.failed_step}
    return data


def locked_compile(tenant_id: UUID, compile_id: UUID) -> Fenced:
    """The compile, its lease and itself locked in that order (the order every writer keeps). Raises NotFound."""
    if not Compile.objects.filter(tenant_id=tenant_id, id=compile_id).exists():
        raise NotFound("There is no such compile.")
    leases.lock(compile_id)
    return Fenced.around(Compile.objects.select_for_update().get(tenant_id=tenant_id, id=compile_id))


def cancel(tenant_id: UUID, compile_id: UUID, *, actor: Actor = SYSTEM) -> Compile:
    """Ask a compile to stop. What nobody works on is canceled at once; a running one becomes `canceling` until its
    worker and runner let go. Asking twice is asking once; an ended compile is a Conflict."""
    fenced = locked_compile(tenant_id, compile_id)
    compile = fenced.compile
    status = CompileStatus(compile.status)
    if status in (CompileStatus.CANCELING, CompileStatus.CANCELED):
        return compile
    if status in TERMINAL:
        raise Conflict(f"This compile has ended ({status}); there is nothing to cancel.", code="compile_ended")
    leases.request_cancel(compile_id)
    if status == CompileStatus.QUEUED:
        move(fenced, CompileStatus.CANCELED)
    else:
        move(fenced, CompileStatus.CANCELING)
        leases.wake_worker(tenant_id, compile_id)
    audit.note(tenant_id, actor=actor, action="compile.canceled", target=encode_id(Prefix.COMPILE, compile_id))
    return compile


def resume(tenant_id: UUID, compile_id: UUID, *, budget_microusd: int | None, actor: Actor = SYSTEM) -> Compile:
    """Put a failed, expired or canceled compile back into the queue; it goes on at its first unfinished step, with
    everything paid for kept."""
    fenced = locked_compile(tenant_id, compile_id)
    compile = fenced.compile
    if CompileStatus(compile.status) not in (CompileStatus.FAILED, CompileStatus.EXPIRED, CompileStatus.CANCELED):
        raise Conflict(
            f"Only a failed, expired or canceled compile can be resumed; this one is {compile.status}. "
            "To compile its spec again, POST it to /v1/compiles.",
            code="compile_not_resumable",
        )
    if compile.failure_code == FORGOTTEN:
        raise Conflict(
            "What this compile had written was forgotten, as the team's retention asks: POST its spec again.",
            code="data_forgotten",
        )
    if budget_microusd is not None and budget_microusd < compile.spent_microusd:
        raise Conflict(
            f"The new budget is below the {compile.spent_microusd} micro-USD already spent; give that much or more.",
            code="budget_below_spent",
        )
    check_room(tenant_id)
    StepRun.objects.filter(tenant_id=tenant_id, compile=compile).exclude(status=StepStatus.SUCCEEDED).update(
        status=StepStatus.PENDING, runner_job_id=None
    )
    changes: dict[str, Any] = {"failure_code": "", "failure_message": "", "failed_step": "", "ended_at": None}
    if budget_microusd is not None:
        changes["budget_microusd"] = budget_microusd
    move(fenced, CompileStatus.QUEUED, **changes)
    leases.rearm(tenant_id, compile_id)
    booking.hold_again(compile)
    data = {"budget_microusd": compile.budget_microusd}
    audit.note(
        tenant_id, actor=actor, action="compile.resumed", target=encode_id(Prefix.COMPILE, compile_id), data=data
    )
    return compile
