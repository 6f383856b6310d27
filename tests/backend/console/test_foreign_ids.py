"""Every address of the console with an id in it, asked by an owner of another team: 404 in the words of an id that
nothing has, and nothing of the other team in any answer."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.rest.new_ids import new_id
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey, Member
from backend.tenants.team import invitations
from tests.backend.console.test_roles_by_page import PAGES
from tests.compile_factories import make_artifact, make_compile, make_receipts, make_teacher_key, make_upload, public_id
from tests.factories import make_api_key, make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

CANARY = "canary-of-the-other-team"
WITH_AN_ID = sorted(route for route in PAGES if route.count("<") == 1)


@pytest.fixture(scope="module")
def theirs(django_db_setup: None, django_db_blocker: Any) -> list[str]:
    with django_db_blocker.unblock():
        tenant = make_tenant(CANARY)
        make_api_key(tenant, name=CANARY)
        compile = make_compile(tenant, name=CANARY)
        make_receipts(compile)
        rows = [
            compile,
            make_artifact(compile),
            make_upload(tenant, text=CANARY),
            make_teacher_key(tenant, name=CANARY),
        ]
        member = make_member(tenant, email=f"{CANARY}@example.com")
        with tenant_scope(tenant.id):
            key_id = ApiKey.objects.get().id
            member_id = Member.objects.get(user=member).id
            invited, _ = invitations.invite(tenant.id, f"{CANARY}2@e.com", Role.VIEWER, giver=Role.OWNER, actor=SYSTEM)
        others = {
            Prefix.API_KEY: key_id,
            Prefix.MEMBER: member_id,
            Prefix.INVITATION: invited.id,
            Prefix.TENANT: tenant.id,
        }
        return [public_id(row) for row in rows] + [encode_id(prefix, id) for prefix, id in others.items()]


@pytest.fixture(scope="module")
def ours(django_db_setup: None, django_db_blocker: Any) -> Client:
    with django_db_blocker.unblock():
        client = Client()
        client.force_login(make_member(make_tenant("ours")))
    return client


def told(answer: Any, id: str) -> tuple[int, str]:
    text = answer.content.decode().replace(id, "ID").replace(quote(id), "ID")
    return answer.status_code, re.sub(r"req_\w{26}|[A-Za-z0-9]{64}|datetime=\"[^\"]*\"", "X", text)


@pytest.mark.parametrize("route", WITH_AN_ID)
def test_an_id_of_another_team_is_told_apart_from_none(route, ours, theirs):
    for id in theirs:
        nowhere = new_id(Prefix(id.split("_")[0]))
        for method in ("get", "post"):
            answers = [
                getattr(ours, method)("/" + re.sub(r"<[^>]+>", public, route), {"base_url": "https://x.example.com"})
                for public in (id, nowhere)
            ]
            assert told(answers[0], id) == told(answers[1], nowhere), (method, id)
            assert answers[0].status_code in (404, 405, 400, 422), (method, id, answers[0].status_code)
            assert CANARY not in answers[0].content.decode()


def test_a_team_that_is_not_ones_own_is_not_switched_to_and_not_left(ours, theirs):
    (tenant,) = [id for id in theirs if id.startswith("ten_")]
    assert ours.post("/app/switch", {"tenant": tenant}).status_code == 404
    assert ours.post(f"/app/team/{tenant}/leave").status_code == 404


def test_a_developer_makes_himself_no_owner_by_naming_his_own_id(committed_db):
    """Role escalation by id."""
    tenant = make_tenant()
    make_member(tenant)
    for role in (Role.DEVELOPER, Role.VIEWER, Role.BILLING, Role.ADMIN):
        user = make_member(tenant, role)
        client = Client()
        client.force_login(user)
        with tenant_scope(tenant.id):
            row = Member.objects.get(user=user)
        path = f"/app/team/members/{encode_id(Prefix.MEMBER, row.id)}/role"
        assert client.post(path, {"role": "owner"}).status_code == 403
        with tenant_scope(tenant.id):
            assert Member.objects.get(id=row.id).role == role


def test_a_session_that_names_a_team_one_was_removed_from_opens_the_other(committed_db):
    one, other = make_tenant("one"), make_tenant("other")
    user = make_member(one)
    make_member(other, email=user.email)
    client = Client()
    client.force_login(user)
    client.post("/app/switch", {"tenant": encode_id(Prefix.TENANT, other.id)})
    assert "other" in client.get("/app/settings").content.decode()
    with tenant_scope(other.id):
        Member.objects.get(user=user).delete()
    assert encode_id(Prefix.TENANT, one.id) in client.get("/app/settings").content.decode()
