"""Old logs go: deliveries with their attempts after 30 days, events after 90, of all tenants (the ages are in the
migration, beside the policies that let nothing younger be deleted)."""

import time

from django.db import connection

EVERY_S = 60.0
ROWS = 2_000  # of each table in one statement
TURNS = 5

_next = 0.0


def forget_webhooks(*, always: bool = False) -> int:
    """Delete old events and deliveries, once a minute, or once a round while there is more; return how many rows went.
    Upkeep calls this."""
    global _next
    if time.monotonic() < _next and not always:
        return 0
    n_gone = 0
    for _ in range(TURNS):
        with connection.cursor() as cursor:
            cursor.execute("SELECT kolm_sweep_webhooks(%s)", [ROWS])
            n = int(cursor.fetchone()[0])
        n_gone += n
        if n < ROWS:  # no table can have had more
            _next = time.monotonic() + EVERY_S
            break
    return n_gone
