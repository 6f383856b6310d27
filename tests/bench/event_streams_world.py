"""The far end of the event streams, as a process of the deployment: `make N M` makes N tenants, each with a key and M
compiles, and prints them with their newest compile; `write FILE SECONDS PER_S` appends events to all of them in turn,
then a last one to each.

An event carries the clock of the moment before its transaction: what a reader subtracts from its own clock is the
commit, the wake-up, the look and the wire together.
"""

import json
import os
import sys
import time
from pathlib import Path
from uuid import UUID


def make(n: int, n_compiles: int) -> None:
    from django.db import connection

    from backend.domain.ids import Prefix, encode_id
    from tests.compile_factories import make_compile
    from tests.factories import make_api_key, make_tenant

    rows = []
    for i in range(n):
        tenant = make_tenant(f"bench {i}")
        compile = [make_compile(tenant) for _ in range(n_compiles)][-1]
        public = encode_id(Prefix.COMPILE, compile.id)
        rows.append({"tenant": str(tenant.id), "compile": str(compile.id), "id": public, "key": make_api_key(tenant)})
    connection.close()
    print(json.dumps(rows), flush=True)


def write(rows: list[dict[str, str]], seconds: float, per_s: float) -> None:
    started, n = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        append(rows[n % len(rows)], "note", {"t": time.time()})
        n += 1
        time.sleep(max(0.0, started + n / per_s - time.monotonic()))
    for row in rows:
        append(row, "last", {"t": time.time()})
    print(json.dumps({"n": n, "seconds": time.monotonic() - started}), flush=True)


def append(row: dict[str, str], type: str, data: dict[str, float]) -> None:
    from backend.compiles.events import append_event
    from backend.tenants.isolation import tenant_scope

    tenant = UUID(row["tenant"])
    with tenant_scope(tenant):
        append_event(tenant, UUID(row["compile"]), type, data)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
    import django

    django.setup()
    if sys.argv[1] == "make":
        make(int(sys.argv[2]), int(sys.argv[3]))
    else:
        write(json.loads(Path(sys.argv[2]).read_text()), float(sys.argv[3]), float(sys.argv[4]))
