"""The plan's number of compiles at once holds where the work starts, also against submissions at the same moment."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from backend.compiles.models import Compile
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def submit(secret: str) -> Any:
    answer = Client().post("/v1/compiles", small_spec(), content_type="application/json", headers=bearer(secret))
    connection.close()
    return answer


def test_the_free_plan_has_two_compiles_at_once_however_fast_they_come():
    tenant = make_tenant(plan="free")
    secret = make_api_key(tenant)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: submit(secret), range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] * 2 + [402] * 6
    assert {a.json()["code"] for a in answers if a.status_code == 402} == {"entitlement_reached"}
    with tenant_scope(tenant.id):
        rows = list(Compile.objects.all())
    assert len(rows) == 2
    change(rows[0], status="succeeded")
    assert submit(secret).status_code == 202, "an ended compile gives its place back"
