"""Uploads are deleted as a customer expects it: the rows are off the disk at once, and nobody else's are touched."""

import json

import pytest
from django.db import connection
from django.test import Client

from backend.blobs import has_blob
from backend.compiles.lifecycle import retention
from backend.compiles.models import Compile, Upload
from backend.domain.ids import Prefix, decode_id
from backend.domain.lifecycle import CompileStatus
from backend.domain.roles import Role
from backend.tenants import audit
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.compile_factories import change, gold, small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def send(client: Client, secret: str, *, name: str = "tickets", purpose: str = "examples", n: int = 60) -> str:
    rows = [{"input": row["input"]} if purpose == "captures" else row for row in gold(n)]
    body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    address = f"/v1/uploads?purpose={purpose}&name={name}"
    return client.post(address, body, content_type="application/x-ndjson", headers=bearer(secret)).json()["id"]


def delete(client: Client, secret: str, upload: str, status: int = 204) -> str:
    answer = client.delete(f"/v1/uploads/{upload}", headers=bearer(secret))
    assert answer.status_code == status, answer.content
    return "" if status == 204 else answer.json()["code"]


def digest_of(tenant, upload: str) -> str:
    with tenant_scope(tenant.id):
        return Upload.objects.get(id=decode_id(Prefix.UPLOAD, upload)).sha256


def compile_of(client: Client, secret: str, named: str, status: int = 202):
    spec = small_spec(examples={"upload": named, "holdout": 0.5})
    answer = client.post("/v1/compiles", json.dumps(spec), content_type="application/json", headers=bearer(secret))
    assert answer.status_code == status, answer.content
    return answer.json()


def test_a_wrong_file_is_off_the_disk_seconds_after_it_came(client, tenant, secret):
    upload = send(client, secret)
    digest = digest_of(tenant, upload)
    delete(client, secret, upload)
    assert not has_blob(tenant.id, digest)
    assert client.get(f"/v1/uploads/{upload}", headers=bearer(secret)).status_code == 404
    assert delete(client, secret, upload, 404) == "not_found"
    with tenant_scope(tenant.id):
        entry = list(audit.export_lines(tenant.id))[-1]
    assert (entry["action"], entry["target"], entry["data"]["n_rows"]) == ("upload.deleted", upload, 60)


def test_rows_that_another_upload_has_too_stay(client, tenant, secret):
    first, second = send(client, secret), send(client, secret, name="the same again")
    delete(client, secret, first)
    assert has_blob(tenant.id, digest_of(tenant, second))
    delete(client, secret, second)


def test_an_upload_that_a_compile_may_still_read_stays_until_it_has_ended(client, tenant, secret):
    upload = send(client, secret)
    compile_of(client, secret, "tickets")
    assert delete(client, secret, upload, 409) == "upload_in_use"
    with tenant_scope(tenant.id):
        row = Compile.objects.get()
    change(row, status=CompileStatus.FAILED)
    delete(client, secret, upload)


def test_a_name_means_the_newest_upload_that_is_left(client, tenant, secret):
    older, newer = send(client, secret), send(client, secret, n=80)
    delete(client, secret, newer)
    compile_of(client, secret, "tickets")
    with tenant_scope(tenant.id):
        assert Compile.objects.get().spec["examples"]["upload"] == older


def test_a_spec_that_names_what_is_gone_is_told_so(client, secret):
    upload = send(client, secret)
    delete(client, secret, upload)
    for named in (upload, "tickets"):
        problem = compile_of(client, secret, named, 422)["errors"][0]
        assert (problem["pointer"], problem["code"]) == ("/examples/upload", "unknown_upload")


def test_what_retention_has_forgotten_is_told_like_what_never_was(client, tenant, secret):
    upload = send(client, secret, purpose="captures")
    with connection.cursor() as cursor, tenant_scope(tenant.id):
        cursor.execute("UPDATE compiles_upload SET created_at = now() - interval '9 days'")
        retention._forget_captures(tenant.id, 7)
    for named in (upload, "tickets"):
        spec = small_spec(captures={"upload": named})
        answer = client.post("/v1/compiles", json.dumps(spec), content_type="application/json", headers=bearer(secret))
        assert answer.json()["errors"][0]["code"] == "unknown_upload"


def test_another_teams_upload_is_neither_deleted_nor_there(client, tenant, secret):
    upload = send(client, secret)
    other = make_tenant()
    other_key = make_api_key(other)
    assert delete(client, other_key, upload, 404) == "not_found"
    for named in (upload, "tickets"):
        text = json.dumps(compile_of(client, other_key, named, 422))
        assert "unknown_upload" in text
        assert "examples" not in text.replace("/examples/upload", "").replace("upload of examples", "").replace(
            "purpose=examples", ""
        )
    post(logged_in(other), f"/app/uploads/{upload}/delete", status=404)
    assert has_blob(tenant.id, digest_of(tenant, upload))


def test_a_key_that_only_reads_deletes_nothing(client, tenant, secret):
    upload = send(client, secret)
    reading = make_api_key(tenant, scopes=["uploads:read"])
    assert delete(client, reading, upload, 403) == "missing_scope"


def test_the_page_of_an_upload_deletes_it_and_says_so(client, tenant, secret):
    upload = send(client, secret)
    browser = logged_in(tenant, Role.DEVELOPER)
    assert f"/app/uploads/{upload}/delete" in get(browser, f"/app/uploads/{upload}")
    post(browser, f"/app/uploads/{upload}/delete")
    assert "tickets is deleted, with its 60 rows." in get(browser, "/app/uploads")
    get(browser, f"/app/uploads/{upload}", status=404)
    with tenant_scope(tenant.id):
        assert list(audit.export_lines(tenant.id))[-1]["actor"]["kind"] == "user"


def test_the_page_says_why_an_upload_stays(client, tenant, secret):
    upload = send(client, secret)
    compile_of(client, secret, upload)
    answer = post(logged_in(tenant), f"/app/uploads/{upload}/delete", status=409)
    assert "A compile that is under way reads this upload" in answer.content.decode()


def test_older_data_of_a_name_says_that_the_newest_is_meant(client, tenant, secret):
    older, newer = send(client, secret), send(client, secret, n=80)
    browser = logged_in(tenant)
    assert f"/app/uploads/{newer}" in get(browser, f"/app/uploads/{older}")
    assert "There is newer data of this name" not in get(browser, f"/app/uploads/{newer}")
