"""The caller's side of the process that renders: started with the first chat, ended with this process, and replaced
where a template used it up."""

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_runners.errors import JobFailed

MOST_S, MOST_BYTES = 2.0, 1 << 30  # a chat takes milliseconds
USED_UP = 77  # the status of a process that its own limits ended
# a library that gets no memory may abort, or read where there is none
_USED_UP = frozenset({USED_UP, -signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV})
_DEATH_S = 2.0  # until a process that has closed its pipe has died
_PROCESS = "gpu_runners.models.rendering.process"
# all that it needs; it has no business with tokens, nor with torch
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV")
_SET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "USE_TORCH": "0", "HF_HUB_OFFLINE": "1"}


class TemplateRefused(ValueError):
    """A template's own refusal of a chat, or its fault."""


class Renderer:
    """Renders one chat at a time, in at most `most_s` of a processor and `most_bytes`; others wait."""

    def __init__(self, *, most_s: float = MOST_S, most_bytes: int = MOST_BYTES) -> None:
        self._most_s, self._most_bytes = most_s, most_bytes
        self._process: subprocess.Popen[str] | None = None
        self._owner, self._lock = os.getpid(), threading.Lock()

    def start(self) -> None:
        """Start it where it is not running: its imports take a second, which need not be waited for here."""
        with self._lock:
            self._running()

    def render(
        self, template: str, messages: list[Mapping[str, Any]], *, tools: Any, asks: bool, more: Mapping[str, Any]
    ) -> str:
        """Raises TemplateRefused, and JobFailed(bad_chat) for a template that takes more time or memory than any chat
        needs."""
        request = {
            "template": template,
            "messages": [dict(message) for message in messages],
            "tools": tools,
            "asks": asks,
            "more": dict(more),
        }
        line = json.dumps(request, default=str) + "\n"
        with self._lock:
            reply = self._ask(line)
        if "refusal" in reply:
            raise TemplateRefused(reply["refusal"])
        return str(reply["text"])

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, line: str) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            pass  # it has died, as the missing answer says too
        except BaseException:
            self._end()  # its answer may come yet, and would be taken for the next chat's
            raise
        if not answer.endswith("\n"):
            raise self._failure(process)
        reply: dict[str, Any] = json.loads(answer)
        return reply

    def _failure(self, process: "subprocess.Popen[str]") -> JobFailed:
        """The failure of a chat whose process has died, by how it did."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_DEATH_S)
        status = process.returncode
        self._end()
        if status not in _USED_UP:
            return JobFailed("The process that renders chats has ended.", code="runner_crashed", retryable=True)
        limits = f"{self._most_s:g} s or {self._most_bytes >> 20} MiB"
        return JobFailed(
            f"The base's chat template takes more than {limits} to render a chat. Use another base.", code="bad_chat"
        )

    def _running(self) -> "subprocess.Popen[str]":
        if self._owner != os.getpid():  # a fork's copy: the process is its parent's
            self._process, self._owner = None, os.getpid()
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS, str(self._most_s), str(self._most_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _SET,
                cwd=Path(__file__).parents[3],
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Renderers:
    """Two renderers, so that a short chat does not stand behind a long one. The second is started when it is needed."""

    def __init__(self) -> None:
        self._all = [Renderer() for _ in range(2)]
        self._free: queue.LifoQueue[Renderer] = queue.LifoQueue()
        for renderer in reversed(self._all):
            self._free.put(renderer)

    def start(self) -> None:
        """Start the first."""
        self._all[0].start()

    def render(
        self, template: str, messages: list[Mapping[str, Any]], *, tools: Any, asks: bool, more: Mapping[str, Any]
    ) -> str:
        """Render by the one that was free last. Raises what `Renderer.render` raises."""
        renderer = self._free.get()
        try:
            return renderer.render(template, messages, tools=tools, asks=asks, more=more)
        finally:
            self._free.put(renderer)

    def close(self) -> None:
        for renderer in self._all:
            renderer.close()


RENDERER = Renderers()
atexit.register(RENDERER.close)
