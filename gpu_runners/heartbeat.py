"""The sign of life of a process that listens nowhere: a file that it touches every few seconds, read by whoever
supervises it. `python -m gpu_runners.heartbeat` exits 0 while the file is fresh, for a container's health check.

The thread that touches it needs the interpreter, so a process that is stopped, or whose interpreter stands still in a C
call, falls silent. It says nothing about what the process is busy with: a lease has a clock of its own for that.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "KOLM_HEARTBEAT_FILE"
EVERY_S = 3.0
FRESH_S = 30.0


def keep_beating(environ: Mapping[str, str] = os.environ) -> None:
    """Beat from now on to the end of the process, where a file is named."""
    if environ.get(VARIABLE):
        path = Path(environ[VARIABLE])
        threading.Thread(target=_beat, args=(path,), name="heartbeat", daemon=True).start()


def _beat(path: Path) -> None:
    while True:
        try:
            path.touch()
        except OSError as error:  # a full disk: then the supervisor has more to mend than this
            print(f"no heartbeat: {error}", file=sys.stderr)
        time.sleep(EVERY_S)


def main(environ: Mapping[str, str] = os.environ) -> int:
    try:
        age_s = time.time() - Path(environ.get(VARIABLE, "")).stat().st_mtime
    except OSError as error:
        print(f"no heartbeat file ({VARIABLE}): {error}", file=sys.stderr)
        return 1
    return 0 if abs(age_s) < FRESH_S else 1  # one of the future is of a clock that was set back


if __name__ == "__main__":
    sys.exit(main())
