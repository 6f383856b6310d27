"""The whole suite as two pytest processes, each with servers of its own: `python -m tests.halves [options]`

One process would take twice as long on two cores. The first half is named here, the second is everything else, so that
no test can be forgotten. Options go to both; the worse of the two statuses is ours.
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
    "tests/backend/rest",
    "tests/backend/tenants",
    "tests/backend/usage",
    "tests/test_migrations.py",
    "tests/test_openapi.py",
    "tests/test_tenancy.py",
)


def main(options: Sequence[str]) -> int:
    halves = {
        "1": [*FIRST],
        "2": ["tests", *(f"--ignore={path}" for path in FIRST)],
    }
    running = {name: start([*paths, *options]) for name, paths in halves.items()}
    readers = [threading.Thread(target=relay, args=(name, child)) for name, child in running.items()]
    try:
        for reader in readers:
            reader.start()
        statuses = [child.wait() for child in running.values()]
    except KeyboardInterrupt:
        statuses = [
            child.wait() for child in running.values()
        ]  # the terminal has told them too: they say what they found
    for reader in readers:
        reader.join()
    return max(abs(status) for status in statuses)


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def relay(name: str, child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        print(f"{name}| {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
