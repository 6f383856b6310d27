"""The event log: numbered without gaps, whoever writes at the same time."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from backend.compiles.events import append_event, events_after
from backend.compiles.models import Compile
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, make_compile
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

N_WRITERS, N_EACH = 8, 25


def test_eight_writers_with_late_commits_lose_nothing_double_nothing_and_keep_their_order():
    """A reader beside them that asks for `seq > last` sees every event once and in order."""
    row = make_compile(make_tenant())
    first = row.event_seq
    seen: list[tuple[int, int, int]] = []
    writing = threading.Event()

    def write(writer: int) -> None:
        rng = random.Random(writer)
        try:
            for n in range(N_EACH):
                with tenant_scope(row.tenant_id):
                    append_event(row.tenant_id, row.id, "step.progress", {"writer": writer, "n": n})
                    time.sleep(rng.random() * 0.004)  # the commit comes later than the number
        finally:
            connection.close()

    def read() -> None:
        last = first
        try:
            while not (writing.is_set() and last == first + N_WRITERS * N_EACH):
                with tenant_scope(row.tenant_id):
                    for event in events_after(row.tenant_id, row.id, last, limit=50):
                        seen.append((event.seq, event.data["writer"], event.data["n"]))
                        last = event.seq
                time.sleep(0.002)
        finally:
            connection.close()

    with ThreadPoolExecutor(N_WRITERS + 1) as threads:
        reader = threads.submit(read)
        for job in [threads.submit(write, i) for i in range(N_WRITERS)]:
            job.result()
        writing.set()
        reader.result(timeout=20)
    assert [seq for seq, _, _ in seen] == list(range(first + 1, first + 1 + N_WRITERS * N_EACH))
    for writer in range(N_WRITERS):
        assert [n for _, who, n in seen if who == writer] == list(range(N_EACH))
    assert fresh(row).event_seq == first + N_WRITERS * N_EACH


def test_an_event_that_is_rolled_back_leaves_no_gap():
    row = make_compile(make_tenant())
    with pytest.raises(RuntimeError), tenant_scope(row.tenant_id):  # noqa: PT012
        append_event(row.tenant_id, row.id, "never")
        raise RuntimeError
    with tenant_scope(row.tenant_id):
        assert append_event(row.tenant_id, row.id, "next") == 2


def test_no_event_is_appended_to_a_compile_that_is_not_there():
    tenant, other = make_tenant(), make_compile(make_tenant())
    for compile_id in (new_uuid7(), other.id):
        with pytest.raises(Compile.DoesNotExist), tenant_scope(tenant.id):
            append_event(tenant.id, compile_id, "step.progress")
    assert fresh(other).event_seq == 1
