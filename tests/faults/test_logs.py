"""No text of a customer reaches a log of any part: a canary in task, gold, captures and answers, through faults that
print what they were about."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from deploy.embedded.layout import Part
from tests.acceptance.books import uuid_of
from tests.acceptance.deployment import Customer, Deployment, eventually
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import CANARY, TeacherServer
from tests.faults.killing import asleep, in_mid_training, kill, look

pytestmark = pytest.mark.timeout(2000)
ERASE = """
import django; django.setup()
from uuid import UUID
import sys
from django.db import transaction
from backend.artifacts.signing import sign_document
from backend.tenants.tenant_data import deletion
from backend.tenants.actors import Actor
from backend.tenants.models import Tenant
from backend.tenants.isolation import tenant_scope
with transaction.atomic(), tenant_scope(UUID(sys.argv[1])):
    tenant = Tenant.objects.get(id=UUID(sys.argv[1]))
    actor = Actor(kind="user", id="usr_1", label="owner")
    row = deletion.ask(tenant.id, user_id=1, typed_name=tenant.name, actor=actor)
deletion.erase(row.id, sign=lambda payload: sign_document(payload, deletion.RECEIPT_TYPE))
"""
RAISE = f"""
CREATE FUNCTION tells() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '{CANARY} %', NEW USING DETAIL = '{CANARY}'; END $$
"""


@pytest.fixture(scope="module")
def owner(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer(f"Canary {CANARY}") as customer:
        yield customer


@contextmanager
def database(deployment: Deployment, before: str, after: str) -> Iterator[None]:
    """As superuser, for the length of a block."""
    with deployment.connect() as connection:
        for statement in filter(None, before.split(";;")):
            connection.execute(statement)
        try:
            yield
        finally:
            connection.execute(after)


def logs(deployment: Deployment) -> dict[str, str]:
    return {log.name: log.read_text(errors="replace") for log in sorted(deployment.plan.home.logs.iterdir())}


def test_no_log_of_any_part_holds_a_text(deployment: Deployment, owner: Customer, teacher: TeacherServer) -> None:
    spec = small_spec(f"canary-{CANARY.lower()}", teacher=asks(teacher.url, "telling-logs"), train={"epochs": 60})
    spec["task"] += f" {CANARY}"
    for row in spec["examples"]["inline"]:
        row["input"] += f" {CANARY}"
    refuse = "ALTER TABLE compiles_compile {} CONSTRAINT tells"
    with database(
        deployment, refuse.format("ADD") + " CHECK (name NOT LIKE 'canary-%') NOT VALID", refuse.format("DROP")
    ):
        assert owner.api.post("/v1/compiles", json=spec).status_code == 500
    with deployment.connect() as locker, locker.transaction():
        locker.execute("LOCK TABLE compiles_compile, compiles_upload IN ACCESS EXCLUSIVE MODE")
        assert owner.api.post("/v1/compiles", json=spec).status_code == 503
        headers = {"Content-Type": "application/x-ndjson"}
        lines = json.dumps({"input": f"where is it {CANARY}"}).encode() + b"\n"
        assert owner.api.post("/v1/uploads?purpose=captures", content=lines, headers=headers).status_code == 503
    assert owner.api.post("/v1/uploads?purpose=captures", content=lines, headers=headers).status_code == 201
    assert owner.api.post("/v1/compiles", content=json.dumps(spec)[:-9], headers=headers).status_code >= 400
    assert owner.api.get(f"/v1/compiles?name={CANARY}&cursor={CANARY}").status_code < 500

    compile_id = owner.compile(spec)
    _rows_that_are_refused(deployment, compile_id)
    eventually(lambda: teacher.asked("telling-logs"), within_s=60, what="the teacher was asked")
    kill(deployment, Part.WORKER)
    _kill_a_busy_backend(deployment)
    with asleep(deployment.child(Part.VALKEY)):
        time.sleep(8)
    eventually(lambda: _is_training(deployment, compile_id), within_s=200, what="a checkpoint")
    for child in psutil.Process(deployment.child(Part.RUNNER)).children(recursive=True):
        os.kill(child.pid, signal.SIGSEGV)
    owner.succeeded(compile_id, within_s=250)
    candidates = deployment.rows("SELECT text FROM compiles_candidate WHERE compile_id = %s", uuid_of(compile_id))
    assert any(CANARY in row["text"] for row in candidates), "the teacher's answers hold it"
    said = logs(deployment)
    assert "23514" in said["web.log"]
    assert "55P03" in said["web.log"]
    assert "P0001" in said["worker.log"]
    assert [name for name, text in said.items() if CANARY.lower() in text.lower()] == []


def test_nor_does_what_stands_in_a_request(deployment: Deployment, owner: Customer) -> None:
    """Tokens in paths, questions behind them, headers, log-ins, receivers' addresses, keys: answered, refused, and cut
    off by a database that does not answer."""
    hook = {"url": f"https://{CANARY}.invalid/{CANARY}?token={CANARY}", "events": ["*"]}
    endpoint = owner.api.post("/v1/webhook_endpoints", json=hook)
    assert endpoint.status_code == 201, endpoint.text
    assert owner.api.post(f"/v1/webhook_endpoints/{endpoint.json()['id']}/test").status_code < 300
    key = {"name": f"key {CANARY}", "secret": f"sk-{CANARY}"}
    assert owner.api.post("/v1/teacher_keys", json=key).status_code == 201
    _ask_strangely(deployment)
    with deployment.connect() as locker, locker.transaction():
        rows = deployment.rows(
            "SELECT string_agg(quote_ident(tablename), ', ') AS all FROM pg_tables WHERE schemaname = 'public'"
        )
        locker.execute(f"LOCK TABLE {rows[0]['all']} IN ACCESS EXCLUSIVE MODE")
        _ask_strangely(deployment)
        assert owner.api.get(f"/v1/models/{CANARY}").status_code == 503
    with asleep(deployment.child(Part.VALKEY)):
        _ask_strangely(deployment)
    time.sleep(5)  # the first attempt at the receiver
    said = logs(deployment)
    assert "GET /v1/models/<str:model>: 503" in said["web.log"]
    assert [name for name, text in said.items() if CANARY.lower() in text.lower()] == []


def _ask_strangely(deployment: Deployment) -> None:
    headers = {"User-Agent": CANARY, "Referer": f"https://{CANARY}.example/{CANARY}", "Cookie": f"sessionid={CANARY}"}
    headers |= {"Authorization": f"Bearer {CANARY}", "X-Request-Id": CANARY, "Origin": f"https://{CANARY}.example"}
    paths = [f"/app/invitations/{CANARY}", f"/accounts/password/reset/key/1-{CANARY}/", f"/{CANARY}?q={CANARY}"]
    paths += [f"/accounts/confirm-email/{CANARY}/", f"/v1/compiles/{CANARY}?cursor={CANARY}", "/accounts/login/"]
    paths += ["/accounts/password/reset/", f"/v1/models/{CANARY}", f"/internal/runner/jobs/{CANARY}/report"]
    form = {"login": f"{CANARY}@example.com", "email": f"{CANARY}@example.com", "password": CANARY}
    with httpx.Client(base_url=deployment.url, headers=headers, timeout=60) as client:
        for path in paths:
            for host in ({}, {"Host": f"{CANARY}.example"}):
                client.get(path, headers=host)
                client.post(path, data=form, headers=host)
            client.request(CANARY.upper(), path)


def test_nor_after_the_tenant_is_erased(deployment: Deployment, owner: Customer) -> None:
    process = deployment.python("-c", ERASE, str(owner.tenant_id), DJANGO_SETTINGS_MODULE="backend.settings")
    assert process.wait(120) == 0
    assert httpx.get(f"{deployment.url}/v1/compiles", headers=dict(owner.api.headers)).status_code == 401
    assert [name for name, text in logs(deployment).items() if CANARY.lower() in text.lower()] == []


def _rows_that_are_refused(deployment: Deployment, compile_id: str) -> None:
    """Postgres refuses the candidates, with their texts in its words, until the worker has met that."""
    before = f"{RAISE};;CREATE TRIGGER tells BEFORE INSERT ON compiles_candidate FOR EACH ROW EXECUTE FUNCTION tells()"
    with database(deployment, before, "DROP FUNCTION tells CASCADE"):
        log = deployment.plan.home.log("worker")
        eventually(lambda: "P0001" in log.read_text(errors="replace"), within_s=100, what="a candidate was refused")


def _kill_a_busy_backend(deployment: Deployment) -> None:
    query = "SELECT pid FROM pg_stat_activity WHERE usename = 'kolm_app' AND backend_type = 'client backend' LIMIT 1"
    (row,) = deployment.rows(query)
    os.kill(row["pid"], signal.SIGKILL)
    threading.Event().wait(3)


def _is_training(deployment: Deployment, compile_id: str) -> bool:
    with deployment.connect() as connection:
        return in_mid_training(look(connection, uuid_of(compile_id)))
