"""The parent's side of the child process: start it, hand it a job, read its events, kill it with everything it started.

One child is kept warm between jobs, because importing the model libraries takes several seconds; after a kill or a
crash the next job gets a new one.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from gpu_runners.agent.stalling import session_cpu_s
from gpu_runners.errors import JobFailed

_TAIL = 600  # characters of a crashed child's last words that go into the report
_ENVIRONMENT = {
    # glibc keeps what a training step frees for the next one, instead of having the kernel take it back and zero it
    # anew; it is given back after the job. 32 MiB is the most that glibc takes for the first
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # one thread per OpenMP region: two on a shared two-core box collapse to a fifth of the speed, and one makes sums
    # repeatable
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


class Child:
    """Start it from a thread that outlives it: on Linux the child's death signal is tied to that thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._stderr: Path | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def cpu_s(self) -> float | None:
        """Processor seconds that the child and what it started have used; None where that cannot be known."""
        return session_cpu_s(self._process.pid) if self._process is not None else None

    def ensure_started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        log_fd, log = tempfile.mkstemp(prefix="kolm-child-", suffix=".log")
        self._stderr = Path(log)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpu_runners.agent.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_fd,
            text=True,
            encoding="utf-8",
            bufsize=1,
            start_new_session=True,
            env=os.environ | _without_secrets(_ENVIRONMENT),
            cwd=Path(__file__).parents[2],
        )
        os.close(log_fd)
        self._events = queue.Queue()
        threading.Thread(target=_read_events, args=(self._process, self._events), daemon=True).start()

    def submit(self, *, kind: str, payload: dict[str, Any], folder: Path, base_dir: Path | None) -> None:
        self.ensure_started()
        self._write(
            {"kind": kind, "payload": payload, "folder": str(folder), "base_dir": str(base_dir) if base_dir else None}
        )

    def ask_to_stop(self) -> None:
        """A distil job then hands over a checkpoint and fails with `runner_stopping`."""
        self._write({"stop": True})

    def note_handed_over(self, took_s: float) -> None:
        """The last checkpoint's transfer has ended, after so long: a training may make the next one."""
        self._write({"handed_over_s": took_s})

    def next_event(self, *, timeout_s: float) -> dict[str, Any] | None:
        """None when nothing happened in time. Raises JobFailed when the child has died."""
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=max(0.0, timeout_s))
            if event is None:
                raise self._death()
            return event
        return None

    def kill(self) -> None:
        """SIGKILL to the whole process group; returns when the child is reaped."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None
        if self._stderr is not None:
            self._stderr.unlink(missing_ok=True)

    def _write(self, command: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # a dead child is noticed by its closed events
            self._process.stdin.write(json.dumps(command) + "\n")

    def _death(self) -> JobFailed:
        code = self._process.wait() if self._process is not None else 0
        tail = self._stderr.read_text(errors="replace").strip()[-_TAIL:] if self._stderr is not None else ""
        self.kill()
        if code == -signal.SIGKILL:
            return JobFailed(
                "The working process was killed (SIGKILL): by the kernel when memory runs out, or by an operator. "
                "If it happens again, give it less at once (a training's train.batch_size and train.max_tokens, a "
                "selection's rows).",
                code="runner_killed",
                retryable=True,
            )
        what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return JobFailed(
            f"The working process died ({what}). Its last words: {tail or 'none'}",
            code="runner_crashed",
            retryable=True,
        )


def _without_secrets(environment: dict[str, str]) -> dict[str, str]:
    """The child sees no token: it has no business with the network."""
    return environment | {"KOLM_RUNNER_TOKEN": "", "KOLM_API_KEY": ""}


def _read_events(process: "subprocess.Popen[str]", events: "queue.Queue[dict[str, Any] | None]") -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError, OSError):  # the pipe was closed by kill()
        for line in process.stdout:
            events.put(json.loads(line))
    events.put(None)
