"""Who may change whom; and the keys of the API."""

import re
import threading
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from backend.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, PaymentRequired
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import set_local, set_user, tenant_scope, user_token
from backend.tenants.models import Invitation, Member, Tenant
from backend.tenants.team import invitations, members
from backend.tenants.team.membership import memberships_of
from backend.usage.accounts import set_plan
from tests.factories import bearer, make_api_key, make_member, make_tenant
from tests.profiles import one_in

ANNA = Actor(kind="user", id="usr_7", label="anna@example.com")


@pytest.fixture
def tenant(committed_db: None) -> Tenant:
    return with_plan(make_tenant(), "team")


def with_plan(tenant: Tenant, plan: str) -> Tenant:
    with tenant_scope(tenant.id):
        set_plan(tenant.id, plan, actor=ANNA)
    return tenant


def member_of(tenant: Tenant, user: User) -> Member:
    with tenant_scope(tenant.id):
        return Member.objects.get(user=user)


def change(tenant: Tenant, user: User, role: Role, giver: Role) -> None:
    with tenant_scope(tenant.id):
        members.change_role(tenant.id, member_of(tenant, user).id, role, giver=giver, actor=ANNA)


def actions(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant.id):
        return [line["action"] for line in audit.export_lines(tenant.id)]


def invited(tenant: Tenant, email: str, role: Role = Role.VIEWER, giver: Role = Role.OWNER) -> tuple[Invitation, str]:
    with tenant_scope(tenant.id):
        return invitations.invite(tenant.id, email, role, giver=giver, actor=ANNA)


# --- roles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("giver", "before", "after"), one_in(7, product(Role, Role, Role)))
def test_nobody_gives_or_takes_a_role_above_his_own(tenant, giver, before, after):
    make_member(tenant)  # so that the last owner is never at stake
    user = make_member(tenant, before)
    allowed = giver == Role.OWNER or (giver == Role.ADMIN and Role.OWNER not in (before, after))
    if allowed:
        change(tenant, user, after, giver)
        assert member_of(tenant, user).role == after
    else:
        with pytest.raises(Forbidden):
            change(tenant, user, after, giver)
        assert member_of(tenant, user).role == before


def test_the_last_owner_is_neither_demoted_nor_removed_nor_leaves(tenant):
    owner = make_member(tenant)
    make_member(tenant, Role.ADMIN)
    with pytest.raises(Conflict, match="last owner"):
        change(tenant, owner, Role.ADMIN, Role.OWNER)
    for giver in (Role.OWNER, None):
        with pytest.raises(Conflict, match="last owner"), tenant_scope(tenant.id):
            members.remove(tenant.id, member_of(tenant, owner).id, giver=giver, actor=ANNA)
    assert member_of(tenant, owner).role == Role.OWNER


def test_two_owners_who_demote_each_other_at_once_leave_one(tenant):
    owners = [make_member(tenant), make_member(tenant)]
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def demote(user: User) -> None:
        start.wait()
        try:
            change(tenant, user, Role.VIEWER, Role.OWNER)
            outcomes.append("done")
        except Conflict:
            outcomes.append("refused")
        connection.close()

    threads = [threading.Thread(target=demote, args=(user,)) for user in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", "refused"]
    assert sorted(member_of(tenant, user).role for user in owners) == ["owner", "viewer"]


def test_another_teams_member_is_not_there(tenant):
    stranger = make_member(with_plan(make_tenant(), "team"))
    with pytest.raises(Member.DoesNotExist):
        member_of(tenant, stranger)
    with pytest.raises(NotFound), tenant_scope(tenant.id):
        members.remove(tenant.id, Member(user=stranger).id, giver=Role.OWNER, actor=ANNA)


# --- invitations ---------------------------------------------------------------------------------------------


def test_an_invitation_makes_the_owner_of_the_address_a_member_once(tenant):
    row, token = invited(tenant, " New@Example.COM ", Role.DEVELOPER)
    assert row.email == "new@example.com"
    user = make_member(make_tenant(), email="new@example.com")
    invitations.accept(token, user_id=user.pk)
    assert member_of(tenant, user).role == Role.DEVELOPER
    with pytest.raises(NotFound):
        invitations.accept(token, user_id=user.pk)
    assert actions(tenant)[-2:] == ["invitation.created", "invitation.accepted"]


def test_a_letter_that_somebody_else_holds_opens_nothing(tenant):
    _, token = invited(tenant, "new@example.com")
    thief = make_member(make_tenant())
    with pytest.raises(Forbidden, match="was sent to"):
        invitations.accept(token, user_id=thief.pk)
    unverified = User.objects.create(username="u-new", email="new@example.com")
    with pytest.raises(Forbidden):
        invitations.accept(token, user_id=unverified.pk)
    assert {m.tenant_id for m in memberships_of(thief.pk)}.isdisjoint({tenant.id})


@pytest.mark.parametrize("end", ["expires", "is revoked", "is sent again"])
def test_an_invitation_ends(tenant, end):
    row, token = invited(tenant, "late@example.com")
    user = make_member(make_tenant(), email=f"late-{row.id.hex[-6:]}@example.com")
    with tenant_scope(tenant.id):
        if end == "expires":
            Invitation.objects.filter(id=row.id).update(expires_at=timezone.now() - timedelta(seconds=1))
        elif end == "is revoked":
            invitations.revoke(tenant.id, row.id, actor=ANNA)
            invitations.revoke(tenant.id, row.id, actor=ANNA)
        else:
            invitations.invite(tenant.id, "late@example.com", Role.VIEWER, giver=Role.OWNER, actor=ANNA)
    assert invitations.look_up(token) is None
    with pytest.raises(NotFound):
        invitations.accept(token, user_id=user.pk)


def test_the_token_is_nowhere_in_the_database(tenant):
    row, token = invited(tenant, "x@example.com")
    assert token not in str(row.__dict__)
    assert row.token_hash == invitations.hash_of(token)


def test_a_transaction_that_names_a_hash_sees_that_invitation_and_no_other(tenant):
    row, token = invited(tenant, "one@example.com")
    invited(tenant, "two@example.com")
    with transaction.atomic():
        set_local("app.invitation_hash", invitations.hash_of(token))
        assert [found.id for found in Invitation.objects.all()] == [row.id]
    with transaction.atomic():
        set_local("app.invitation_hash", "0" * 64)
        assert list(Invitation.objects.all()) == []
    with pytest.raises(DatabaseError), transaction.atomic():
        list(Invitation.objects.all())


def test_nobody_invites_above_himself_or_a_member_again(tenant):
    with pytest.raises(Forbidden):
        invited(tenant, "x@example.com", Role.OWNER, giver=Role.ADMIN)
    with pytest.raises(Forbidden):
        invited(tenant, "x@example.com", Role.VIEWER, giver=Role.DEVELOPER)
    here = make_member(tenant, Role.VIEWER)
    with pytest.raises(Conflict):
        invited(tenant, here.email.upper())
    with pytest.raises(InvalidInput):
        invited(tenant, "not an address")


def test_seats_are_limited_by_the_plan_and_open_invitations_hold_them(committed_db):
    tenant = with_plan(make_tenant(), "free")  # two seats
    make_member(tenant)
    row, token = invited(tenant, "second@example.com")
    with pytest.raises(PaymentRequired) as refused:
        invited(tenant, "third@example.com")
    assert refused.value.code == "entitlement_reached"
    with tenant_scope(tenant.id):
        invitations.revoke(tenant.id, row.id, actor=ANNA)
    _, token = invited(tenant, "third@example.com")
    user = make_member(make_tenant(), email="third@example.com")
    make_member(tenant)  # the plan was filled meanwhile
    with pytest.raises(PaymentRequired):
        invitations.accept(token, user_id=user.pk)


def test_the_last_seat_is_taken_once(committed_db):
    tenant = with_plan(make_tenant(), "free")
    make_member(tenant)
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def ask(n: int) -> None:
        start.wait()
        try:
            invited(tenant, f"p{n}@example.com")
            outcomes.append("invited")
        except PaymentRequired:
            outcomes.append("full")
        connection.close()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["full", "full", "full", "invited"]


# --- kolm_user(): whom the database believes -------------------------------------------------------------------


def test_a_person_sees_his_own_memberships_and_nothing_else(committed_db):
    one, other = make_tenant("one"), make_tenant("other")
    user, stranger = make_member(one), make_member(other)
    make_member(other, Role.VIEWER, email=user.email)
    with transaction.atomic():
        set_user(user.pk)
        assert {row.tenant_id for row in Member.objects.all()} == {one.id, other.id}
        assert {row.user_id for row in Member.objects.all()} == {user.pk}
        with pytest.raises(DatabaseError), transaction.atomic():
            list(Tenant.objects.all())
    assert {m.tenant_name for m in memberships_of(stranger.pk)} == {"other"}


@transaction.atomic
def seen_with(token: str) -> list[Member]:
    set_local("app.user", token)
    return list(Member.objects.all())


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda token: token.replace("user-", "user-1", 1), id="another person"),
        pytest.param(lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"), id="another signature"),
        pytest.param(lambda token: "user-1", id="no signature"),
        pytest.param(lambda token: f"user-1.9999999999.{'0' * 64}", id="a made-up signature"),
        pytest.param(lambda token: "1", id="a bare number"),
    ],
)
def test_a_forged_token_of_a_person_raises(committed_db, forge):
    user = make_member(make_tenant())
    with pytest.raises(DatabaseError):
        seen_with(forge(user_token(user.pk)))


def test_an_expired_token_of_a_person_raises(committed_db):
    user = make_member(make_tenant())
    with pytest.raises(DatabaseError, match="expired"):
        seen_with(user_token(user.pk, expires_at=1_000_000))


def test_a_persons_token_changes_nothing(committed_db):
    tenant = make_tenant()
    user = make_member(tenant, Role.VIEWER)

    @transaction.atomic
    def promote_oneself() -> None:
        set_user(user.pk)
        Member.objects.filter(user=user).update(role=Role.OWNER)

    with pytest.raises(DatabaseError):
        promote_oneself()
    assert member_of(tenant, user).role == Role.VIEWER


# --- the API -------------------------------------------------------------------------------------------------


def ask(method: str, path: str, secret: str, body: Any = None) -> Any:
    call = getattr(Client(), method)
    return (
        call(path, body, content_type="application/json", headers=bearer(secret))
        if body is not None
        else call(path, headers=bearer(secret))
    )


def test_members_over_the_api(tenant):
    secret = make_api_key(tenant)
    owner, viewer = make_member(tenant), make_member(tenant, Role.VIEWER)
    listed = ask("get", "/v1/members", secret).json()["data"]
    assert {(row["email"], row["role"]) for row in listed} == {(owner.email, "owner"), (viewer.email, "viewer")}
    path = f"/v1/members/{encode_id(Prefix.MEMBER, member_of(tenant, viewer).id)}"
    assert ask("patch", path, secret, {"role": "developer"}).json()["role"] == "developer"
    assert ask("patch", path, secret, {"role": "owner"}).status_code == 403
    assert ask("patch", path, secret, {"role": "emperor"}).status_code == 400
    boss = f"/v1/members/{encode_id(Prefix.MEMBER, member_of(tenant, owner).id)}"
    assert ask("patch", boss, secret, {"role": "viewer"}).status_code == 403
    assert ask("delete", boss, secret).status_code == 403
    assert ask("delete", path, secret).status_code == 204
    assert ask("get", path, secret).status_code == 404
    assert memberships_of(viewer.pk) == []


def test_invitations_over_the_api(tenant):
    secret = make_api_key(tenant)
    made = ask("post", "/v1/invitations", secret, {"email": "api@example.com", "role": "billing"})
    assert made.status_code == 201
    assert made.json()["status"] == "open"
    assert "token" not in made.json()
    letter = mail.outbox[-1]
    assert letter.to == ["api@example.com"]
    token = re.search(r"/app/invitations/(\S+)", letter.body).group(1)
    assert invitations.look_up(token).email == "api@example.com"
    assert ask("post", "/v1/invitations", secret, {"email": "o@example.com", "role": "owner"}).status_code == 403
    path = f"/v1/invitations/{made.json()['id']}/revoke"
    assert ask("post", path, secret, {}).json()["status"] == "revoked"
    assert invitations.look_up(token) is None
    assert [row["status"] for row in ask("get", "/v1/invitations", secret).json()["data"]] == ["revoked"]


def test_the_audit_log_over_the_api(tenant):
    secret = make_api_key(tenant)
    ask("post", "/v1/invitations", secret, {"email": "api@example.com", "role": "billing"})
    lines = ask("get", "/v1/audit_log", secret).json()["data"]
    assert [line["seq"] for line in lines] == sorted((line["seq"] for line in lines), reverse=True)
    only = ask("get", "/v1/audit_log?action=invitation", secret).json()["data"]
    assert [line["action"] for line in only] == ["invitation.created"]
    exact = ask("get", "/v1/audit_log?action=api_key.created", secret).json()["data"]
    assert {line["action"] for line in exact} == {"api_key.created"}
    key_id = only[0]["actor"]["id"]
    assert ask("get", f"/v1/audit_log?actor={key_id}", secret).json()["data"] == only


def test_a_name_cannot_break_out_of_the_letter(tenant):
    with tenant_scope(tenant.id):
        members.rename(tenant.id, "Acme\nBcc: x@evil.example\n\nVisit https://evil.example now", actor=ANNA)
    ask("post", "/v1/invitations", make_api_key(tenant), {"email": "api@example.com", "role": "billing"})
    letter = mail.outbox[-1]
    assert "\n" not in letter.subject
    assert letter.recipients() == ["api@example.com"]
    assert "https://evil.example" not in letter.body
