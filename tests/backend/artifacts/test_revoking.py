"""Revoking: for good, with a reason, told to webhooks; neither run nor downloaded by the way any more."""

from typing import Any

import pytest
from django.test import Client

from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import AuditEntry
from backend.webhooks.models import WebhookEvent
from tests.backend.artifacts.test_artifacts import published
from tests.compile_factories import public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


class Owner:
    def __init__(self) -> None:
        self.tenant = make_tenant()
        self.artifact = published(self.tenant)
        self.path = f"/v1/artifacts/{public_id(self.artifact)}"
        self.secret = make_api_key(self.tenant)

    def post(self, verb: str, body: Any = None, secret: str | None = None) -> Any:
        headers = bearer(secret or self.secret)
        return Client().post(f"{self.path}/{verb}", body or {}, content_type="application/json", headers=headers)

    def get(self, rest: str = "") -> Any:
        return Client().get(self.path + rest, headers=bearer(self.secret))


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_it_says_when_and_why(owner):
    assert (owner.get().json()["revoked_at"], owner.get().json()["revoked_reason"]) == (None, None)
    revoked = owner.post("revoke", {"reason": "wrong labels"}).json()
    assert revoked["revoked_at"] is not None
    assert revoked["revoked_reason"] == "wrong labels"
    assert owner.get().json() == revoked


def test_it_is_not_run_any_more_and_nothing_is_queued(owner):
    owner.post("revoke", {"reason": "wrong labels"})
    refused = owner.post("run", {"inputs": ["a"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_revoked")
    assert "wrong labels" in refused.json()["detail"]
    assert not RunnerJob.objects.filter(tenant_id=owner.tenant.id).exists()


def test_its_bytes_come_to_those_who_say_that_they_know(owner):
    owner.post("revoke")
    assert owner.get("/download").json()["code"] == "artifact_revoked"
    assert owner.get("/download?revoked=true").status_code == 200
    assert owner.get("/download?revoked=false").status_code == 409
    assert owner.post("verify").json()["verdict"] == "trusted"


def test_revoking_again_changes_nothing_and_tells_nobody_twice(owner):
    first = owner.post("revoke", {"reason": "one"}).json()
    assert owner.post("revoke", {"reason": "two"}).json() == first
    with tenant_scope(owner.tenant.id):
        assert WebhookEvent.objects.filter(type="artifact.revoked").count() == 1
        (entry,) = AuditEntry.objects.filter(action="artifact.revoked")
    assert (entry.target, entry.data) == (public_id(owner.artifact), {"reason": "one"})


def test_it_needs_its_own_scope(owner):
    runner = make_api_key(owner.tenant, scopes=["artifacts:read", "artifacts:run"])
    assert owner.post("revoke", secret=runner).status_code == 403


def test_another_tenant_cannot(owner):
    assert owner.post("revoke", secret=make_api_key(make_tenant())).status_code == 404
    assert owner.get().json()["revoked_at"] is None


@pytest.mark.parametrize("body", [{"reason": "x" * 501}, {"why": "x"}, {"reason": None}])
def test_a_malformed_reason_is_refused(owner, body):
    assert owner.post("revoke", body).status_code == 400
