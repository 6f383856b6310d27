"""The team's pages as people use them: the team, the audit log, settings."""

import io
import json
import re
import zipfile
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from backend.domain.canonical import sha256_of
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.tenants import audit
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import AuditEntry, Invitation, Member, Tenant
from backend.tenants.team import invitations
from backend.tenants.team.team_settings import settings_of
from backend.usage.accounts import set_plan
from tests.backend.console.pages import get, logged_in, post
from tests.compile_factories import make_teacher_key, public_id
from tests.factories import make_member, make_tenant
from tests.model_list_provider import model_list_provider

pytestmark = pytest.mark.usefixtures("committed_db")

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant(f"Team {HOSTILE}")
    with tenant_scope(tenant.id):
        set_plan(tenant.id, "team", actor=SYSTEM)
    return tenant


def test_the_team_page_names_everybody_and_escapes_what_they_wrote(tenant):
    viewer = make_member(tenant, Role.VIEWER)
    text = get(logged_in(tenant), "/app/team")
    assert viewer.email in text
    assert HOSTILE not in text
    assert "of 50 seats" in text


def test_an_invitation_from_the_page_to_the_person(tenant):
    client = logged_in(tenant)
    text = post(
        client, "/app/team/invite", {"email": "NEW@example.com", "role": "developer"}, status=200
    ).content.decode()
    email = mail.outbox[-1]
    assert email.to == ["new@example.com"]
    link = re.search(r"/app/invitations/[\w-]+", email.body).group(0)
    assert link in text, "shown to the inviter, once"
    guest = Client()
    page = guest.get(link).content.decode()
    assert "Sign up as new@example.com" in page
    assert HOSTILE not in page
    with tenant_scope(tenant.id):
        row = Invitation.objects.get(email="new@example.com")
    post(client, f"/app/team/invitations/{invitations.public_id(row)}/revoke")
    assert guest.get(link).status_code == 404
    assert post(client, "/app/team/invite", {"email": "nobody", "role": "viewer"}, status=422)
    assert post(client, "/app/team/invite", {"email": "x@example.com", "role": "emperor"}, status=422)


def test_roles_are_changed_and_people_removed(tenant):
    client, user = logged_in(tenant), make_member(tenant, Role.VIEWER)
    with tenant_scope(tenant.id):
        path = f"/app/team/members/{encode_id(Prefix.MEMBER, Member.objects.get(user=user).id)}"
    post(client, f"{path}/role", {"role": "admin"})
    with tenant_scope(tenant.id):
        assert Member.objects.get(user=user).role == Role.ADMIN
    post(client, f"{path}/remove")
    post(client, f"{path}/remove", status=404)


def test_the_last_owner_is_told_why_he_stays(tenant):
    user = make_member(tenant)
    client = Client()
    client.force_login(user)
    with tenant_scope(tenant.id):
        path = f"/app/team/members/{encode_id(Prefix.MEMBER, Member.objects.get(user=user).id)}"
    for answer in (client.post(f"{path}/remove"), client.post(f"{path}/role", {"role": "viewer"})):
        assert answer.status_code == 409
        assert "last owner" in answer.content.decode()
    leave = f"/app/team/{encode_id(Prefix.TENANT, tenant.id)}/leave"
    assert client.post(leave).status_code == 409


def test_the_audit_page_filters_verifies_and_exports(tenant):
    client = logged_in(tenant)
    post(client, "/app/team/invite", {"email": "a@example.com", "role": "viewer"}, status=200)
    text = get(client, "/app/audit")
    assert "invitation · created" in text
    assert "invitation · created" not in get(client, "/app/audit?action=member")
    assert "invitation · created" in get(client, "/app/audit?action=invitation")
    assert "lines is intact" in post(client, "/app/audit/verify", status=200).content.decode()
    answer = client.get("/app/audit/export")
    lines = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    before = audit.GENESIS
    for line in lines:  # as docs/accounts.md tells people to
        digest = line.pop("sha256")
        assert line["prev_sha256"] == before
        assert sha256_of(line) == digest
        before = digest
    assert len(lines) >= 2


def test_the_export_of_the_log_is_a_part_of_larger_plans(tenant):
    with tenant_scope(tenant.id):
        set_plan(tenant.id, "free", actor=SYSTEM)
    client = logged_in(tenant)
    assert client.get("/app/audit/export").status_code == 402
    assert "Export JSONL" not in get(client, "/app/audit")


def test_many_lines_are_pages(tenant):
    with tenant_scope(tenant.id):
        for i in range(120):
            audit.note(tenant.id, actor=SYSTEM, action="thing.changed", data={"i": i})
    client = logged_in(tenant)
    assert "Older" in get(client, "/app/audit")
    assert "Newer" in get(client, "/app/audit?page=3")
    with tenant_scope(tenant.id):
        assert AuditEntry.objects.count() >= 120


def test_settings_are_saved_and_written_down(tenant):
    client = logged_in(tenant)
    post(client, "/app/settings/name", {"name": " New   name "})
    post(client, "/app/settings/retention", {"captures_days": "30", "candidates_days": ""})
    assert "New name" in get(client, "/app/settings")
    with tenant_scope(tenant.id):
        kept = settings_of(tenant.id)
        assert (kept.captures_days, kept.candidates_days) == (30, None)
        actions = [line["action"] for line in audit.export_lines(tenant.id)]
    assert actions[-2:] == ["tenant.renamed", "settings.changed"]
    assert post(client, "/app/settings/retention", {"captures_days": "soon"}, status=422)
    assert post(client, "/app/settings/retention", {"captures_days": "0"}, status=422)
    assert post(client, "/app/settings/name", {"name": ""}, status=422)


def test_a_teacher_key_is_stored_never_shown_and_deleted(tenant):
    client, secret = logged_in(tenant, Role.DEVELOPER), "sk-secret-0123456789abcd"
    post(client, "/app/settings/teacher_keys", {"name": HOSTILE, "secret": secret})
    text = get(client, "/app/settings")
    assert secret not in text
    assert "abcd" in text
    assert HOSTILE not in text
    (key,) = set(re.findall(r"tk_\w{26}", text))
    post(client, f"/app/settings/teacher_keys/{key}/delete")
    assert key not in get(client, "/app/settings")
    assert post(client, "/app/settings/teacher_keys", {"name": "x", "secret": "short"}, status=422)


def test_a_stored_key_is_tried_at_its_provider_and_never_at_a_private_address(tenant, settings):
    with model_list_provider("sk-right-0123456789") as origin:
        client = logged_in(tenant)
        right = make_teacher_key(tenant, name="right", secret="sk-right-0123456789")
        wrong = make_teacher_key(tenant, name="wrong", secret="sk-wrong-0123456789")

        def said(row: Any, url: str) -> str:
            path = f"/app/settings/teacher_keys/{public_id(row)}/test"
            return client.post(path, {"base_url": url}, follow=True).content.decode()

        assert "not allowed" in said(right, f"{origin}/v1")
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (origin,)
        assert "lists 2 models" in said(right, f"{origin}/v1")
        assert "refuses this key" in said(wrong, f"{origin}/v1")
        assert "not allowed" in said(right, "http://169.254.169.254/v1")
        assert "not allowed" in said(right, "not a url")


def test_an_owner_takes_everything_along(tenant):
    make_teacher_key(tenant, secret="sk-secret-0123456789abcd")
    answer = logged_in(tenant).post("/app/settings/export")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    assert "tenants_auditentry.jsonl" in archive.namelist()
    assert json.loads(archive.read("tenants_tenant.jsonl"))["name"] == tenant.name
    assert b"tenant.exported" in archive.read("tenants_auditentry.jsonl")
    assert not any(b"sk-secret" in archive.read(name) for name in archive.namelist())


@pytest.mark.parametrize("path", ["/app/team", "/app/audit", "/app/settings", "/app/security", "/app/welcome"])
def test_a_page_stays_small(tenant, path):
    get(logged_in(tenant), path)
