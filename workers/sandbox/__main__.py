"""The walls around customers' python checks on this machine, and what a check costs.

python -m workers.sandbox
"""

import time

from backend.domain.spec.outputs import PythonCheck
from workers.sandbox.checks import protections, run_checks

N_ROWS = 20_000
SOURCE = "import re\n\ndef check(input, output):\n    return re.search(r'[0-9]{4}', output) is not None\n"


def main() -> None:
    print("active:", ", ".join(protections()))
    check = PythonCheck(kind="python", source=SOURCE)
    starts = sorted(_seconds(check, 1) for _ in range(9))
    print(f"one row, start and end of the process included: {1000 * starts[4]:.0f} ms (median of 9)")
    print(f"{N_ROWS} rows: {N_ROWS / _seconds(check, N_ROWS):,.0f} rows/s")


def _seconds(check: PythonCheck, n_rows: int) -> float:
    rows = [(f"order {i}", f"the order is {i + 1000}") for i in range(n_rows)]
    began = time.perf_counter()
    run_checks([check], rows, allow_weak=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
