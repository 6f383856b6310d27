"""A web process with one connection for everything: what people and programs do all day answers, with streams open
beside it. A request that takes a second connection while it holds its first never gets it, and answers 503 after five
seconds. (tests/acceptance/test_edge.py asks every route, of objects that are not there.)"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from backend.domain.ids import Prefix, encode_id
from tests.acceptance.deployment import Customer
from tests.compile_factories import small_spec
from tests.web_stack import WebStack, running_web

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

EMAIL, PASSWORD = "one@example.com", "correct horse battery 9"
PERSON = f"""
import django
django.setup()
from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model
user = get_user_model().objects.get(email={EMAIL!r})
user.set_password({PASSWORD!r})
user.save()
EmailAddress.objects.update_or_create(user=user, email={EMAIL!r}, defaults={{"verified": True, "primary": True}})
"""
N_STREAMS = 4
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def narrow() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_DB_POOL="1") as stack:
        yield stack


@pytest.fixture(scope="module")
def acme(narrow: WebStack) -> Iterator[Customer]:
    with narrow.deployment.customer("Acme") as customer:
        yield customer


@pytest.fixture(scope="module")
def made(acme: Customer) -> str:
    return acme.compile(small_spec(name="narrow"))


@pytest.fixture(scope="module")
def person(narrow: WebStack, acme: Customer) -> Iterator[httpx.Client]:
    narrow.deployment.manage("create_user", EMAIL, "--tenant", encode_id(Prefix.TENANT, acme.tenant_id))
    assert narrow.deployment.python("-c", PERSON, DJANGO_SETTINGS_MODULE="backend.settings").wait(60) == 0
    with httpx.Client(base_url=narrow.deployment.url, follow_redirects=True, timeout=40) as client:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get("/accounts/login/").text)
        assert token
        form = {"csrfmiddlewaretoken": token[1], "login": EMAIL, "password": PASSWORD}
        home = client.post("/accounts/login/", data=form, headers={"Origin": narrow.deployment.url})
        assert str(home.url.path).startswith("/app"), home.url
        yield client


def test_what_is_written_is_written_once(acme: Customer) -> None:
    captures = b'{"input": "where is my parcel"}\n' * 2_000
    writes = {
        "/v1/compiles": small_spec(name="twice"),
        "/v1/uploads?purpose=captures": captures,
        "/v1/api_keys": {"name": "k", "scopes": ["compiles:read"]},
        "/v1/teacher_keys": {"name": "mine", "secret": "sk-of-the-customer"},
        "/v1/webhook_endpoints": {"url": "https://hooks.example.com/x", "events": ["compile.*"]},
        "/v1/budgets": {"cap_microusd": 5_000_000, "scope": "tenant"},
    }
    answers = {}
    for path, body in writes.items():
        is_lines = isinstance(body, bytes)
        headers = {"Idempotency-Key": path, "Content-Type": "application/x-ndjson" if is_lines else "application/json"}
        content = body if isinstance(body, bytes) else json.dumps(body)
        for attempt in range(2):
            answers[path, attempt] = acme.api.post(path, headers=headers, content=content)
    assert {call: answer.text for call, answer in answers.items() if not answer.is_success} == {}
    assert all("Idempotent-Replayed" in answers[path, 1].headers for path in writes)
    for path in ("/v1/specs/validate", "/v1/compiles/estimate"):
        asked = acme.api.post(path, json=small_spec(name="asked"))
        assert asked.status_code == 200, (path, asked.text)


def test_the_api_answers_beside_streams(acme: Customer, made: str) -> None:
    address, answers = f"/v1/compiles/{made}/events", []

    def read() -> None:
        for path in ("/v1/compiles", f"/v1/compiles/{made}", "/v1/account", "/v1/usage", "/v1/api_keys") * 3:
            answers.append((path, acme.api.get(path).status_code))

    with ExitStack() as streams:
        for _ in range(N_STREAMS):
            stream = streams.enter_context(acme.api.stream("GET", address, headers=STREAM))
            assert stream.status_code == 200, stream.read()
            assert next(stream.iter_text())
        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert len(answers) == 4 * 15
    assert [each for each in answers if each[1] != 200] == []


def test_the_console_answers_beside_streams(person: httpx.Client, made: str) -> None:
    left, seen = ["/app/", f"/app/compiles/{made}"], {}
    with ExitStack() as streams:
        for _ in range(N_STREAMS):
            stream = streams.enter_context(person.stream("GET", f"/app/compiles/{made}/events", headers=STREAM))
            assert stream.status_code == 200, stream.read()
            assert next(stream.iter_text())
        while left and len(seen) < 80:
            path = left.pop(0)
            answer = person.get(path)
            seen[path] = answer.status_code
            if "text/html" in answer.headers.get("content-type", ""):
                found = re.findall(r'href="(/(?:app|accounts)/[^"#]*)', answer.text)
                left += [link for link in dict.fromkeys(found) if link not in seen and link not in left]
    assert len(seen) > 20, seen
    assert {path: status for path, status in seen.items() if status >= 500} == {}
