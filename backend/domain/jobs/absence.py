"""The rule for ending leases. Who was away itself cannot tell silence of others from its own: after coming back it
gives those who are alive the time to say so.

Not an estimate of how long an outage lasted: a break in what was seen is enough.
"""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True, kw_only=True)
class Absence:
    """Times are a monotonic clock's, in seconds. `break_s`: with nothing seen for longer than that, this process (or
    what it sees through) was away."""

    break_s: float
    seen_at: float = -inf
    _back_at: float = -inf

    def note_presence(self, now: float) -> None:
        """Everything works at this moment."""
        if now - self.seen_at > self.break_s and self.seen_at > -inf:
            self._back_at = now
        self.seen_at = now

    def note_absence(self, now: float) -> None:
        """Note an absence: at this moment something does not work."""
        self._back_at = now

    def is_over(self, now: float, *, grace_s: float) -> bool:
        """Return whether `grace_s` have passed since: each who is alive has been heard in that time.

        >>> upkeep = Absence(break_s=15)
        >>> upkeep.note_presence(0); upkeep.is_over(0, grace_s=30)  # nothing is known of any absence
        True
        >>> upkeep.note_presence(60); upkeep.is_over(60, grace_s=30), upkeep.is_over(90, grace_s=30)
        (False, True)
        """
        return now - self._back_at >= grace_s
