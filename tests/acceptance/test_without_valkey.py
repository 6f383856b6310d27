"""Web while Valkey hangs (it takes connections and never answers): what goes on, what says 503, and that nobody waits
for it twice."""

import os
import re
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from backend.domain.ids import Prefix, encode_id
from deploy.embedded.layout import Part
from tests.acceptance.deployment import Customer, eventually
from tests.acceptance.specs import small_spec
from tests.web_stack import WebStack, running_web

pytestmark = pytest.mark.nightly
EMAIL, PASSWORD = "anna@example.com", "correct-horse-battery-staple"
PERSON = f"""
import django; django.setup()
from django.contrib.auth import get_user_model
user = get_user_model().objects.get(email={EMAIL!r}); user.set_password({PASSWORD!r}); user.save()
"""
# what costs somebody's processor or a request to a stranger, and has no budget in Postgres that bounds it
REFUSED = {
    ("post", "/v1/artifacts/{artifact}/run"),
    ("post", "/v1/chat/completions"),
    ("post", "/v1/completions"),
    ("post", "/v1/select"),
    ("post", "/v1/webhook_endpoints/{endpoint}/test"),
}


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="enterprise") as stack:
        yield stack


@pytest.fixture(scope="module")
def acme(web: WebStack) -> Iterator[Customer]:
    with web.deployment.customer("Acme") as customer:
        customer.get("/v1/compiles")  # a connection to Valkey stands
        yield customer


@contextmanager
def hanging(web: WebStack) -> Iterator[None]:
    pid = web.services.stack.children[Part.VALKEY].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_every_route_of_the_api_answers(web: WebStack, acme: Customer) -> None:
    described = acme.get("/v1/openapi.json")["paths"]
    answers, times = {}, []
    with hanging(web):
        for path, operations in described.items():
            address = re.sub(r"{\w+}", "none", path)
            for method in sorted(operations):
                if method == "get" and path.endswith("/events"):
                    continue  # a stream
                began = time.monotonic()
                body = {"json": {}} if method in ("post", "patch", "put") else {}
                answers[method, path] = acme.api.request(method, address, timeout=30, **body)
                times.append(time.monotonic() - began)
    assert len(answers) > 60
    assert not {call: answer.text for call, answer in answers.items() if answer.status_code == 500}
    refused = {call for call, answer in answers.items() if answer.status_code == 503}
    assert {(method, re.sub(r"{\w+}", "{}", path)) for method, path in refused} == {
        (method, re.sub(r"{\w+}", "{}", path)) for method, path in REFUSED
    }
    assert all(answers[call].headers["Retry-After"] for call in refused)
    # each waited for the wake-up, the count or the cache before: 0.25 to 1 s
    assert statistics.median(times) < 0.2, sorted(times)[-9:]


def test_writes_are_taken_and_counted_again_afterwards(web: WebStack, acme: Customer) -> None:
    with hanging(web):
        made = acme.compile(small_spec("no-valkey"))
        assert acme.get(f"/v1/compiles/{made}")["status"] == "queued"
        lines = {"Content-Type": "application/x-ndjson"}
        upload = acme.api.post("/v1/uploads?purpose=captures", content=b'{"input": "where is it"}\n', headers=lines)
        assert upload.status_code == 201, upload.text
        key = acme.api.post("/v1/api_keys", json={"name": "k", "scopes": ["compiles:read"]})
        assert key.status_code == 201, key.text
        assert acme.api.post(f"/v1/compiles/{made}/cancel").status_code == 202
        ready = httpx.get(f"{web.deployment.url}/readyz", timeout=20)
        assert (ready.status_code, ready.json()["status"], ready.json()["valkey"]) == (200, "degraded", "down")
    eventually(lambda: "RateLimit" in acme.api.get("/v1/compiles").headers, within_s=20, what="requests are counted")


def test_every_page_of_the_console_answers(web: WebStack, acme: Customer) -> None:
    web.deployment.manage("create_user", EMAIL, "--tenant", encode_id(Prefix.TENANT, acme.tenant_id))
    process = web.deployment.python("-c", PERSON, DJANGO_SETTINGS_MODULE="backend.settings")
    assert process.wait(60) == 0
    with httpx.Client(base_url=web.deployment.url, follow_redirects=True, timeout=30) as person:
        page = person.get("/accounts/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        assert token
        form = {"csrfmiddlewaretoken": token[1], "login": EMAIL, "password": PASSWORD}
        home = person.post("/accounts/login/", data=form, headers={"Origin": web.deployment.url})
        assert home.status_code == 200
        assert str(home.url.path).startswith("/app"), home.url
        left, seen = [str(home.url.path)], {}
        with hanging(web):
            while left and len(seen) < 60:
                path = left.pop(0)
                answer = person.get(path)
                seen[path] = (answer.status_code, answer.elapsed.total_seconds())
                if "text/html" in answer.headers.get("content-type", ""):
                    found = re.findall(r'href="(/(?:app|accounts)/[^"?#]*)', answer.text)
                    left += [link for link in dict.fromkeys(found) if link not in seen and link not in left]
    assert len(seen) > 12, seen
    assert {path: found for path, found in seen.items() if found[0] != 200} == {}
    assert statistics.median(took for _, took in seen.values()) < 1.0, seen
