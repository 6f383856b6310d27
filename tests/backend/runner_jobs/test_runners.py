"""What runners say of themselves with a claim: kept by name, half trusted, and never at the cost of the claim."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from backend.domain.jobs.base_checks import RunnerReport
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus
from backend.runner_jobs.runners import note_runner

pytestmark = pytest.mark.usefixtures("committed_db")

REPORT = RunnerReport(kinds=["distill"], device="cuda", device_name="NVIDIA L4", memory_bytes=10**10, bases=["a/b"])


@pytest.fixture(autouse=True)
def none_yet() -> None:
    """No runner, and no job that a test before has left for anybody who claims one."""
    Runner.objects.all().delete()
    waiting = RunnerJob.objects.filter(status__in=[RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED])
    waiting.update(status=RunnerJobStatus.CANCELED)


def claim(**body: Any) -> int:
    headers = {"Authorization": f"Bearer {settings.KOLM_RUNNER_TOKEN}"}
    body = {"runner": "r-1", "kinds": ["check_base"], "wait_s": 0} | body
    answer = Client().post("/internal/runner/claim", json.dumps(body), content_type="application/json", headers=headers)
    return answer.status_code


def test_a_claim_brings_a_report_and_the_newest_counts():
    assert claim(report=REPORT.to_json()) == 204
    assert claim(report=REPORT.to_json() | {"bases": []}) == 204
    (row,) = Runner.objects.all()
    assert (row.name, row.report["bases"], row.report["device_name"]) == ("r-1", [], "NVIDIA L4")


def test_a_runner_of_an_older_release_says_nothing_and_gets_its_jobs():
    assert claim(kinds=["distill"]) == 204
    assert Runner.objects.count() == 0


@pytest.mark.parametrize(
    "change",
    [
        {"from_the_future": 1},
        {"memory_bytes": -1},
        {"memory_bytes": "all"},
        {"bases": ["x" * 500]},
        {"bases": ["b"] * 300},
        {"device_name": "\x00"},
        {"is_offline": 1},
        {"kinds": "distill"},
    ],
)
def test_a_report_that_cannot_be_read_costs_no_claim(change):
    assert claim(report=REPORT.to_json() | change) == 204
    assert Runner.objects.count() == 0


def test_runners_that_fell_silent_are_forgotten_after_a_day():
    note_runner("old", REPORT.to_json())
    Runner.objects.update(seen_at=timezone.now() - timedelta(days=2))
    note_runner("new", REPORT.to_json())
    assert list(Runner.objects.values_list("name", flat=True)) == ["new"]
