"""The sign of life of a worker, of upkeep and of the sender of webhooks: a file that is touched every few seconds while
the process moves, read by whoever supervises it. `python -m workers.heartbeat` exits 0 while it is fresh, for a
container's health check.

The touching thread needs the interpreter: a process that is stopped, or stands still in a C call, falls silent. A
process with a loop of its own says `turn` in it, and falls silent as well when no turn came for STUCK_S. Turns may be
long (a round of upkeep is bounded by its statements' time-outs), silence of the thread may not.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "KOLM_HEARTBEAT_FILE"
EVERY_S = 3.0
FRESH_S = 30.0
STUCK_S = 600.0


class Heartbeat:
    def __init__(
        self, path: Path | None, *, stuck_s: float = STUCK_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._stuck_s, self._clock = path, stuck_s, clock
        self._turned_at: float | None = None

    def start(self) -> None:
        """Beat from now on to the end of the process, where a file is named."""
        if self._path is not None:
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def turn(self) -> None:
        """The loop is at its beginning again. A process that never says so has no loop to be stuck in."""
        self._turned_at = self._clock()

    def beat(self) -> bool:
        """Touch the file, unless the loop is stuck."""
        is_stuck = self._turned_at is not None and self._clock() - self._turned_at > self._stuck_s
        if is_stuck or self._path is None:
            return False
        try:
            self._path.touch()
        except OSError as error:  # a full disk: then the supervisor has more to mend than this
            print(f"no heartbeat: {error}", file=sys.stderr)
        return True

    def _run(self) -> None:
        while True:
            self.beat()
            time.sleep(EVERY_S)


def of_process(environ: Mapping[str, str] = os.environ) -> Heartbeat:
    """The one that the environment names a file for."""
    named = environ.get(VARIABLE)
    return Heartbeat(Path(named) if named else None)


def main(environ: Mapping[str, str] = os.environ) -> int:
    try:
        age_s = time.time() - Path(environ.get(VARIABLE, "")).stat().st_mtime
    except OSError as error:
        print(f"no heartbeat file ({VARIABLE}): {error}", file=sys.stderr)
        return 1
    return 0 if abs(age_s) < FRESH_S else 1  # one of the future is of a clock that was set back


if __name__ == "__main__":
    sys.exit(main())
