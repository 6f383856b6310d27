"""Several writers of one compile's events at once, each transaction kept open a moment before it commits:
`python -m tests.acceptance.event_writers TENANT COMPILE N_WRITERS N_EVENTS`, as a process of the deployment."""

import os
import random
import sys
import threading
import time
from uuid import UUID

import django

LONGEST_PAUSE_S = 0.03


def main(tenant: UUID, compile: UUID, n_writers: int, n_events: int) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    django.setup()
    threads = [threading.Thread(target=write, args=(tenant, compile, i, n_events)) for i in range(n_writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write(tenant: UUID, compile: UUID, writer: int, n_events: int) -> None:
    from django.db import connection

    from backend.compiles.events import append_event
    from backend.tenants.isolation import tenant_scope

    rng = random.Random(writer)
    for n in range(n_events):
        with tenant_scope(tenant):
            append_event(tenant, compile, "note", {"writer": writer, "n": n})
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    connection.close()


if __name__ == "__main__":
    main(UUID(sys.argv[1]), UUID(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
