"""A worker that sleeps past its lease and wakes up when another one has done its work: it writes nothing."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.embedded.layout import Part
from tests.acceptance.books import check_books, teacher_calls, uuid_of
from tests.acceptance.deployment import COMPILE_LEASE_S, Customer, Deployment, eventually
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer
from tests.faults.killing import asleep

pytestmark = pytest.mark.timeout(1200)
MODEL, CONCURRENCY = "slow-zombie", 4
# every table that a compile leaves rows in, with the column that names it
TABLES = {
    "compiles_compile": "id",
    "compiles_compilelease": "compile_id",
    "compiles_steprun": "compile_id",
    "compiles_slice": "compile_id",
    "compiles_candidate": "compile_id",
    "compiles_teachercall": "compile_id",
    "compiles_compileevent": "compile_id",
    "usage_usagefact": "compile_id",
    "drafts_draft": "compile_id",
    "artifacts_receipt": "compile_id",
    "artifacts_artifact": "compile_id",
    "runner_jobs_runnerjob": "compile_id",
}


def test_a_zombie_writes_nothing(deployment: Deployment, customer: Customer, teacher: TeacherServer) -> None:
    asked = asks(teacher.url, MODEL, concurrency=CONCURRENCY)
    compile_id = customer.compile(small_spec("zombie", teacher=asked))
    eventually(lambda: is_asking(deployment, compile_id), within_s=60, every_s=0.01)
    with asleep(deployment.child(Part.WORKER)):
        with second_worker(deployment):
            compile = customer.succeeded(compile_id, within_s=120)
            before = everything_of(deployment, compile_id)
        assert_taken_over(deployment, compile_id)
    time.sleep(2 * COMPILE_LEASE_S)  # awake: with answers in hand, a heartbeat due and a hint in its socket
    assert everything_of(deployment, compile_id) == before
    check_books(deployment, customer, compile)
    # the worker that slept is as good as new
    other = customer.compile(small_spec("after-zombie", teacher=asked))
    check_books(deployment, customer, customer.succeeded(other, within_s=90))


def is_asking(deployment: Deployment, compile_id: str) -> bool:
    """Some calls are answered and others in flight."""
    states = [call["state"] for call in teacher_calls(deployment, compile_id)]
    return "applied" in states and "started" in states


def assert_taken_over(deployment: Deployment, compile_id: str) -> None:
    """The sleeper's calls were written off, under its fence; all later ones bear another."""
    calls = teacher_calls(deployment, compile_id)
    wasted = [call for call in calls if call["state"] == "wasted"]
    assert 1 <= len(wasted) <= CONCURRENCY
    (fence,) = {call["fence"] for call in wasted}
    assert all(call["fence"] > fence for call in calls if call["started_at"] > wasted[-1]["started_at"])


def everything_of(deployment: Deployment, compile_id: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for table, column in TABLES.items():
        rows = deployment.rows(f"SELECT x::text AS text FROM {table} x WHERE {column} = %s", uuid_of(compile_id))
        found[table] = sorted(row["text"] for row in rows)
    assert all(found.values()), "a table without a row would prove nothing"
    return found


@contextmanager
def second_worker(deployment: Deployment) -> Iterator["subprocess.Popen[bytes]"]:
    """Another worker, started by hand."""
    pool = ("--pool", "threads", "--concurrency", "4", "--hostname", "second@%h", "--loglevel", "WARNING")
    worker = deployment.python("-m", "celery", "-A", "workers.main", "worker", *pool)
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(timeout=30)
