"""What a stranger's pattern does to the web process: nothing. And what becomes of a spec that was stored with a pattern
which is refused today: its owner is told what to write."""

import json
import threading
import time
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.compiles.models import Compile
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.domain.patterns.test_matching import AUDITED
from tests.compile_factories import change, make_compile, public_id, small_spec
from tests.factories import bearer, make_api_key, make_tenant
from tests.profiles import one_in

pytestmark = pytest.mark.usefixtures("committed_db")
PLACES = ("/v1/specs/validate", "/v1/compiles/estimate", "/v1/compiles")


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def post(client: Client, secret: str, path: str, body: Any) -> Any:
    return client.post(path, json.dumps(body), content_type="application/json", headers=bearer(secret))


def audits_spec(pattern: str, text: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    gold = [{"input": f"text {i}", "output": {"a": text}} for i in range(24)]
    output = {"type": "json", "schema": schema}
    return small_spec(output=output, examples={"inline": gold, "holdout": 0.5}, verifiers=[])


@pytest.mark.nightly
@pytest.mark.parametrize("path", one_in(3, PLACES))
def test_the_audits_specs_are_answered_at_once(client: Client, tenant: Tenant, path: str) -> None:
    secret = make_api_key(tenant)
    post(client, secret, path, audits_spec("^a$", "b"))  # the first loads what the others have
    for pattern in AUDITED:
        for text in ("ix" * 40 + "!", "a" * 999 + "!", "ab" * 499 + "!"):
            started = time.thread_time()
            answer = post(client, secret, path, audits_spec(pattern, text))
            assert time.thread_time() - started < 2.5  # 24 answers of 0.1 s at the very most
            if answer.status_code < 300:
                continue  # the text fits
            assert {error["code"] for error in answer.json()["errors"]} <= {"schema_mismatch", "bad_pattern"}


def test_others_are_served_while_the_audits_specs_are_judged(tenant: Tenant) -> None:
    bad, quiet = make_api_key(tenant), make_api_key(make_tenant())
    answers: list[int] = []
    stop = threading.Event()

    def attack() -> None:
        client = Client()
        while not stop.is_set():
            post(client, bad, PLACES[0], audits_spec("(?:a?b?){800}c", "ab" * 499 + "!"))
        connection.close()

    attackers = [threading.Thread(target=attack) for _ in range(4)]
    for attacker in attackers:
        attacker.start()
    try:
        for _ in range(10):
            answers.append(Client().get("/v1/compiles", headers=bearer(quiet)).status_code)
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()
    assert answers == [200] * 10


OLD = [
    ("(?!.*refund)", "looks ahead"),
    (r"(?<=order )\d+", "looks behind"),
]


@pytest.mark.parametrize(("pattern", "words"), OLD)
def test_a_stored_spec_with_a_refused_pattern_says_so_wherever_it_is_used_again(
    client: Client, tenant: Tenant, pattern: str, words: str
) -> None:
    secret = make_api_key(tenant)
    row = make_compile(tenant)
    change(row, spec=row.spec | {"verifiers": [{"kind": "regex", "pattern": pattern}]}, status="gate_failed")
    shown = client.get(f"/v1/compiles/{public_id(row)}", headers=bearer(secret))
    assert shown.status_code == 200
    for path, body in [(PLACES[0], row_spec(row)), (PLACES[2], row_spec(row))]:
        answer = post(client, secret, path, body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "bad_pattern")
        assert words in answer.json()["detail"]


def row_spec(row: Compile) -> Any:
    with tenant_scope(row.tenant_id):
        return Compile.objects.get(id=row.id).spec
