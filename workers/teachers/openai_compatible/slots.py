"""The number of calls of one teacher that are in flight at the same time: as many as the spec says, and fewer while it
answers 429.

As congestion control does it: half as many after a 429, one more after each round of answers without one. Calls that
were in flight when it was halved say nothing new: a burst of 429s halves it once.
"""

import threading

ROUNDS = 4  # answers per slot before there is one more


class Slots:
    """Thread-safe. A ticket is the number of halvings that there were when a call began."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._now = most
        self._in_flight = 0
        self._n_answered = 0
        self._n_halvings = 0
        self._changed = threading.Condition()

    @property
    def now(self) -> int:
        """The number of calls that may be in flight now."""
        return self._now

    def acquire(self, timeout: float) -> int | None:
        """Return the ticket of a slot; None where none came free in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._in_flight < self._now, timeout):
                return None
            self._in_flight += 1
            return self._n_halvings

    def release(self) -> None:
        with self._changed:
            self._in_flight -= 1
            self._changed.notify()

    def slow_down(self, ticket: int) -> None:
        """Note a 429 of the call with this ticket."""
        with self._changed:
            if ticket == self._n_halvings:
                self._now = max(1, self._now // 2)
                self._n_halvings += 1
            self._n_answered = 0

    def note_answer(self) -> None:
        with self._changed:
            self._n_answered += 1
            if self._now < self._most and self._n_answered >= ROUNDS * self._now:
                self._now += 1
                self._n_answered = 0
                self._changed.notify()
