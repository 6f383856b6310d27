"""The sequences that wait for room in the engine: first come, first served.

A sequence whose keys do not fit is passed over, so that a long one does not leave the memory idle; no later sequence of
its tenant overtakes it. Shares of several tenants are `serving.fair_scheduler`'s, which lets only as many requests in
as an engine runs at once.
"""

from collections import deque
from collections.abc import Callable

from gpu_runners.engine.sequences import Row


class AdmissionQueue:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def push(self, row: Row) -> None:
        self._rows.append(row)

    def push_front(self, row: Row) -> None:
        """Take back a sequence that ran and had to give its memory up: it goes first."""
        self._rows.appendleft(row)

    def pop(self, fits: Callable[[Row], bool]) -> Row | None:
        """The first that `fits` and has none of its tenant before it; None where there is none."""
        passed: set[str] = set()
        for i, row in enumerate(self._rows):
            if row.tenant in passed:
                continue
            if fits(row):
                del self._rows[i]
                return row
            passed.add(row.tenant)
        return None

    def drop(self, row: Row) -> bool:
        """Remove a sequence; False where it does not wait."""
        if row not in self._rows:
            return False
        self._rows.remove(row)
        return True
