"""Work on one leased distil, evaluate or select job: fetch its inputs, feed the child process, keep the lease, hand
over checkpoints and results (`sending`: beside all this, so that no heartbeat waits for a gigabyte).

The lease is the only authority: when it is lost (410) the child is killed and nothing is reported; when a heartbeat's
answer says cancel, the child is killed and the job ends as `canceled`; when it says preempt, a training makes a
checkpoint and goes back to the queue. A server that does not answer decides nothing: the child works on, and what it
made is kept and offered again, for as long as an outage may last. Meanwhile the job may have gone to another runner.
Then both work, and the first heartbeat that comes through ends this one.
"""

import logging
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from backend.domain.jobs.blob_transfers import Unkept
from backend.domain.jobs.runner_jobs import Claim, Progress, RunnerJobKind
from gpu_runners.agent.isolation import Child
from gpu_runners.agent.lease_client import JobClient, LeaseLost
from gpu_runners.agent.sending import Handover, Sending, failure_of, reason_of
from gpu_runners.agent.stalling import StallWatch
from gpu_runners.config import STILL_S
from gpu_runners.errors import JobFailed, JobPreempted
from gpu_runners.http import Refused, Unreachable, backoff_s

Answer = TypeVar("Answer")
log = logging.getLogger("kolm.runner")
_TICK_S = 0.25
_GIVE_WAY_GRACE_S = 120.0  # from the checkpoint of a job that gives way to its end at the blob store
_STOP_GRACE_S = 8.0  # from SIGTERM to a checkpoint handed over; Kubernetes and our supervisor give 10 s or more
_BLOBS = {
    RunnerJobKind.DISTILL: {"dataset": "dataset_sha256"},
    RunnerJobKind.DISTILL_CAUSAL: {"dataset": "dataset_sha256", "start": "start_sha256", "sampled": "sampled_sha256"},
    RunnerJobKind.DISTILL_SPANS: {"dataset": "dataset_sha256"},
    RunnerJobKind.EVALUATE: {
        "inputs": "inputs_sha256",
        "adapter": "adapter_sha256",
        "rules": "rules_sha256",
        "gold": "gold_sha256",
        "random": "random_sha256",
    },
    RunnerJobKind.EVALUATE_CAUSAL: {"inputs": "inputs_sha256", "adapter": "adapter_sha256", "rules": "rules_sha256"},
    RunnerJobKind.EVALUATE_SPANS: {"inputs": "inputs_sha256", "adapter": "adapter_sha256", "rules": "rules_sha256"},
    RunnerJobKind.PACK_RECIPES: {
        "adapter": "adapter_sha256",
        "observations": "observations_sha256",
        "prompts": "prompts_sha256",
        "earlier": "earlier_sha256",
        "feedback": "feedback_sha256",
        "epoch": "epoch_sha256",
    },
    RunnerJobKind.SELECT: {"columns": "columns_sha256", "rows": "rows_sha256"},
}

_TRAININGS = frozenset((RunnerJobKind.DISTILL, RunnerJobKind.DISTILL_CAUSAL, RunnerJobKind.DISTILL_SPANS))
# "", or no such key: there is none
_OPTIONAL = frozenset(("rules", "gold", "random", "earlier", "feedback", "epoch", "start", "sampled"))


class Lease:
    """The time of the next heartbeat, and until when the job may be ours. Its clock starts at the claim's arrival."""

    def __init__(
        self, *, job: JobClient, claim: Claim, outage_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.job, self.clock, self.lease_s, self.outage_s = job, clock, claim.lease_s, outage_s
        self.handover = Handover(job, patience_s=outage_s)
        self._warned_of = ""
        self.is_preempted = False
        self.progress = Progress(
            step=0, n_steps=0, loss=None, eta_s=None, checkpoint_sha256=claim.checkpoint_sha256, note="starting"
        )
        self._confirmed_at = clock()
        self._next_at = self._confirmed_at
        self._failures, self._rng = 0, random.Random()
        self._started = self._confirmed_at

    @property
    def due_in_s(self) -> float:
        return max(0.0, self._next_at - self.clock())

    @property
    def is_heard(self) -> bool:
        """Say whether the last heartbeat came through."""
        return self._failures == 0

    def expedite(self) -> None:
        """There is news that the server should have before the next beat is due."""
        self._next_at = self.clock()

    def beat(self) -> bool:
        """One heartbeat; True when the job is to be cancelled. Network failures are retried with jitter at later calls.
        Raises LeaseLost, also when no answer came for the whole of an outage."""
        asked_at = self.clock()
        try:
            answer = self.job.heartbeat(self.progress, timeout_s=max(1.0, self.lease_s / 3))
        except Unreachable as error:
            if self.clock() - self._confirmed_at >= self.outage_s:
                raise LeaseLost(f"no heartbeat came through for {self.outage_s:.0f} s: {error}") from error
            self._next_at = self.clock() + backoff_s(self._failures, rng=self._rng, cap_s=self.lease_s / 6)
            self._failures += 1
            return False
        self.lease_s, self.is_preempted = answer.lease_s, answer.preempt
        self._failures, self._confirmed_at, self._next_at = 0, asked_at, asked_at + self._pause_s()
        self.progress = replace(self.progress, unkept="", unkept_bytes=0)
        return answer.cancel

    def note_handover(self, sent: Sending, step: int) -> None:
        """Let the next heartbeat, which is due now, say that a checkpoint is kept, or why it is not: once for each
        reason, until one is kept again."""
        if sent.fault is None:
            self._warned_of = ""
            self.progress = replace(self.progress, checkpoint_sha256=sent.sha256, checkpoint_step=step)
            self.expedite()
        else:
            log.warning("a checkpoint of %d bytes was not handed over: %s", sent.n_bytes, sent.fault)
            self.note_unkept(reason_of(sent.fault), sent.n_bytes)

    def note_unkept(self, reason: Unkept, n_bytes: int) -> None:
        if reason != self._warned_of:
            self._warned_of = reason
            self.progress = replace(self.progress, unkept=reason.value, unkept_bytes=n_bytes)
            self.expedite()

    def _pause_s(self) -> float:
        """A third of the lease, but oftener while a job is young, because people watch its loss: about 100 beats
        whatever the job's length."""
        return min(self.lease_s / 3, max(2.0, 0.05 * (self.clock() - self._started)))


def work_on(
    claim: Claim,
    *,
    lease: Lease,
    child: Child,
    base_dir: Path | None,
    stopping: Callable[[], bool],
    still_s: float = STILL_S,
) -> None:
    """Returns when the job is reported, or dropped because the lease is lost."""
    folder = Path(tempfile.mkdtemp(prefix="kolm-job-"))
    job = lease.job
    try:
        _fetch_inputs(claim, lease=lease, folder=folder)
        child.submit(kind=claim.kind, payload=claim.payload, folder=folder, base_dir=base_dir)
        watch = StallWatch(RunnerJobKind(claim.kind), cpu_s=child.cpu_s, still_s=still_s)
        result = _attempt(lease=lease, child=child, watch=watch, stopping=stopping)
        if not report(
            lambda: job.report_success(result), within_s=lease.outage_s, meanwhile=lambda: _beat_if_due(lease)
        ):
            raise Refused("the result")
    except JobFailed as failure:
        log.warning("job %s failed: %s", claim.job_id, failure.code)  # its message goes to the compile
        error = failure
        report(lambda: job.report_failure(error), within_s=lease.outage_s)
    except LeaseLost as lost:
        log.warning("job %s is dropped: %s", claim.job_id, lost)
        child.kill()
    except Refused as refused:
        child.kill()
        log.warning("job %s: %s", claim.job_id, refused)
        failed = JobFailed(
            f"The web process did not take what the runner sent ({refused}); the operator should run one version on "
            "both sides.",
            code="runner_refused",
            retryable=True,
        )
        report(lambda: job.report_failure(failed), within_s=lease.outage_s)
    finally:
        lease.handover.close()
        shutil.rmtree(folder, ignore_errors=True)


def report(send: Callable[[], None], *, within_s: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
    """Say it until it is heard or it is too late, with a call of `meanwhile` before each try: heartbeats get through
    where a report does not, as without the blob disk. A lost lease is not an error here: someone else reports. False
    where the server refused it."""
    rng, started, attempt = random.Random(), time.monotonic(), 0
    while True:
        try:
            if attempt:
                meanwhile()
            send()
            return True
        except Refused as refused:
            log.warning("the report was refused: %s", refused)
            return False
        except LeaseLost as lost:
            log.warning("the report was not taken: %s", lost)
            return True
        except Unreachable as error:
            if time.monotonic() - started >= within_s:
                log.warning("the report could not be delivered: %s", error)
                return True
            time.sleep(backoff_s(attempt, rng=rng, cap_s=5.0))
            attempt += 1


def _attempt(*, lease: Lease, child: Child, watch: StallWatch, stopping: Callable[[], bool]) -> dict[str, Any]:
    """The result, from the child's events."""
    asked_to_stop_at: float | None = None
    gives_way = False
    while True:
        if lease.due_in_s == 0 and lease.beat():
            child.kill()
            raise JobFailed("The job was cancelled.", code="canceled")
        _look_after_checkpoint(lease, child)
        if lease.is_preempted and not gives_way:
            child.ask_to_stop()  # what makes no checkpoints works on
            gives_way = True
        if stopping() and asked_to_stop_at is None:
            child.ask_to_stop()
            asked_to_stop_at = time.monotonic()
        if asked_to_stop_at is not None and time.monotonic() - asked_to_stop_at > _STOP_GRACE_S:
            child.kill()
            raise JobFailed(
                "The runner was stopped before a checkpoint was ready.", code="runner_stopping", retryable=True
            )
        event = child.next_event(timeout_s=min(_TICK_S, lease.due_in_s))
        if event is not None:
            watch.record_event(step=event.get("step", 0), n_steps=event.get("n_steps", 0), note=event.get("note", ""))
            if (result := _handle(event, lease=lease, child=child, stopping=stopping)) is not None:
                return result
        elif (why := watch.verdict()) is not None:
            child.kill()
            raise JobFailed(
                f"The working process stood still ({why}) and was ended; the job goes on from its last checkpoint.",
                code="runner_stalled",
                retryable=True,
            )


def _handle(
    event: dict[str, Any], *, lease: Lease, child: Child, stopping: Callable[[], bool]
) -> dict[str, Any] | None:
    """The result when the job is done. Raises what the child reports."""
    match event["event"]:
        case "progress":
            names = ("step", "n_steps", "loss", "eta_s", "note")
            lease.progress = replace(lease.progress, **{name: event[name] for name in names})
        case "checkpoint":
            lease.handover.offer(Path(event["path"]), event["at_step"])
        case "checkpoint_failed":
            log.warning("a checkpoint could not be written: %s", event["message"])
            lease.note_unkept(Unkept.RUNNER_DISK, event["n_bytes"])
        case "failed":
            if event["code"] == "runner_stopping" and lease.is_preempted and not stopping():
                _finish_checkpoint(lease, child, grace_s=_GIVE_WAY_GRACE_S)
                raise JobPreempted()
            if event["code"] == "runner_stopping":
                _finish_checkpoint(lease, child, grace_s=_STOP_GRACE_S)
            raise JobFailed(event["message"], code=event["code"], retryable=event["retryable"])
        case "done":
            lease.handover.close()
            for path in event["blobs"]:
                _hand_over(Path(path), lease=lease, stopping=stopping)
            return dict(event["result"])
    return None


def _look_after_checkpoint(lease: Lease, child: Child) -> None:
    """Take note of a checkpoint whose transfer has ended; the child may then make the next one."""
    if (ended := lease.handover.take_ended()) is not None:
        lease.note_handover(*ended)
        child.note_handed_over(ended[0].took_s)


def _finish_checkpoint(lease: Lease, child: Child, *, grace_s: float) -> None:
    """The last one, of a runner or a job that goes away, as far as it gets in a grace."""
    until = time.monotonic() + grace_s
    while lease.handover.is_busy and time.monotonic() < until:
        _beat_if_due(lease)
        _look_after_checkpoint(lease, child)
        time.sleep(0.05)
    _beat_if_due(lease)


def _hand_over(path: Path, *, lease: Lease, stopping: Callable[[], bool]) -> None:
    """Store a result, with heartbeats all the while. Raises JobFailed where it cannot be stored, LeaseLost."""
    sending = Sending(lease.job, path, patience_s=lease.outage_s, waits_for_room=True)
    stopped_at: float | None = None
    try:
        while not sending.wait(min(_TICK_S, lease.due_in_s)):
            _beat_if_due(lease)
            if stopping():
                stopped_at = stopped_at or time.monotonic()
                if time.monotonic() - stopped_at > _STOP_GRACE_S:
                    raise JobFailed(
                        "The runner was stopped while it handed over the adapter; the job goes on from its last "
                        "checkpoint.",
                        code="runner_stopping",
                        retryable=True,
                    )
    finally:
        sending.give_up()
    if sending.fault is not None:
        raise failure_of(sending, waited_s=sending.took_s) from sending.fault


def _fetch_inputs(claim: Claim, *, lease: Lease, folder: Path) -> None:
    wanted = {name: claim.payload.get(field) for name, field in _BLOBS[RunnerJobKind(claim.kind)].items()}
    if claim.kind in _TRAININGS and claim.checkpoint_sha256 is not None:
        wanted["checkpoint"] = claim.checkpoint_sha256
    for name, sha256 in wanted.items():
        if not sha256 and name in _OPTIONAL:
            continue
        if not isinstance(sha256, str):
            raise JobFailed(f"The job names no {name}.", code="invalid_job")
        _patiently(lambda at=folder / name, sha256=sha256: _save(sha256, at, lease=lease), lease=lease)  # type: ignore[misc]


def _save(sha256: str, path: Path, *, lease: Lease) -> None:
    """Heartbeats go on while a large input comes in."""
    lease.job.save_blob(sha256, path, meanwhile=lambda: _beat_if_due(lease))


def _beat_if_due(lease: Lease) -> None:
    if lease.due_in_s == 0 and lease.beat():
        raise JobFailed("The job was cancelled.", code="canceled")


def _patiently(act: Callable[[], Answer], *, lease: Lease) -> Answer:
    """A transfer, retried for as long as heartbeats keep the lease and an outage may last."""
    rng, attempt, started = random.Random(), 0, lease.clock()
    while True:
        _beat_if_due(lease)
        try:
            return act()
        except Unreachable as error:
            if lease.clock() - started >= lease.outage_s:
                message = f"The blob store gave or took nothing for {lease.outage_s:.0f} s: {error}."
                raise JobFailed(message, code="blob_store_unavailable", retryable=True) from error
            time.sleep(backoff_s(attempt, rng=rng, cap_s=2.0))
            attempt += 1
