"""The pipeline of a compile: claim it, run its unfinished steps in order, end it or let go of it.

A step returns StepDone (its effects are committed) or StepWaiting (a runner works; the lease was given back). What is
raised decides the rest:

    LeaseLost        somebody else has the compile: leave without a word
    Canceled         the customer asked: keep receipts and costs, end as canceled
    CustomerError    theirs to mend: end as failed with the code and what to do
    OurError, bugs   ours: try again after 2, 4, 8 ... s, at most MAX_ATTEMPTS times, then end as failed
    Unavailable      a store is away (so is the database): wait for it, which is no attempt, for KOLM_OUTAGE_S
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from backend.compiles import leases
from backend.compiles.booking import Fenced
from backend.compiles.events import append_event
from backend.compiles.leases import Lease, LeaseLost
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, StepRun, TeacherCall
from backend.compiles.states import CallState
from backend.domain.errors import CustomerError, KolmError, OurError, Unavailable
from backend.domain.jobs.runner_results import BadResult
from backend.domain.lifecycle import STEPS, TERMINAL, CompileStatus, StepName, StepStatus
from backend.domain.money.pricing import kept_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.planning.ablations import STUDENT_ARMS, Arm
from backend.domain.spec.defaults import judge_of, rewarder_of
from backend.domain.spec.parsing import read_stored_spec
from backend.runner_jobs import leases as job_leases
from backend.tenants.isolation import tenant_scope
from backend.usage import holds
from workers.preflight.compile_start import begin_compile
from workers.step.batch_wait import LAST_LOOK_S, has_open_batches, is_waiting, wind_down_ended, winds_down
from workers.step.durable import Canceled, CompileRun, Heartbeat, StopSignal, begin_step, is_away, patiently
from workers.step.result import StepDone, StepWaiting
from workers.step.runner_wait import RunnerJobFailed
from workers.step.spending import pays_stored_call_itself
from workers.step.teacher_calls import write_off
from workers.steps.ablation import ARM_STEPS, STUDENT_STEPS
from workers.steps.distillation import run_distillation
from workers.steps.evaluation import run_evaluation
from workers.steps.gate import run_gate
from workers.steps.labeling import run_labeling
from workers.steps.packaging import run_packaging
from workers.steps.selection import run_selection
from workers.steps.slicing import run_slicing
from workers.steps.synthesis import run_synthesis
from workers.steps.verification import run_verification
from workers.teachers.protocol import RewardFailed, TeacherFailed

log = logging.getLogger("kolm.walk")

MAX_ATTEMPTS = 5
LONGEST_WAIT_S = 15.0
MAX_CLAIMS = 12  # without a finished step: whoever takes this compile dies of it
_AGAIN = "Resuming the compile tries this step again; what is done stays done."

STEP_FUNCTIONS: dict[StepName, Callable[[CompileRun], StepDone | StepWaiting]] = {
    StepName.SLICING: run_slicing,
    StepName.SYNTHESIS: run_synthesis,
    StepName.VERIFICATION: run_verification,
    StepName.SELECTION: run_selection,
    StepName.LABELING: run_labeling,
    StepName.DISTILLATION: run_distillation,
    StepName.EVALUATION: run_evaluation,
    StepName.GATE: run_gate,
    StepName.PACKAGING: run_packaging,
}


class Crashing(OurError):
    def __init__(self) -> None:
        super().__init__("Several workers ended while they worked on this step.", code="worker_crashed")


def steps_of(compile: Compile) -> dict[StepName, Callable[[CompileRun], StepDone | StepWaiting]]:
    """An ablation copies where another compile makes."""
    if compile.ablation_of is None:
        return STEP_FUNCTIONS
    return {**STEP_FUNCTIONS, **(STUDENT_STEPS if Arm(compile.arm) in STUDENT_ARMS else ARM_STEPS)}


def advance(compile_id: UUID) -> None:
    """Carry a compile as far as it goes now. Safe to call at any time, by anybody, twice."""
    lease = leases.claim(compile_id, owner=f"{socket.gethostname()}:{os.getpid()}")
    if lease is None:
        return
    stop = StopSignal()
    try:
        with Heartbeat(lease, stop):
            _advance(lease, stop)
    except LeaseLost:
        log.warning("lease lost", extra={"compile": str(compile_id), "fence": lease.fence})


def _advance(lease: Lease, stop: StopSignal) -> None:
    started = time.monotonic()
    try:
        run = _open(lease, stop)
        if run is not None:
            _run_steps(run)
    except (Canceled, LeaseLost, CustomerError, TeacherFailed) as error:
        _end_with_batches(lease, error, stop)
    except Exception as error:
        log.exception("compile step failed", extra={"compile": str(lease.compile_id)})
        connection.close()  # its transaction state is unknown
        # what went well for longer than an outage may last was not in it
        _end_patiently(lease, error, stop, anew=time.monotonic() - started > settings.KOLM_OUTAGE_S)


def _end_with_batches(lease: Lease, error: Exception, stop: StopSignal) -> None:
    """End the compile, or its try. A canceled compile waits until a vendor has stopped what it still has of it; of one
    that failed that is stopped after its end."""

    def open_run() -> CompileRun | None:
        with tenant_scope(lease.tenant_id):
            is_open = has_open_batches(lease.tenant_id, lease.compile_id)
        return _load(lease, stop) if is_open else None

    run = patiently(open_run, stop=stop) if isinstance(error, Canceled) else None
    if run is None or not winds_down(run):
        _end_patiently(lease, error, stop)


def _end_patiently(lease: Lease, error: Exception, stop: StopSignal, *, anew: bool = False) -> None:
    patiently(lambda: _end(lease, error, anew=anew), stop=stop)


def _open(lease: Lease, stop: StopSignal) -> CompileRun | None:
    """The compile as a run, or None when there is nothing left to do."""
    with leases.fenced_transaction(lease) as fenced:
        status = CompileStatus(fenced.compile.status)
        if status in TERMINAL and not has_open_batches(lease.tenant_id, lease.compile_id):
            leases.release(lease, due_in_s=None)
            return None
        if status == CompileStatus.CANCELING:
            raise Canceled
        if lease.attempts > MAX_CLAIMS and status not in TERMINAL:
            raise Crashing
        if status == CompileStatus.QUEUED:
            transitions.move(fenced, CompileStatus.RUNNING)
    run = _load(lease, stop)
    if status not in TERMINAL:
        return run
    wind_down_ended(run)
    return None


def _load(lease: Lease, stop: StopSignal) -> CompileRun:
    with leases.fenced_transaction(lease) as fenced:
        spec_json, estimate = fenced.compile.spec, fenced.compile.estimate
    spec = read_stored_spec(spec_json)
    book = kept_book(estimate.get("price_version", ""))
    prices = kept_prices(estimate, spec.teacher, book=book, rewarder=rewarder_of(spec), judge=judge_of(spec))
    return CompileRun(lease=lease, spec=spec, prices=prices, book=book, stop=stop)


def _run_steps(run: CompileRun) -> None:
    with run.transaction() as fenced:
        functions = steps_of(fenced.compile)
        rows = StepRun.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        finished = set(rows.filter(status=StepStatus.SUCCEEDED).values_list("name", flat=True))
        was_waiting = fenced.compile.status == CompileStatus.AWAITING_BATCH
    if is_waiting(run):
        return
    for name in STEPS:
        if name in finished:
            continue
        run.stop.check()
        begin_step(run, name, is_return=was_waiting)
        was_waiting = False
        if name is STEPS[0]:
            begin_compile(run)
        outcome = functions[name](run)
        if isinstance(outcome, StepWaiting) or outcome.ends is not None:
            return


def _end(lease: Lease, error: Exception, *, anew: bool = False) -> None:
    """Give the compile its end or its next try, as the table above says. One that has ended, of which a vendor has a
    batch, is looked at again; where its spec cannot be read any more, nobody can."""
    with leases.fenced_transaction(lease) as fenced:
        if isinstance(error, LeaseLost):
            raise LeaseLost
        if CompileStatus(fenced.compile.status) in TERMINAL:
            leases.release(lease, due_in_s=None if isinstance(error, CustomerError) else LAST_LOOK_S)
        elif isinstance(error, Canceled) or fenced.compile.status == CompileStatus.CANCELING:
            _cancel(fenced)
            leases.release(lease, due_in_s=_left_over(fenced.compile))
        elif _is_outage(error):
            away_s = leases.away_for_s(lease, anew=anew)
            if away_s < settings.KOLM_OUTAGE_S:
                # half as long again as it has been away: soon after a short outage, seldom in a long one
                delay_s = round(min(LONGEST_WAIT_S, max(1.0, away_s / 2)), 1)
                _report_retry(fenced.compile, lease, error, delay_s)
                leases.release_until_back(lease, due_in_s=delay_s)
            else:
                _fail(fenced, error)
                leases.release(lease, due_in_s=_left_over(fenced.compile))
        elif _is_final(leases.attempts_of(lease), error):
            _fail(fenced, error)
            leases.release(lease, due_in_s=_left_over(fenced.compile))
        else:
            delay_s = 2.0 ** min(leases.attempts_of(lease), 6)
            _report_retry(fenced.compile, lease, error, delay_s)
            leases.release(lease, due_in_s=delay_s, is_retry=True)


def _left_over(compile: Compile) -> float | None:
    """Seconds until an ended compile is due: at once where a vendor still has a batch of it, which is to be stopped."""
    return 0.0 if has_open_batches(compile.tenant_id, compile.id) else None


def _report_retry(compile: Compile, lease: Lease, error: Exception, delay_s: float) -> None:
    code, message = "internal_error", "A fault of ours; trying again."
    if isinstance(error, KolmError):
        code, message = error.code, error.message
    elif is_away(error):
        code, message = "unavailable", "The database did not answer; trying again."
    data = {"code": code, "message": message, "attempt": leases.attempts_of(lease), "retry_in_s": delay_s}
    append_event(compile.tenant_id, compile.id, "step.retrying", data)


def _is_outage(error: Exception) -> bool:
    return isinstance(error, Unavailable) or is_away(error)


def _is_final(attempts: int, error: Exception) -> bool:
    if isinstance(error, RunnerJobFailed | BadResult) or (isinstance(error, TeacherFailed) and not error.retryable):
        return True  # a runner's job has had its own attempts: asking again gives the same answer
    return isinstance(error, CustomerError) or attempts >= MAX_ATTEMPTS


def _cancel(fenced: Fenced) -> None:
    compile = fenced.compile
    _stop_jobs(compile)
    _release_calls(fenced)
    running = StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile, status=StepStatus.RUNNING)
    running.update(status=StepStatus.CANCELED, ended_at=timezone.now())
    if compile.status in (CompileStatus.RUNNING, CompileStatus.AWAITING_BATCH):
        transitions.move(fenced, CompileStatus.CANCELING)
    transitions.move(fenced, CompileStatus.CANCELED)


def _fail(fenced: Fenced, error: Exception) -> None:
    compile = fenced.compile
    _stop_jobs(compile)
    _release_calls(fenced)
    running = StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile, status=StepStatus.RUNNING)
    step = running.order_by("position").first()
    running.update(status=StepStatus.FAILED, ended_at=timezone.now())
    code, message = _failure_of(error)
    transitions.move(
        fenced,
        CompileStatus.FAILED,
        failure_code=code,
        failure_message=message,
        failed_step=step.name if step else "",
    )
    if _is_ours(compile, error):
        holds.credit_our_fault(compile.tenant_id, compile.id, code)


def _is_ours(compile: Compile, error: Exception) -> bool:
    """Decide whether the customer gets back what the compile cost. A teacher or a reward model of the customer's own
    that does not answer is no failure of ours."""
    if isinstance(error, RewardFailed):
        return False
    if isinstance(error, TeacherFailed):
        return bool(compile.spec["teacher"]["provider"] == "grammar")
    return not isinstance(error, CustomerError)


def _failure_of(error: Exception) -> tuple[str, str]:
    """The failure's code and message. A customer's error says by itself what to do; what else ends a compile may go
    better the next time."""
    if isinstance(error, CustomerError):
        return error.code, error.message
    if isinstance(error, KolmError):
        return error.code, f"{error.message} {_AGAIN}"
    if is_away(error):
        return "unavailable", f"The database did not answer. {_AGAIN}"
    return "internal_error", f"A fault of ours. {_AGAIN}"


def _stop_jobs(compile: Compile) -> None:
    for row in StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile).exclude(runner_job_id=None):
        if row.status == StepStatus.RUNNING and row.runner_job_id is not None:
            job_leases.cancel(row.runner_job_id)


def _release_calls(fenced: Fenced) -> None:
    """Calls left `started` died with their process; nobody will come back to write them off."""
    compile = fenced.compile
    for call in TeacherCall.objects.filter(tenant_id=compile.tenant_id, compile=compile, state=CallState.STARTED):
        write_off(fenced, call, is_own_key=pays_stored_call_itself(compile.spec, call.key))
