"""Single sign-on, over the wire: the IdP of tests/doubles on loopback, the browser's redirects followed by
hand."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPErrorProcessor, build_opener

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from backend.rest.new_ids import new_uuid7
from tests.doubles.oidc_server import Idp, serving
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

CALLBACK = "http://testserver/accounts/oidc/acme/login/callback/"


class _NoRedirects(HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        return response


@pytest.fixture
def idp(settings: Any) -> Iterator[Idp]:
    email = f"sso-{new_uuid7().hex[-10:]}@acme.example"
    person = {"sub": new_uuid7().hex, "email": email, "email_verified": True, "name": "Ada"}
    with serving(Idp(client_id="kolm", secret="s3cret", redirect_uris={CALLBACK}, person=person)) as idp:
        app = {"provider_id": "acme", "name": "Acme", "client_id": "kolm", "secret": "s3cret"}
        app["settings"] = {"server_url": idp.url}
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
        yield idp


def to_idp(client: Client) -> str:
    """The address that the browser is sent to."""
    answer = client.post("/accounts/oidc/acme/login/")
    assert answer.status_code == 302, answer.content[:500]
    return answer["Location"]


def back(idp_address: str) -> str:
    """What the IdP sends the browser back to."""
    return build_opener(_NoRedirects).open(idp_address).headers["Location"]


def come_in(client: Client) -> Any:
    onward = urlsplit(back(to_idp(client)))
    return client.get(f"{onward.path}?{onward.query}")


def is_in(client: Client) -> bool:
    return "/accounts/login/" not in client.get("/app/security").get("Location", "")


def test_the_log_in_page_offers_it(idp):
    assert "Log in with Acme" in Client().get("/accounts/login/").content.decode()


def test_a_person_of_the_company_comes_in_with_a_verified_address(idp):
    client = Client()
    answer = come_in(client)
    assert answer.status_code == 302, answer.content[:500]
    assert idp.refused == []
    assert is_in(client)
    user = User.objects.get(email=idp.person["email"])
    assert user.username == idp.person["email"]
    assert not user.has_usable_password()
    assert EmailAddress.objects.get(user=user).verified
    again = Client()
    come_in(again)
    assert is_in(again)
    assert SocialAccount.objects.filter(uid=idp.person["sub"]).count() == 1


def test_the_request_has_a_state_and_a_code_challenge(idp):
    query = parse_qs(urlsplit(to_idp(Client())).query)
    assert query["code_challenge_method"] == ["S256"]
    assert len(query["state"][0]) >= 16
    assert set(query["scope"][0].split()) == {"openid", "profile", "email"}


def test_somebody_elses_answer_logs_nobody_in(idp):
    """Log-in CSRF: the code that a stranger got, in the browser of somebody who began nothing."""
    onward = urlsplit(back(to_idp(Client())))
    client = Client()
    client.get(f"{onward.path}?{onward.query}")
    assert not is_in(client)


def test_a_code_is_used_once(idp):
    client = Client()
    onward = urlsplit(back(to_idp(client)))
    client.get(f"{onward.path}?{onward.query}")
    other = Client()
    other.get(f"{onward.path}?{onward.query}")
    assert not is_in(other)


def test_an_address_that_the_company_did_not_verify_is_confirmed_by_email(idp):
    idp.person["email_verified"] = False
    client = Client()
    answer = come_in(client)
    assert answer["Location"] == "/accounts/confirm-email/"
    assert not is_in(client)
    assert mail.outbox[-1].to == [idp.person["email"]]


def test_a_company_takes_over_no_account_that_has_its_address_already(idp):
    """Whoever runs an IdP may say any address; an account with a password is not opened by that."""
    victim = make_member(make_tenant(), email=idp.person["email"])
    client = Client()
    come_in(client)
    assert not is_in(client)
    assert not SocialAccount.objects.filter(user=victim).exists()


def test_the_other_way_around_a_get_begins_nothing(idp):
    answer = Client().get("/accounts/oidc/acme/login/")
    assert answer.status_code == 200
    assert "console" in answer.content.decode()


def test_an_idp_that_is_away_is_a_page_and_no_crash(idp, settings):
    apps = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
    apps[0]["settings"] = {"server_url": "http://127.0.0.1:9"}
    answer = Client().post("/accounts/oidc/acme/login/")
    assert answer.status_code == 502
    assert "gave no usable answer" in answer.content.decode()
