"""The whole suite as two pytest processes, each with servers of its own: `python -m tests.halves [options]`

One process would take twice as long on two cores. The first half is named here, the second is everything else, so that
no test can be forgotten. The browser tests come after it in a process of their own: Playwright leaves an event loop
running, in which Django refuses to ask the database. Options go to all; the worst of their statuses is ours. What
failed is said again at the end, where whoever sees only the last lines of a long log finds it.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
FIRST = (
    "tests/acceptance",
    "tests/backend/billing",
    "tests/backend/console",
    "tests/backend/drafts",
    "tests/backend/rest",
    "tests/backend/tenants",
    "tests/backend/usage",
    "tests/backend/webhooks",
    "tests/gpu_runners/kolm",
    "tests/test_migrations.py",
    "tests/test_openapi.py",
    "tests/test_tenancy.py",
)
BROWSER = "tests/browser"
# two processes on two cores: a second thread of one only spins while the other's works
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def main(options: Sequence[str]) -> int:
    elsewhere = [f"--ignore={path}" for path in (*FIRST, BROWSER)]
    turns = {"1": [[*FIRST]], "2": [["tests", *elsewhere], [BROWSER]]}
    statuses: list[int] = []
    failures: list[str] = []

    def take(name: str, calls: list[list[str]]) -> None:
        for paths in calls:
            statuses.append(run(name, [*paths, *options], failures))

    threads = [threading.Thread(target=take, args=turn) for turn in turns.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"what failed ({len(failures)}):" if failures else "nothing failed", *failures, sep="\n  ", flush=True)
    return max(statuses)


def run(name: str, arguments: Sequence[str], failures: list[str]) -> int:
    """One pytest, its lines led by `name`; its status. The lines of its summary that name a failure join `failures`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environ = os.environ | ONE_THREAD
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(f"{name}| {line}", end="", flush=True)
            if line.startswith(("FAILED ", "ERROR ")):
                failures.append(line.rstrip()[:300])
    return abs(child.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
