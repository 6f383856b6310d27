"""What is kept of an endpoint's lessons where there are more than there is room for."""

from datetime import timedelta

import pytest
from django.utils import timezone

from backend.compiles.endpoint_lessons import KEPT_DAYS, MAX_LESSONS, keep_lessons, lessons_of
from backend.compiles.models import EndpointLessons
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


def kept_on(tenant, rows, *, days_ago: int) -> None:
    """Store the rows of lessons as if they had been written so long ago."""
    keep_lessons(tenant.id, URL, "m", [])
    EndpointLessons.objects.filter(tenant_id=tenant.id).update(
        lessons=rows, updated_at=timezone.now() - timedelta(days=days_ago)
    )


@pytest.mark.parametrize("is_dated", [True, False], ids=["dated", "of an older release"])
@pytest.mark.parametrize("days_ago", [KEPT_DAYS - 1, KEPT_DAYS + 1])
def test_an_old_lesson_is_tried_again_and_kept_anew_but_not_that_a_model_thinks(days_ago: int, is_dated: bool) -> None:
    tenant = make_tenant()
    then = (timezone.now() - timedelta(days=days_ago)).date().isoformat()
    seed = f"seed//{then}" if is_dated else "seed"
    with tenant_scope(tenant.id):
        kept_on(tenant, [[seed, None], ["thoughts", None]], days_ago=0 if is_dated else days_ago)
        kept = lessons_of(tenant.id, URL, "m")
        keep_lessons(tenant.id, URL, "m", [Lesson(option=Option.TOP_K), Lesson(option=Option.SEED)])
        days = {one.option: one.learnt_on for one in lessons_of(tenant.id, URL, "m")}
    thoughts = Lesson(option=Option.THOUGHTS)
    today = timezone.now().date().isoformat()
    is_kept = days_ago < KEPT_DAYS
    assert kept == ((Lesson(option=Option.SEED), thoughts) if is_kept else (thoughts,))
    assert (days[Option.SEED], days[Option.TOP_K]) == (then if is_kept else today, today)
