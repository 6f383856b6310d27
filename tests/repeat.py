"""`make repeat RUNS=10`: the daily suite again and again beside a load, to see whether anything is flaky. One line a
run: how long, what passed and each test that failed; the exit status counts the runs that had one, and
build/repeat-<number>.txt is all that such a run printed."""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.embedded.home import ROOT

SPIN = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", type=int, default=1, help="processes that spin beside it")
    asked = parser.parse_args()
    n_failed = 0
    for number in range(1, asked.runs + 1):
        began = time.monotonic()
        with spinning(asked.load):
            done = subprocess.run(["make", "pytest"], cwd=ROOT, capture_output=True, text=True)
        failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        (summary,) = re.findall(r"^\d+ .*(?:passed|failed).*$", done.stdout, re.MULTILINE)[-1:] or [done.stderr[-300:]]
        print(f"{number}: {time.monotonic() - began:.0f} s, {summary}", *failures, sep="\n  ", flush=True)
        if done.returncode != 0:
            n_failed += 1
            (ROOT / "build" / f"repeat-{number}.txt").write_text(done.stdout + done.stderr)
    return n_failed


@contextmanager
def spinning(n: int) -> Iterator[None]:
    load = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(n)]
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
