"""A stranger at the login form: whom wrong passwords lock out, where e-mails lead, where `next` leads."""

import json
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings
from django.core import mail
from django.core.cache import cache
from django.test import Client

from backend.console.allauth_adapters import AccountAdapter
from backend.rest.new_ids import new_uuid7
from tests.factories import PASSWORD, make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def try_in(email: str, password: str, ip: str) -> Any:
    return Client(REMOTE_ADDR=ip).post("/accounts/login/", {"login": email, "password": password})


def is_in(answer: Any) -> bool:
    return bool(answer.status_code == 302)


@pytest.fixture
def owner() -> str:
    return str(make_member(make_tenant()).email)


def test_a_strangers_wrong_passwords_shut_nobody_else_out(owner: str) -> None:
    for _ in range(6):
        assert not is_in(try_in(owner, "wrong-password", "203.0.113.5"))
    assert not is_in(try_in(owner, PASSWORD, "203.0.113.5")), "the stranger's address is not slowed"
    assert is_in(try_in(owner, PASSWORD, "198.51.100.7"))


def test_another_host_header_gives_no_new_count(owner: str) -> None:
    for port in range(6):
        guess = {"login": owner, "password": "wrong-password"}
        Client(REMOTE_ADDR="203.0.113.6").post("/accounts/login/", guess, HTTP_HOST=f"localhost:{port + 1}")
    assert not is_in(try_in(owner, PASSWORD, "203.0.113.6"))


def test_many_addresses_are_slowed_together_but_not_the_owners_own(owner: str) -> None:
    assert is_in(try_in(owner, PASSWORD, "198.51.100.8"))
    for at in range(31):
        try_in(owner, "wrong-password", f"203.0.113.{at + 10}")
    assert not is_in(try_in(owner, PASSWORD, "203.0.113.99"))
    assert is_in(try_in(owner, PASSWORD, "198.51.100.8"))


def test_a_person_on_ipv6_is_known_by_the_network(owner: str) -> None:
    assert is_in(try_in(owner, PASSWORD, "2001:db8:1:2::8"))
    for at in range(31):
        try_in(owner, "wrong-password", f"2001:db8:ffff:{at:x}::1")
    assert not is_in(try_in(owner, PASSWORD, "2001:db8:9:9::1"))
    assert is_in(try_in(owner, PASSWORD, "2001:db8:1:2:aaaa::77"))


def test_one_address_has_one_count_over_all_accounts(owner: str) -> None:
    for at in range(10):
        try_in(f"person{at}@example.com", "wrong-password", "2001:db8:77:1::5")
    assert not is_in(try_in(owner, PASSWORD, "2001:db8:77:1::6")), "nor another address of the same network"
    assert is_in(try_in(owner, PASSWORD, "2001:db8:77:2::5"))


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example",
        "///evil.example",
        "////evil.example/a",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "https:evil.example",
        "http:///evil.example",
        "https://testserver@evil.example/",
        "https://testserver.evil.example/",
        "https://evil.example#@testserver",
        "javascript:alert(1)",
        "data:text/html,x",
        " //evil.example",
        "\u2028//evil.example",
        "\uff0f\uff0fevil.example",
        "\u2215/evil.example",
        "//" + "a" * 3000 + ".example",
    ],
)
def test_nobody_is_led_elsewhere_after_the_log_in(owner: str, address: str) -> None:
    answer = Client(REMOTE_ADDR="198.51.100.20").post(
        "/accounts/login/", {"login": owner, "password": PASSWORD, "next": address}
    )
    assert is_in(answer)
    # as browsers read it: without tabs and line feeds, a backslash as a slash
    there = answer.headers["Location"].translate({9: None, 10: None, 13: None}).strip().replace("\\", "/")
    assert urlsplit(urljoin("https://testserver/accounts/login/", there)).netloc == "testserver"
    assert not there.startswith("//")


def test_letters_lead_to_the_public_address_whatever_host_was_asked(owner: str) -> None:
    hosts = {"HTTP_HOST": "localhost:1", "HTTP_X_FORWARDED_HOST": "evil.example", "HTTP_FORWARDED": "host=evil.example"}
    Client().post("/accounts/password/reset/", {"email": owner}, **hosts)
    Client().post(
        "/accounts/signup/", {"email": f"p{new_uuid7().hex[-12:]}@example.com", "password1": PASSWORD}, **hosts
    )
    assert len(mail.outbox) == 2
    for email in mail.outbox:
        assert "localhost:1/" not in email.body
        assert "evil.example" not in email.body
        assert f"{settings.KOLM_PUBLIC_URL}/accounts/" in email.body


@pytest.mark.parametrize(
    "url", ["/\t/evil.example", "/\n/evil.example", "/\r/e", "/\x7f/e", "/\u202e", "/\\evil", "\x00"]
)
def test_next_with_control_characters_is_refused(url: str) -> None:
    assert not AccountAdapter().is_safe_url(url)


def test_the_cache_holds_json(owner: str) -> None:
    try_in(owner, "wrong-password", "203.0.113.200")
    client = cache._cache.get_client()  # type: ignore[attr-defined]
    kept = [client.get(key) for key in client.keys("kolm:cache:*")]
    assert kept
    for value in kept:
        json.loads(value)
