"""Artifacts: listed, downloaded as the very bytes that were signed, verified, and chained receipts."""

import base64
import hashlib
import json
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.publishing import publish
from backend.artifacts.receipting import as_integers, issue_receipt
from backend.artifacts.signing import keyring, public_raw
from backend.blobs import _path, get_blob
from backend.compiles.models import Compile, StepRun
from backend.domain.artifact import kolm_verify
from backend.domain.artifact.receipts import keyid
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import change, make_artifact, make_compile, make_receipts, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def secret(tenant: Tenant) -> str:
    return make_api_key(tenant)


def published(tenant: Tenant, *, name: str = "router") -> Artifact:
    row = make_compile(tenant, name=name)
    make_receipts(row)
    return make_artifact(row)


def get(client: Client, secret: str, path: str, **headers: str) -> Any:
    return client.get(f"/v1/artifacts{path}", headers=bearer(secret) | headers)


def test_artifacts_are_listed_newest_first_and_filtered_by_name(client, tenant, secret):
    one, two = published(tenant, name="one"), published(tenant, name="two")
    page = get(client, secret, "?limit=1").json()
    assert ([a["id"] for a in page["data"]], page["has_more"]) == ([public_id(two)], True)
    rest = get(client, secret, f"?after={page['next_cursor']}").json()
    assert [a["id"] for a in rest["data"]] == [public_id(one)]
    assert [a["id"] for a in get(client, secret, "?name=one").json()["data"]] == [public_id(one)]


def test_an_artifact_names_its_compile_and_the_compile_its_artifact(client, tenant, secret):
    artifact = published(tenant)
    shown = get(client, secret, f"/{public_id(artifact)}").json()
    assert (shown["sha256"], shown["version"], shown["k_score_ppm"]) == (artifact.sha256, 1, 912_345)
    compile = client.get(f"/v1/compiles/{shown['compile']}", headers=bearer(secret)).json()
    assert compile["artifact"] == shown["id"]


def test_the_download_is_the_very_file_and_can_be_kept_for_ever(client, tenant, secret):
    artifact = published(tenant)
    answer = get(client, secret, f"/{public_id(artifact)}/download")
    assert hashlib.sha256(answer.content).hexdigest() == artifact.sha256
    assert answer["Content-Type"] == "application/vnd.kolm"
    assert answer["Content-Disposition"] == 'attachment; filename="router-1.kolm"'
    assert answer["ETag"] == f'"{artifact.sha256}"'
    assert "immutable" in answer["Cache-Control"]
    again = get(client, secret, f"/{public_id(artifact)}/download", **{"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_download_verifies_offline_with_the_published_keys(client, tenant, secret):
    data = get(client, secret, f"/{public_id(published(tenant))}/download").content
    keys = client.get("/.well-known/kolm-keys.json").json()
    assert keys == keyring()
    assert kolm_verify.verify(data, keys).exit_code == 0
    assert kolm_verify.verify(data, {"keys": []}).exit_code == 3


def test_the_public_keys_are_public_and_hold_no_private_part(client):
    (key,) = client.get("/.well-known/kolm-keys.json").json()["keys"]
    assert key["keyid"] == keyid(base64.b64decode(key["public_key"])) == keyid(public_raw())
    assert set(key) == {"keyid", "public_key", "name", "not_before", "not_after", "revoked_at"}


def test_verifying_tells_trusted_from_altered(client, tenant, secret):
    artifact = published(tenant)
    path = f"/v1/artifacts/{public_id(artifact)}/verify"
    answer = client.post(path, headers=bearer(secret)).json()
    assert (answer["verdict"], answer["exit_code"], answer["keyid"]) == ("trusted", 0, keyid(public_raw()))


def test_bytes_that_changed_on_disk_are_never_handed_out(client, tenant, secret):
    artifact = published(tenant)
    file = _path(tenant.id, artifact.sha256)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for answer in (
        get(client, secret, f"/{public_id(artifact)}/download"),
        client.post(f"/v1/artifacts/{public_id(artifact)}/verify", headers=bearer(secret)),
    ):
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")


def test_a_receipt_chain_is_numbered_signed_and_linked(client, tenant, secret):
    row = make_compile(tenant)
    make_receipts(row, n=4)
    shown = client.get(f"/v1/compiles/{public_id(row)}/receipts", headers=bearer(secret)).json()["data"]
    before = ""
    for seq, receipt in enumerate(shown):
        payload = base64.b64decode(receipt["envelope"]["payload"])
        assert hashlib.sha256(payload).hexdigest() == receipt["payload_sha256"]
        predicate = json.loads(payload)["predicate"]
        assert (predicate["seq"], predicate["prev"], predicate["compile"]) == (seq, before, public_id(row))
        before = receipt["payload_sha256"]


def test_two_receipts_never_have_the_same_place(tenant):
    row = make_compile(tenant)
    (first,) = make_receipts(row, n=1)
    with tenant_scope(tenant.id), pytest.raises(IntegrityError), transaction.atomic():
        Receipt.objects.create(
            tenant_id=tenant.id, compile_id=row.id, seq=0, step="x", envelope={}, payload_sha256=first.payload_sha256
        )


def test_what_goes_on_a_receipt_has_no_floats(tenant):
    assert as_integers({"share": 0.25, "n": 3, "rows": [{"loss": 1.5}], "ok": True, "x": None}) == {
        "share_ppm": 250_000,
        "n": 3,
        "rows": [{"loss_ppm": 1_500_000}],
        "ok": True,
        "x": None,
    }
    row = make_compile(tenant)
    with tenant_scope(tenant.id):
        step = StepRun.objects.filter(compile=row).first()
        receipt = issue_receipt(row, step, inputs={}, outputs={"out": "0" * 64}, facts={"share": 0.25})
    assert json.loads(base64.b64decode(receipt.envelope["payload"]))["predicate"]["facts"] == {"share_ppm": 250_000}


def test_publishing_again_finds_the_first_and_another_compile_takes_the_next_version(tenant):
    first, second = make_compile(tenant), make_compile(tenant)
    data = {}
    for row in (first, second):
        change(row, k_score_ppm=900_000)
        make_receipts(row)
        made = make_artifact(row, version=100 + len(data))
        data[row.id] = get_blob(tenant.id, made.sha256)
        with tenant_scope(tenant.id):
            Artifact.objects.filter(id=made.id).delete()
    with tenant_scope(tenant.id):
        rows = [Compile.objects.get(id=row.id) for row in (first, first, second)]
        made = [publish(row, data[row.id], hashlib.sha256(data[row.id]).hexdigest()) for row in rows]
    assert [artifact.version for artifact in made] == [1, 1, 2]
    assert made[0].id == made[1].id
    assert made[0].manifest["format"] == "kolm/1"


def test_another_tenants_artifact_is_not_there(client, tenant):
    artifact = published(tenant)
    stranger = make_api_key(make_tenant())
    for path in ("", "/download"):
        answer = get(client, stranger, f"/{public_id(artifact)}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert get(client, stranger, "").json()["data"] == []
