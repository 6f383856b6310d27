"""The whole suite as two pytest processes, each with servers of its own: `python -m tests.halves [options]`

One process would take twice as long on two cores. The first half is named here, the second is everything else, so that
no test can be forgotten. The browser tests come after it in a process of their own: Playwright leaves an event loop
running, in which Django refuses to ask the database. Options go to all; the worst of their statuses is ours.
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
    "tests/backend/console",
    "tests/backend/drafts",
    "tests/backend/rest",
    "tests/backend/tenants",
    "tests/backend/usage",
    "tests/backend/webhooks",
    "tests/test_migrations.py",
    "tests/test_openapi.py",
    "tests/test_tenancy.py",
)
BROWSER = "tests/browser"


def main(options: Sequence[str]) -> int:
    elsewhere = [f"--ignore={path}" for path in (*FIRST, BROWSER)]
    turns = {"1": [[*FIRST]], "2": [["tests", *elsewhere], [BROWSER]]}
    statuses: list[int] = []

    def take(name: str, calls: list[list[str]]) -> None:
        for paths in calls:
            statuses.append(run(name, [*paths, *options]))

    threads = [threading.Thread(target=take, args=turn) for turn in turns.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(statuses)


def run(name: str, arguments: Sequence[str]) -> int:
    """One pytest, its lines led by `name`; its status."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(f"{name}| {line}", end="", flush=True)
    return abs(child.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
