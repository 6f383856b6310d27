"""The servers' own addresses: saying hello, fetching an artifact by a grant."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from backend.artifacts.revoking import revoke
from backend.blobs import get_blob
from backend.domain.serving.wire import Grant, grant_key, sign_grant
from backend.serving.models import Server
from backend.serving.runners import servers
from backend.tenants.actors import SYSTEM
from tests.backend.serving.worlds import World, make_world, runner, say_hello
from tests.compile_factories import public_id
from tests.factories import bearer


def grant_of(world: World, **changes: Any) -> str:
    grant = Grant(
        tenant=world.tenant.id.hex,
        artifact=public_id(world.artifact),
        sha256=world.artifact.sha256,
        deployment="",
        api_key="",
        request="r",
        cache_salt="s",
        max_concurrent=1,
        idle_s=0,
        pinned=False,
        expires_at=2**33,
    )
    return sign_grant(replace(grant, **changes), grant_key(settings.KOLM_RUNNER_TOKEN))


def fetch(sha256: str, grant: str) -> Any:
    return Client().get(f"/internal/runner/artifacts/{sha256}", headers=bearer(grant))


def test_a_hello_is_a_lease_and_the_same_name_the_same_server(committed_db):
    first, again = say_hello("http://127.0.0.1:9001").json(), say_hello("http://127.0.0.1:9002", n_waiting=3).json()
    assert first["server"] == again["server"]
    assert first["server"].startswith("srv_")
    assert (first["lease_s"], first["revoked"]) == (15.0, [])
    row = Server.objects.get()
    assert (row.url, row.n_waiting) == ("http://127.0.0.1:9002", 3)
    assert len(servers.live_servers(anew=True)) == 1
    Server.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert servers.live_servers(anew=True) == []
    assert servers.forget_servers() == 0
    Server.objects.update(lease_until=timezone.now() - timedelta(days=2))
    assert servers.forget_servers() == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "file:///etc/passwd"},
        {"max_running": 0},
        {"n_waiting": -1},
        {"name": ""},
        {"adapters": ["short"]},
        {"bases": [{"id": "x"}]},
        {"engine": "torch"},
    ],
)
def test_a_hello_that_cannot_be_is_refused(committed_db, changes):
    told = {"url": "http://127.0.0.1:9"} | changes
    assert say_hello(told.pop("url"), **told).status_code == 400
    assert not Server.objects.exists()


def test_without_the_runner_token_nothing_opens(committed_db):
    for path in ("servers", "usage"):
        assert Client().post(f"/internal/runner/{path}", "{}", content_type="application/json").status_code == 401
        assert Client().get(f"/internal/runner/{path}").status_code == 405
    assert runner("servers", {}).status_code == 400


def test_a_grant_opens_its_artifact_and_no_other(world):
    answer = fetch(world.artifact.sha256, grant_of(world))
    assert answer.status_code == 200
    assert answer.content == get_blob(world.tenant.id, world.artifact.sha256)
    other = make_world()
    assert fetch(other.artifact.sha256, grant_of(world)).status_code == 404
    stolen = grant_of(world, artifact=public_id(other.artifact), sha256=other.artifact.sha256)
    assert fetch(other.artifact.sha256, stolen).status_code == 404  # it is not that tenant's


@pytest.mark.parametrize("bad", ["", "x.y", "old", "forged"])
def test_a_grant_that_is_not_ours_or_too_old_opens_nothing(world, bad):
    grant = {
        "old": grant_of(world, expires_at=1),
        "forged": grant_of(world).rpartition(".")[0] + "." + "A" * 43,
    }.get(bad, bad)
    assert fetch(world.artifact.sha256, grant).status_code == 401


def test_a_revoked_artifact_is_not_given_and_servers_that_hold_it_are_told(world):
    sha256 = world.artifact.sha256
    assert say_hello("http://127.0.0.1:9", adapters=[sha256]).json()["revoked"] == []
    revoke(world.tenant.id, world.artifact.id, reason="", actor=SYSTEM)
    assert fetch(sha256, grant_of(world)).status_code == 409
    assert say_hello("http://127.0.0.1:9", adapters=[sha256, "f" * 64]).json()["revoked"] == [sha256]
