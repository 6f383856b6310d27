"""Whoever came from a page is there again when he is logged in: by password, second factor, sign-up and e-mail, single
sign-on; never at another site."""

import re
from urllib.parse import quote

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.core import mail
from django.test import Client

from backend.rest.new_ids import new_uuid7
from tests.backend.console.account.test_log_in import code_of
from tests.backend.console.account.test_sso import back, idp  # noqa: F401  # a fixture
from tests.factories import PASSWORD, make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

WANTED = "/app/compiles/new?example=spam"
ELSEWHERE = ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example")


def fresh() -> str:
    return f"p{new_uuid7().hex[-12:]}@example.com"


def link_in(message) -> str:
    return "/" + re.search(r"https?://[^/\s]+/(\S+)", message.body).group(1)


def test_a_page_leads_through_the_log_in_back_to_itself():
    user, client = make_member(make_tenant()), Client()
    log_in = client.get(WANTED)["Location"]
    assert log_in == f"/accounts/login/?next={quote(WANTED)}"
    shown = client.get(log_in).content.decode()
    assert f'name="next" value="{WANTED}"' in shown
    answer = client.post("/accounts/login/", {"login": user.email, "password": PASSWORD, "next": WANTED})
    assert answer["Location"] == WANTED


def test_a_part_of_a_page_takes_the_whole_page_along():
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{WANTED}"}
    answer = Client().get("/app/running", headers=headers)
    assert answer["HX-Redirect"] == f"/accounts/login/?next={quote(WANTED)}"


@pytest.mark.parametrize(
    ("referer", "back_at"), [(f"http://testserver{WANTED}", WANTED), ("https://evil.example/x", "/app/"), ("", "/app/")]
)
def test_a_form_that_was_sent_too_late_leads_back_to_its_page(referer, back_at):
    answer = Client().post("/app/compiles/new", {"spec": "x"}, headers={"Referer": referer})
    assert answer["Location"] == f"/accounts/login/?next={quote(back_at)}"


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_no_other_site_is_led_to(elsewhere):
    tenant = make_tenant()
    user, client = make_member(tenant), Client()
    answer = client.post("/accounts/login/", {"login": user.email, "password": PASSWORD, "next": elsewhere})
    assert answer["Location"] == "/app/"
    newcomer = Client()
    newcomer.post("/accounts/signup/", {"email": fresh(), "password1": PASSWORD, "next": elsewhere})
    assert "next" not in link_in(mail.outbox[-1])
    newcomer.post(link_in(mail.outbox[-1]))
    made = newcomer.post("/app/welcome", {"name": "Acme", "next": elsewhere})
    assert made["Location"] == "/app/"


def test_a_second_factor_comes_between():
    user, client = make_member(make_tenant()), Client()
    secret = generate_totp_secret()
    TOTP.activate(user, secret)
    client.post("/accounts/login/", {"login": user.email, "password": PASSWORD, "next": WANTED})
    answer = client.post("/accounts/2fa/authenticate/", {"code": code_of(secret)})
    assert answer["Location"] == WANTED


def test_sign_up_e_mail_and_team_lead_there_in_one_browser():
    client = Client()
    client.post("/accounts/signup/", {"email": fresh(), "password1": PASSWORD, "next": WANTED})
    answer = client.post(link_in(mail.outbox[-1]))
    assert answer["Location"] == WANTED  # logged in by the link, because it is the browser that signed up
    welcome = client.get(WANTED)["Location"]
    assert welcome == f"/app/welcome?next={quote(WANTED, safe='')}"
    assert f'name="next" value="{WANTED}"' in client.get(welcome).content.decode()
    assert client.post("/app/welcome", {"name": "Acme", "next": WANTED})["Location"] == WANTED


def test_the_link_of_the_e_mail_leads_there_in_another_browser():
    email = fresh()
    Client().post("/accounts/signup/", {"email": email, "password1": PASSWORD, "next": WANTED})
    other, link = Client(), link_in(mail.outbox[-1])
    shown = other.get(link).content.decode()
    assert f'name="next" value="{WANTED}"' in shown
    answer = other.post(link.partition("?")[0], {"next": WANTED})
    assert answer["Location"] == WANTED
    log_in = other.get(WANTED)["Location"]
    assert log_in == f"/accounts/login/?next={quote(WANTED)}"
    answer = other.post("/accounts/login/", {"login": email, "password": PASSWORD, "next": WANTED})
    assert answer["Location"] == WANTED


def test_single_sign_on_leads_there(idp):  # noqa: F811
    client = Client()
    sent_to = client.post(f"/accounts/oidc/acme/login/?next={quote(WANTED)}")["Location"]
    onward = back(sent_to)
    assert client.get("/" + onward.split("/", 3)[3])["Location"] == WANTED


def test_the_e_mail_is_in_our_words(settings):
    settings.KOLM_SITE_NAME = "Acme Models"
    Client().post("/accounts/signup/", {"email": fresh(), "password1": PASSWORD})
    message = mail.outbox[-1]
    assert "please confirm your e-mail address" in message.subject
    assert message.body.startswith("Welcome to Acme Models.")
    assert "Hello from" not in message.body
    ((html, kind),) = message.alternatives
    assert kind == "text/html"
    link = re.search(r"https?://\S+/confirm-email/[^\s\"<]+", message.body).group(0)
    assert link in html
