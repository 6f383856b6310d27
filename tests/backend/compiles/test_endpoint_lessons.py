"""What is kept of an endpoint's lessons where there are more than there is room for."""

import pytest

from backend.compiles.endpoint_lessons import MAX_LESSONS, keep_lessons, lessons_of
from backend.domain.dialects.dialect import Lesson, Option
from backend.tenants.isolation import tenant_scope
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db
URL = "https://llm.example.com/v1"


def test_lessons_of_many_schemas_leave_room_for_those_of_every_request() -> None:
    tenant = make_tenant()
    weaker = {"option": Option.RESPONSE_FORMAT, "value": "json_object"}
    of_schemas = [Lesson(**weaker, scope=f"{n:016x}") for n in range(MAX_LESSONS + 5)]
    with tenant_scope(tenant.id):
        keep_lessons(tenant.id, URL, "m", of_schemas)
        keep_lessons(tenant.id, URL, "m", [Lesson(option=Option.SEED)])
        kept = lessons_of(tenant.id, URL, "m")
    assert kept == (Lesson(option=Option.SEED), *of_schemas[-(MAX_LESSONS - 1) :])
