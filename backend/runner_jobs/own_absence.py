"""The absence of this web process: started anew, stopped, or without its database. Heartbeats that came meanwhile were
not heard, so for the length of a lease after that no runner is given another one's job."""

import threading
import time

from django.conf import settings
from django.db import DatabaseError

from backend.domain.jobs.absence import Absence

LOOK_EVERY_S = 1.0
_LOCKED = ("40", "55P03")  # SQLSTATEs of a deadlock, and of a lock that was waited for in vain
absence = Absence(break_s=5.0)


def note_absence() -> None:
    """A runner could not be heard just now."""
    absence.note_absence(time.monotonic())


def note_fault(fault: DatabaseError) -> None:
    """An absence, unless the server heard and somebody else's lock was in the way: else one that is held for long
    would keep the jobs of dead runners from everybody."""
    if not str(getattr(fault.__cause__, "sqlstate", None) or "").startswith(_LOCKED):
        note_absence()


def may_take_over() -> bool:
    return absence.is_over(time.monotonic(), grace_s=float(settings.KOLM_RUNNER_LEASE_S))


def watch() -> None:
    """Notice from now on when this process is stopped; it has just started, and was away before."""
    note_absence()

    def look() -> None:
        while True:
            absence.note_presence(time.monotonic())
            time.sleep(LOOK_EVERY_S)

    threading.Thread(target=look, name="own-absence", daemon=True).start()
