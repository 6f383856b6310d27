"""A store or a process that is away for a while, and comes back: what was under way goes on by itself, at no attempt"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import redis

from deploy.embedded.layout import Part
from tests.acceptance.books import check_books, check_nothing_doubled, runner_jobs, uuid_of
from tests.acceptance.deployment import RUNNER_LEASE_S, Customer, Deployment, Row, eventually
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer
from tests.faults.killing import asleep, asleep_with_children, in_mid_training, look

pytestmark = pytest.mark.timeout(1600)
BLOBS_AWAY_S, DATABASE_AWAY_S, VALKEY_AWAY_S = 30, 20, 15


@contextmanager
def without_blobs(deployment: Deployment) -> Iterator[None]:
    """The folder is not there for the length of a block, as when its disk is not mounted."""
    folder = deployment.plan.home.blobs
    folder.rename(away := folder.with_name("blobs-away"))
    try:
        yield
    finally:
        away.rename(folder)


def lease_of(deployment: Deployment, compile_id: str) -> Row:
    (row,) = deployment.rows("SELECT * FROM compiles_compilelease WHERE compile_id = %s", uuid_of(compile_id))
    return row


def is_training(deployment: Deployment, compile_id: str) -> bool:
    with deployment.connect() as connection:
        return in_mid_training(look(connection, uuid_of(compile_id)))


def test_a_compile_outlives_its_blob_disk(deployment: Deployment, customer: Customer) -> None:
    with without_blobs(deployment):
        gone = time.monotonic()
        ready = httpx.get(f"{deployment.url}/readyz", timeout=20)
        assert (ready.status_code, ready.json()["blobs"], ready.json()["database"]) == (503, "down", "ok")
        compile_id = customer.compile(small_spec("no-disk"))
        row = b'{"input": "where is it"}\n'
        headers = {"Content-Type": "application/x-ndjson"}
        upload = customer.api.post("/v1/uploads?purpose=captures", content=row, headers=headers)
        assert (upload.status_code, upload.json()["code"]) == (503, "blob_store_unavailable")
        time.sleep(max(0.0, BLOBS_AWAY_S - (time.monotonic() - gone)))
        assert not deployment.plan.home.blobs.exists()
        assert customer.get(f"/v1/compiles/{compile_id}")["status"] == "running"
        assert lease_of(deployment, compile_id)["attempts"] <= 1, "at most the one that is under way"
    compile = customer.succeeded(compile_id, within_s=200)
    codes = {event["data"]["code"] for event in customer.events(compile_id) if event["type"] == "step.retrying"}
    assert codes == {"blob_store_unavailable"}
    check_books(deployment, customer, compile)
    ready = httpx.get(f"{deployment.url}/readyz", timeout=20).json()
    assert ready["status"] == "ready"


def test_a_training_outlives_web_and_the_blob_disk(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    """Web stopped for longer than a lease: the runner trains on, under the same claim."""
    spec = small_spec("long-stop", teacher=asks(teacher.url, "steady-stop"), train={"epochs": 100})
    compile_id = customer.compile(spec)
    eventually(lambda: is_training(deployment, compile_id), within_s=120, what="a checkpoint")
    with asleep(deployment.child(Part.WEB)):
        time.sleep(3 * RUNNER_LEASE_S)
    with without_blobs(deployment):
        time.sleep(2 * RUNNER_LEASE_S)
    compile = customer.succeeded(compile_id, within_s=300)
    distill = runner_jobs(deployment, compile_id)[0]
    assert distill["attempts_in_vain"] <= 1, "no other claim than the first"
    steps = customer.get(f"/v1/compiles/{compile_id}/steps")["data"]
    facts = next(step for step in steps if step["name"] == "distillation")["output"]["facts"]
    assert facts["resumed_from_epoch"] == 0, "nobody began anew"
    check_books(deployment, customer, compile)


def test_a_batch_of_answers_outlives_the_database(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    """Postgres stopped for several leases while the teacher answers: nothing is asked twice."""
    model = "slow-database"
    compile_id = customer.compile(small_spec("no-database", teacher=asks(teacher.url, model, concurrency=4)))
    eventually(lambda: len(teacher.asked(model)) >= 4, within_s=60, every_s=0.01, what="answers")
    with asleep_with_children(deployment.child(Part.POSTGRES)):
        time.sleep(DATABASE_AWAY_S)
    compile = customer.succeeded(compile_id, within_s=200)
    check_books(deployment, customer, compile)
    check_nothing_doubled(deployment, customer, compile)
    assert set(teacher.asked(model).values()) == {1}


def test_a_compile_outlives_a_valkey_that_hangs(deployment: Deployment, customer: Customer) -> None:
    """Web says what is degraded; a compile under way goes on, or waits for its next hint, which upkeep sends."""
    with asleep(deployment.child(Part.VALKEY)):
        ready = httpx.get(f"{deployment.url}/readyz", timeout=20)
        assert (ready.status_code, ready.json()["status"], ready.json()["valkey"]) == (200, "degraded", "down")
        time.sleep(VALKEY_AWAY_S)
        assert httpx.get(f"{deployment.url}/healthz", timeout=20).status_code == 200
    compile_id = customer.compile(small_spec("hint-lost"))
    with asleep(deployment.child(Part.VALKEY)):
        time.sleep(VALKEY_AWAY_S)
    compile = customer.succeeded(compile_id, within_s=200)
    assert not [event for event in customer.events(compile_id) if event["type"] == "step.retrying"]
    check_books(deployment, customer, compile)


def goes_on(deployment: Deployment) -> None:
    """Valkey moves again, with all that was told to it."""
    os.kill(deployment.child(Part.VALKEY), signal.SIGCONT)


def goes_on_and_is_flushed(deployment: Deployment) -> None:
    goes_on(deployment)
    with redis.Redis.from_url(deployment.plan.redis_url, socket_timeout=20) as client:
        client.flushall()
        client.script_flush()


def is_started_anew_and_empty(deployment: Deployment) -> None:
    for path in deployment.plan.home.valkey.rglob("*.aof"):
        path.unlink()
    for path in deployment.plan.home.valkey.rglob("*.manifest"):
        path.unlink()
    os.kill(deployment.child(Part.VALKEY), signal.SIGKILL)


@pytest.mark.parametrize("comes_back", [goes_on, goes_on_and_is_flushed, is_started_anew_and_empty])
def test_what_was_taken_while_valkey_hung_is_done_after_it_is_back(
    deployment: Deployment, customer: Customer, comes_back: Callable[[Deployment], None]
) -> None:
    """Nobody asks again. Afterwards requests are counted, and what was held back is taken, with no other use of
    Valkey to help."""
    os.kill(deployment.child(Part.VALKEY), signal.SIGSTOP)
    try:
        ids = [customer.compile(small_spec(f"{comes_back.__name__.replace('_', '-')}-{n}")) for n in range(2)]
        time.sleep(VALKEY_AWAY_S)
        assert {customer.get(f"/v1/compiles/{id}")["status"] for id in ids} == {"queued"}
    finally:
        comes_back(deployment)
    eventually(
        lambda: "RateLimit" in customer.api.get("/v1/compiles").headers, within_s=30, every_s=1.0, what="counted again"
    )
    assert customer.api.post("/v1/select", json={}).status_code == 400  # of its body, no more a 503
    for id in ids:
        check_books(deployment, customer, customer.succeeded(id, within_s=200))
    unsent = "SELECT count(*) AS n FROM compiles_outbox WHERE sent_at IS NULL"
    eventually(lambda: deployment.rows(unsent)[0]["n"] == 0, within_s=30, what="every hint was sent")
