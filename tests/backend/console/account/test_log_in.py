"""Coming in: sign-up, confirmation, login, reset, second factors, sessions. The e-mails are read as people read
them."""

import re
import time
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Member
from backend.tenants.team.membership import memberships_of
from tests.factories import PASSWORD, make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

INLINE = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|\sstyle=|\son[a-z]+=\"", re.IGNORECASE)


def fresh() -> str:
    return f"p{new_uuid7().hex[-12:]}@example.com"


def link_in(message: Any) -> str:
    return "/" + re.search(r"https?://[^/\s]+/(\S+)", message.body).group(1)


def sign_up(client: Client, email: str, password: str = PASSWORD) -> Any:
    return client.post("/accounts/signup/", {"email": email, "password1": password})


def log_in(client: Client, email: str, password: str = PASSWORD) -> Any:
    return client.post("/accounts/login/", {"login": email, "password": password})


def is_in(client: Client) -> bool:
    return "/accounts/login/" not in client.get("/app/security").get("Location", "")


def test_from_sign_up_to_a_team_of_ones_own():
    client, email = Client(), fresh()
    answer = sign_up(client, email.upper())
    assert answer["Location"] == "/accounts/confirm-email/"
    assert not is_in(client)
    message = mail.outbox[-1]
    assert message.to == [email]
    page = client.get(link_in(message))
    assert email in page.content.decode()
    client.post(link_in(message))
    log_in(client, email)
    assert client.get("/app/").headers["Location"] == "/app/welcome"
    assert client.post("/app/welcome", {"name": "  "}).status_code == 422
    assert client.post("/app/welcome", {"name": " Acme   Refunds "})["Location"] == "/app/"
    user = User.objects.get(email=email)
    assert user.username == email
    (membership,) = memberships_of(user.pk)
    assert (membership.tenant_name, membership.role) == ("Acme Refunds", Role.OWNER)
    assert user.password.startswith("argon2")


def test_an_address_that_was_not_confirmed_does_not_come_in():
    client, email = Client(), fresh()
    sign_up(client, email)
    mail.outbox.clear()
    answer = log_in(client, email)
    assert answer["Location"] == "/accounts/confirm-email/"
    assert not is_in(client)


def test_sign_up_and_reset_tell_nobody_who_has_an_account():
    known, unknown = make_member(make_tenant()).email, fresh()
    answers = [sign_up(Client(), email) for email in (known, unknown)]
    assert answers[0].status_code == answers[1].status_code == 302
    assert answers[0]["Location"] == answers[1]["Location"]
    assert "already" in mail.outbox[-2].body.lower()
    resets = [Client().post("/accounts/password/reset/", {"email": email}) for email in (known, fresh())]
    assert resets[0]["Location"] == resets[1]["Location"]
    logins = [log_in(Client(), email, "a wrong password") for email in (known, fresh())]
    words = [re.sub(r"[\w.+-]+@example\.com|csrf\S+|value=\"\S+\"", "", answer.content.decode()) for answer in logins]
    words = [re.sub(r"content=\"[A-Za-z0-9]{32,}\"", "", text) for text in words]
    assert words[0] == words[1]


@pytest.mark.parametrize("password", ["short", "password1234", "1234567890"])
def test_a_weak_password_is_refused(password):
    answer = sign_up(Client(), fresh(), password)
    assert answer.status_code == 200
    assert "error" in answer.content.decode()


def test_five_wrong_passwords_shut_the_door_for_a_while():
    email = make_member(make_tenant()).email
    for _ in range(5):
        log_in(Client(), email, "a wrong password")
    client = Client()
    answer = log_in(client, email)
    assert "Too many" in answer.content.decode()
    assert not is_in(client)


def test_sign_ups_from_one_address_are_counted(settings):
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"signup": "3/h/ip"}
    statuses = [sign_up(Client(), fresh()).status_code for _ in range(5)]
    assert statuses == [302, 302, 302, 429, 429]


def test_a_session_from_before_the_log_in_is_worth_nothing_after_it():
    """Session fixation: the key that a stranger planted is not the key of the session that is logged in."""
    client, user = Client(), make_member(make_tenant())
    client.get("/accounts/login/")
    session = client.session
    session["planted"] = True
    session.save()
    planted = session.session_key
    client.cookies["sessionid"] = planted
    log_in(client, user.email)
    assert is_in(client)
    assert client.cookies["sessionid"].value != planted
    stranger = Client()
    stranger.cookies["sessionid"] = planted
    assert not is_in(stranger)


def test_a_password_reset_ends_every_session():
    user = make_member(make_tenant())
    elsewhere = Client()
    log_in(elsewhere, user.email)
    assert is_in(elsewhere)
    client = Client()
    client.post("/accounts/password/reset/", {"email": user.email})
    page = client.get(link_in(mail.outbox[-1]))
    answer = client.post(page["Location"], {"password1": "another good phrase", "password2": "another good phrase"})
    assert answer.status_code == 302
    assert not is_in(elsewhere)
    assert "error" in log_in(Client(), user.email).content.decode()
    log_in(client, user.email, "another good phrase")
    assert is_in(client)


def code_of(secret: str) -> str:
    counters = list(yield_hotp_counters_from_time())
    counter = counters[len(counters) // 2]  # now; those around it are tolerated
    return format_hotp_value(hotp_value(secret, counter))


def test_a_second_factor_is_asked_for_and_a_recovery_code_opens_once(settings):
    settings.MFA_TOTP_TOLERANCE = 1  # half a minute may end between the code and its look
    user = make_member(make_tenant())
    secret = generate_totp_secret()
    TOTP.activate(user, secret)
    from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes

    codes = RecoveryCodes.activate(user).get_unused_codes()
    client = Client()
    answer = log_in(client, user.email)
    assert answer["Location"].startswith("/accounts/2fa/authenticate/")
    assert not is_in(client)
    assert client.post("/accounts/2fa/authenticate/", {"code": "000000"}).status_code == 200
    assert not is_in(client)
    client.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})
    assert is_in(client)
    for is_first in (True, False):
        other = Client()
        log_in(other, user.email)
        other.post("/accounts/2fa/authenticate/", {"code": codes[0]})
        assert is_in(other) == is_first


def test_a_team_that_demands_a_second_factor_is_shut_to_who_has_none():
    tenant = make_tenant()
    owner, viewer = make_member(tenant), make_member(tenant, Role.VIEWER)
    clients = {user.pk: Client() for user in (owner, viewer)}
    for user in (owner, viewer):
        clients[user.pk].force_login(user)
    demand = {"is_mfa_required": "on"}
    assert clients[owner.pk].post("/app/settings/log-in", demand).status_code == 422
    TOTP.activate(owner, generate_totp_secret())
    assert clients[owner.pk].post("/app/settings/log-in", demand).status_code == 302
    assert clients[viewer.pk].get("/app/compiles")["Location"] == "/app/security?must=factor"
    assert clients[viewer.pk].get("/app/security").status_code == 200
    assert clients[owner.pk].get("/app/settings").status_code == 200
    TOTP.activate(viewer, generate_totp_secret())
    assert clients[viewer.pk].get("/app/compiles").status_code == 200


def test_a_removed_member_is_out_at_the_next_request():
    tenant = make_tenant()
    user = make_member(tenant, Role.DEVELOPER)
    client = Client()
    client.force_login(user)
    assert client.get("/app/settings").status_code == 200
    with tenant_scope(tenant.id):
        Member.objects.get(user=user).delete()
    assert client.get("/app/settings")["Location"].startswith("/app/welcome")


def test_sessions_are_listed_and_ended():
    user = make_member(make_tenant())
    here, elsewhere = Client(), Client(headers={"user-agent": "Elsewhere/1.0"})
    for client in (here, elsewhere):
        log_in(client, user.email)
    assert "Elsewhere/1.0" in here.get("/accounts/sessions/").content.decode()
    here.post("/accounts/sessions/")
    assert is_in(here)
    assert not is_in(elsewhere)


def test_a_sensitive_act_asks_again_and_goes_on(settings):
    """What was asked for waits until the person has given the password once more."""
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 60
    tenant = make_tenant("Ask Again")
    user = make_member(tenant)
    client = Client()
    log_in(client, user.email)
    session = client.session
    session["logged_in_at"] = time.time() - 3600
    session["account_authentication_methods"] = []
    session.save()
    answer = client.post("/app/settings/export")
    assert answer["Location"] == "/accounts/reauthenticate/?next=%2Fapp%2Fsettings%2Fexport"
    assert client.post(answer["Location"], {"password": "wrong"}).status_code == 200
    answer = client.post(answer["Location"], {"password": PASSWORD})
    assert answer["Content-Type"] == "application/zip"
    answer.close()
    answer = client.post("/app/settings/export")
    assert answer.status_code == 200
    answer.close()


def test_sign_up_can_be_closed_and_an_invitation_opens_it(settings):
    from backend.domain.roles import Role as R
    from backend.tenants.actors import SYSTEM
    from backend.tenants.team import invitations

    settings.KOLM_SIGNUP = "closed"
    email, tenant = fresh(), make_tenant("Inviting")
    assert "closed" in Client().get("/accounts/signup/").content.decode()
    sign_up(Client(), email)
    assert not User.objects.filter(email=email).exists()
    with tenant_scope(tenant.id):
        make_member(tenant)
        _, token = invitations.invite(tenant.id, email, R.VIEWER, giver=R.OWNER, actor=SYSTEM)
    client = Client()
    page = client.get(f"/app/invitations/{token}").content.decode()
    assert "Inviting" in page
    assert email in page
    assert sign_up(client, email).status_code == 302
    client.post(link_in(mail.outbox[-1]))
    log_in(client, email)
    assert "Join Inviting" in client.get("/app/welcome").content.decode()
    assert client.post(f"/app/invitations/{token}")["Location"] == "/app/"
    assert [m.tenant_name for m in memberships_of(User.objects.get(email=email).pk)] == ["Inviting"]


PAGES_OUT = ["/accounts/login/", "/accounts/signup/", "/accounts/password/reset/", "/accounts/confirm-email/"]
PAGES_IN = [
    "/accounts/email/",
    "/accounts/password/change/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/2fa/webauthn/",
    "/accounts/2fa/webauthn/add/",
    "/accounts/2fa/recovery-codes/",
    "/accounts/sessions/",
    "/accounts/logout/",
    "/app/security",
    "/app/welcome",
    "/app/team",
    "/app/audit",
    "/app/settings",
]


@pytest.mark.parametrize("path", [*PAGES_OUT, *PAGES_IN])
def test_a_page_is_ours_and_has_nothing_inline(path):
    client = Client()
    if path in PAGES_IN:
        user = make_member(make_tenant())
        log_in(client, user.email)
        if "recovery" in path:
            TOTP.activate(user, generate_totp_secret())
            from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes

            RecoveryCodes.activate(user)
        client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    answer = client.get(path)
    assert answer.status_code == 200, answer.get("Location")
    text = answer.content.decode()
    assert "console.css" in text or "console." in text
    assert INLINE.search(text) is None, INLINE.search(text)
    policy = answer["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert answer["X-Frame-Options"] == "DENY"


def test_an_account_is_one_whatever_the_letters_case():
    email = fresh()
    sign_up(Client(), email)
    sign_up(Client(), email.upper())
    assert User.objects.filter(email__iexact=email).count() == 1
    assert EmailAddress.objects.filter(email__iexact=email).count() == 1
    assert Authenticator.objects.filter(user__email=email).count() == 0
