"""Files on their way to the blob store, each in a thread of its own: heartbeats, events and the training go on while a
gigabyte goes up.

A checkpoint that cannot be handed over is a warning; an adapter that cannot is how its job failed.
"""

import random
import threading
import time
from pathlib import Path

from backend.domain.jobs.blob_transfers import Unkept
from gpu_runners.agent.lease_client import JobClient, LeaseLost, StoreFull, TooLarge
from gpu_runners.errors import JobFailed
from gpu_runners.http import Refused, Unreachable, backoff_s


class Sending:
    """One file. `sha256` once it is stored; `fault` where it was not, after `patience_s` without an answer. Over the
    network this is tried again; for want of room only where `waits_for_room`."""

    def __init__(self, job: JobClient, path: Path, *, patience_s: float, waits_for_room: bool) -> None:
        self.path, self.n_bytes = path, path.stat().st_size
        self.sha256: str | None = None
        self.fault: Exception | None = None
        self._job, self._patience_s, self._waits_for_room = job, patience_s, waits_for_room
        self._unwanted, self._ended = threading.Event(), threading.Event()
        self._began, self.took_s = time.monotonic(), 0.0
        threading.Thread(target=self._run, name="kolm-send", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Say whether it has ended, after that long at most."""
        return self._ended.wait(timeout_s)

    def give_up(self) -> None:
        """End it after the part that is under way."""
        self._unwanted.set()

    def _run(self) -> None:
        try:
            self.sha256 = self._send()
        except Exception as fault:  # noqa: BLE001  # of a thread: whoever waits for it raises or reports it
            self.fault = fault
        self.took_s = time.monotonic() - self._began
        self._ended.set()

    def _send(self) -> str:
        rng, attempt = random.Random(), 0
        while True:
            try:
                return self._job.put_file(self.path, is_wanted=lambda: not self._unwanted.is_set())
            except Unreachable as fault:
                gives_up = isinstance(fault, StoreFull) and not self._waits_for_room
                if gives_up or self._unwanted.is_set() or time.monotonic() - self._began >= self._patience_s:
                    raise
            self._unwanted.wait(backoff_s(attempt, rng=rng, cap_s=5.0))
            attempt += 1


class Handover:
    """The checkpoints of a job, one at a time. A later one takes the place of one that waits."""

    def __init__(self, job: JobClient, *, patience_s: float) -> None:
        self._job, self._patience_s = job, patience_s
        self._sending: Sending | None = None
        self._step = 0
        self._next: tuple[Path, int] | None = None

    @property
    def is_busy(self) -> bool:
        return self._sending is not None

    def offer(self, path: Path, step: int) -> None:
        if self._next is not None:
            self._next[0].unlink(missing_ok=True)
        self._next = path, step
        if self._sending is None:
            self._begin()
        else:
            self._sending.give_up()

    def _begin(self) -> None:
        if self._next is not None:
            (path, self._step), self._next = self._next, None
            self._sending = Sending(self._job, path, patience_s=self._patience_s, waits_for_room=False)

    def take_ended(self) -> "tuple[Sending, int] | None":
        """The transfer that has ended since the last call and the step of its checkpoint, if there is one. Raises
        LeaseLost."""
        done, step = self._sending, self._step
        if done is None or not done.wait(0):
            return None
        self._sending = None
        done.path.unlink(missing_ok=True)
        if isinstance(done.fault, LeaseLost):
            raise done.fault
        is_replaced = self._next is not None and done.fault is not None
        self._begin()
        return None if is_replaced else (done, step)

    def close(self) -> None:
        if self._sending is not None:
            self._sending.give_up()


def reason_of(fault: Exception) -> Unkept:
    """The reason why a checkpoint was not kept."""
    if isinstance(fault, TooLarge):
        return Unkept.TOO_LARGE
    if isinstance(fault, StoreFull):
        return Unkept.STORE_FULL
    if isinstance(fault, OSError):
        return Unkept.RUNNER_DISK
    return Unkept.REFUSED if isinstance(fault, Refused) else Unkept.UNREACHABLE


def failure_of(sending: Sending, *, waited_s: float) -> Exception:
    """The failure of a job whose result could not be handed over."""
    fault = sending.fault
    if isinstance(fault, TooLarge):
        return JobFailed(
            f"The adapter has {sending.n_bytes:,} bytes, more than this installation keeps. Set a lower train rank, or "
            "ask the operator to raise KOLM_MAX_BLOB_BYTES.",
            code="adapter_too_large",
        )
    if isinstance(fault, StoreFull):
        return JobFailed(
            f"The blob store had no room for the adapter's {sending.n_bytes:,} bytes for {waited_s:.0f} s; the "
            "operator must make room. Then resume the compile.",
            code="blob_store_full",
            retryable=True,
        )
    if isinstance(fault, Unreachable):
        return JobFailed(
            f"The blob store gave or took nothing for {waited_s:.0f} s: {fault}.",
            code="blob_store_unavailable",
            retryable=True,
        )
    if isinstance(fault, Refused):
        return JobFailed(f"The adapter was not taken: {fault}.", code="adapter_refused")
    assert fault is not None
    return fault
