"""A day after it ended a selection is gone, with everything it had; upkeep does it, and books what nobody looked at."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backend.runner_jobs.models import RunnerJob
from backend.selections.conclusion import conclude_ended_jobs
from backend.selections.models import Selection
from backend.selections.retention import KEEP, forget_selections
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.backend.selections.played_runner import get, post, work_on_next
from tests.backend.selections.test_bad_rows import left_of
from tests.factories import make_api_key, make_tenant
from workers import upkeep

pytestmark = pytest.mark.usefixtures("committed_db")

TEXTS = [{"text": f"text {i}", "score": i} for i in range(6)]


@pytest.fixture
def tenant(committed_db: None) -> Any:
    RunnerJob.objects.all().delete()
    return make_tenant()


def age(**ages: timedelta) -> None:
    RunnerJob.objects.update(**{name: timezone.now() - age for name, age in ages.items()})


def test_a_selection_that_nobody_looks_at_is_settled_and_booked_once(tenant):
    post(make_api_key(tenant), TEXTS)
    work_on_next()
    assert (conclude_ended_jobs(), conclude_ended_jobs()) == (1, 0)
    with tenant_scope(tenant.id):
        assert Selection.objects.get().status == "succeeded"
        assert UsageFact.objects.filter(sku="runner.select_job").count() == 1


def test_after_a_day_it_is_gone_and_its_bill_stays(tenant):
    secret = make_api_key(tenant)
    path = post(secret, TEXTS).headers["Location"]
    work_on_next()
    age(ended_at=KEEP - timedelta(minutes=5))
    assert forget_selections() == 0
    expires_at = get(secret, path).json()["expires_at"]
    assert expires_at is not None
    age(ended_at=KEEP + timedelta(minutes=5))
    upkeep.tick(may_expire=False)
    assert get(secret, path).status_code == 404
    assert left_of(tenant.id) == []
    assert not RunnerJob.objects.filter(tenant_id=tenant.id).exists()
    with tenant_scope(tenant.id):
        assert UsageFact.objects.count() == 3  # the embedding, the job, its rows


def test_what_no_runner_takes_for_a_day_fails_and_says_so_for_another_day(tenant):
    secret = make_api_key(tenant)
    path = post(secret, TEXTS).headers["Location"]
    age(created_at=KEEP + timedelta(minutes=5))
    assert forget_selections() == 0
    body = get(secret, path).json()
    assert (body["status"], body["failure"]["code"]) == ("failed", "no_runner")


def test_a_selection_whose_deletion_was_cut_off_is_finished_by_upkeep(tenant):
    post(make_api_key(tenant), TEXTS)
    work_on_next()
    with tenant_scope(tenant.id):
        Selection.objects.all().delete()
    age(ended_at=KEEP + timedelta(minutes=5))
    assert forget_selections() == 1
    assert left_of(tenant.id) == []


def test_one_selection_goes_and_another_of_the_same_rows_stays(tenant):
    secret = make_api_key(tenant)
    old, new = (post(secret, TEXTS).headers["Location"] for _ in range(2))
    work_on_next()
    age(ended_at=KEEP + timedelta(minutes=5))
    RunnerJob.objects.filter(status="queued").update(ended_at=None)
    work_on_next()
    forget_selections()
    assert get(secret, old).status_code == 404
    assert len(get(secret, f"{new}/picks").json()["data"]) == 2
