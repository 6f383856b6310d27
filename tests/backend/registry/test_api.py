"""/v1/registry."""

import json

import pytest
from django.test import Client

from backend.artifacts.signing import keyring
from backend.domain.recipes.registry.epochs import read_epoch, read_proof
from backend.registry import epochs
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import AuditEntry
from tests.backend.registry.worlds import KEY_NEXT, contributor, contributors
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

CITY = (KEY_NEXT, ' "city": "')
OWN = (KEY_NEXT, ' "ours_alone": "')


@pytest.fixture
def epoch(settings):
    settings.KOLM_REGISTRY_MARGIN = 0
    contributors(10, CITY)
    row = epochs.build()
    assert row is not None
    return row


def get(path, secret, **headers):
    return Client().get(f"/v1/registry/{path}", headers=bearer(secret) | headers)


def test_any_tenant_lists_downloads_and_verifies_an_epoch(epoch):
    secret = make_api_key(make_tenant())
    (row,) = get("epochs", secret).json()["data"]
    assert (row["epoch"], row["k"], row["n_entries"], row["merkle_root"]) == (1, 10, 1, epoch.merkle_root)
    assert get(f"epochs/{row['id']}", secret).json() == row
    answer = get(f"epochs/{row['id']}/download", secret)
    assert len(answer.content) == row["size_bytes"]
    assert answer["ETag"] == f'"{row["sha256"]}"'
    assert read_epoch(answer.content).doubts(keyring()) == ()
    assert get(f"epochs/{row['id']}/download", secret, **{"If-None-Match": answer["ETag"]}).status_code == 304


def test_an_entry_is_proven_without_the_epoch(epoch):
    secret = make_api_key(make_tenant())
    (row,) = get("epochs", secret).json()["data"]
    answer = get(f"epochs/{row['id']}/proof?index=0", secret)
    canonical = json.dumps(answer.json(), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    assert (read_proof(canonical).entry.shape, read_proof(canonical).entry.run) == CITY
    for index in ("1", "-1", "x", "1e1", "\u0661", ""):
        answer = get(f"epochs/{row['id']}/proof?index={index}", secret)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_a_tenant_sees_what_it_put_in_and_nobody_elses():
    ours, theirs = contributor(CITY, OWN), contributor(CITY)
    rows = get("contributions", make_api_key(ours)).json()["data"]
    assert [(row["shape"], row["run"]) for row in rows] == [CITY, OWN]
    assert OWN[1].strip() not in get("contributions", make_api_key(theirs)).content.decode()


def test_withdrawing_takes_everything_back_and_is_written_down():
    ours, theirs = contributor(CITY, OWN), contributor(CITY)
    secret = make_api_key(ours)
    path = "/v1/registry/contributions"
    assert Client().delete(path, headers=bearer(make_api_key(ours, scopes=["artifacts:read"]))).status_code == 403
    for _ in range(2):
        assert Client().delete(path, headers=bearer(secret)).status_code == 204
    assert get("contributions", secret).json()["data"] == []
    assert len(get("contributions", make_api_key(theirs)).json()["data"]) == 1
    with tenant_scope(ours.id):
        (first, _) = AuditEntry.objects.filter(action="registry.withdrawn").order_by("seq")
        assert first.data == {"n_entries": 2}
