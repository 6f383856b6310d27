"""The sequences that wait for room in the engine: first come, first served.

A sequence whose keys do not fit is passed over, so that a long one does not leave the memory idle; no later sequence of
its tenant overtakes it. Shares of several tenants are `serving.fair_scheduler`'s, which lets only as many requests in
as an engine runs at once.
"""

from collections import deque
from collections.abc import Callable

from gpu_runners.engine.sequences import TokenSequence


class AdmissionQueue:
    """A queue of waiting sequences; not thread-safe."""

    def __init__(self) -> None:
        self._rows: deque[TokenSequence] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def push(self, sequence: TokenSequence) -> None:
        self._rows.append(sequence)

    def push_front(self, sequence: TokenSequence) -> None:
        """Take back a sequence that ran and had to give its memory up: it goes first."""
        self._rows.appendleft(sequence)

    def pop(self, fits: Callable[[TokenSequence], bool]) -> TokenSequence | None:
        """The first that `fits` and has none of its tenant before it; None where there is none."""
        passed: set[str] = set()
        for i, sequence in enumerate(self._rows):
            if sequence.tenant in passed:
                continue
            if fits(sequence):
                del self._rows[i]
                return sequence
            passed.add(sequence.tenant)
        return None

    def drop(self, sequence: TokenSequence) -> bool:
        """Remove a sequence; False where it does not wait."""
        if sequence not in self._rows:
            return False
        self._rows.remove(sequence)
        return True
