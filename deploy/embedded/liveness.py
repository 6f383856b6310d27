"""The liveness of parts, whether they answer: `/healthz` of those that listen, the heartbeat file of those that do not.

A part shows a sign of life by an answer, or by a file that was touched since the last look. Silence counts from its
last sign, at the earliest from the end of its time to start. What the supervisor itself slept through (a laptop's lid,
a stopped process, a machine without a free core) is nobody's silence.
"""

import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.embedded.processes import Child, ChildSpec

SILENT_S = 30.0
STARTING_S = 90.0  # imports of the model libraries, on a busy machine
PROBE_EVERY_S, PROBE_TIMEOUT_S = 3.0, 10.0
LOOK_EVERY_S = 2.0
LAG_S = 10.0  # between two looks of the supervisor


def limit_s(variables: Mapping[str, str]) -> float:
    """KOLM_SILENT_S: how long a part may be silent."""
    return max(1.0, float(variables.get("KOLM_SILENT_S") or SILENT_S))


def answers(url: str, *, timeout_s: float = 5.0) -> bool:
    """True once a server speaks HTTP there and is not failing; a 404 is an answer too."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return bool(response.status < 500)
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code < 500
    except (OSError, http.client.HTTPException):  # nobody there, or somebody else who speaks no HTTP
        return False


class Watch:
    """The last sign of life of each part. Used as a context: threads ask the servers while it is open."""

    def __init__(self, specs: Mapping[Any, ChildSpec], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._specs, self._clock = specs, clock
        self._seen_at: dict[str, float] = {}
        self._touched: dict[str, int] = {}
        self._looked_at = clock()
        self._forgiven_until = 0.0
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        for name, spec in self._specs.items():
            if spec.alive_url is not None:
                threading.Thread(target=self._ask, args=(name, spec.alive_url), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def look(self) -> None:
        """Note which files were touched, and how long the supervisor itself was away."""
        now = self._clock()
        if now - self._looked_at > LAG_S:
            self._forgiven_until = now
        self._looked_at = now
        for name, spec in self._specs.items():
            if spec.alive_file is not None and (touched := _mtime(spec.alive_file)) != self._touched.get(name, 0):
                self._touched[name] = touched
                self._seen_at[name] = now

    def silent_s(self, name: str, child: Child) -> float:
        """Return how long the part has shown no sign; 0 for one that nobody listens to."""
        spec = self._specs[name]
        if spec.alive_url is None and spec.alive_file is None:
            return 0.0
        seen_at = self._seen_at.get(name, 0.0)
        since = seen_at if seen_at > child.started else child.started + STARTING_S
        return max(0.0, self._clock() - max(since, self._forgiven_until))

    def _ask(self, name: str, url: str) -> None:
        while not self._closed.wait(PROBE_EVERY_S):
            if answers(url, timeout_s=PROBE_TIMEOUT_S):
                self._seen_at[name] = self._clock()


def _mtime(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
