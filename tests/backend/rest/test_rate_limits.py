"""GCRA against a real Redis."""

import socket
import socketserver
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client

from backend.rest import rate_limits
from backend.rest.new_ids import new_uuid7
from backend.valkey import PAUSE_S, PatientRedis, pause
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.backend.rest.probe_urls")]


@pytest.fixture
def quotas(settings, monkeypatch, fresh_clients):
    """Every call is counted, however long Valkey takes to answer."""
    monkeypatch.setattr(rate_limits, "PATIENCE_S", 20)

    def set_to(*, key: int, tenant: int) -> None:
        settings.KOLM_RATE_PER_KEY, settings.KOLM_RATE_PER_TENANT = key, tenant

    return set_to


@pytest.fixture
def fresh_clients():
    rate_limits._script.cache_clear()
    yield
    rate_limits._script.cache_clear()
    for each in (pause, PatientRedis.pause):
        each.note_answer()


@pytest.fixture
def redis_is_away(settings, fresh_clients):
    settings.REDIS_URL = "redis://127.0.0.1:1"


class SlowRedis(socketserver.ThreadingTCPServer):
    """The real one behind a line that brings its answers late."""

    daemon_threads = True

    def __init__(self, real: tuple[str, int], *, late_s: float) -> None:
        self.real, self.late_s = real, late_s
        super().__init__(("127.0.0.1", 0), _SlowLine)


class _SlowLine(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with socket.create_connection(self.server.real) as far, suppress(OSError):
            threading.Thread(target=self._carry, args=(self.request, far, 0.0), daemon=True).start()
            self._carry(far, self.request, self.server.late_s)

    def _carry(self, source: socket.socket, target: socket.socket, late_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(late_s)
                target.sendall(data)


@pytest.fixture
def redis_is_slow(settings, fresh_clients):
    real = urlsplit(settings.REDIS_URL)
    with SlowRedis((real.hostname, real.port), late_s=1.5 * rate_limits.PATIENCE_S) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        where = f"127.0.0.1:{server.server_address[1]}"
        settings.REDIS_URL = urlunsplit(real._replace(netloc=f"{real.netloc.rpartition('@')[0]}@{where}".lstrip("@")))
        yield
        server.shutdown()


def test_a_burst_of_the_quota_passes_and_no_more(quotas):
    quotas(key=10, tenant=100)
    tenant, key = new_uuid7(), new_uuid7()
    allowed = [rate_limits.decide(tenant, key).is_allowed for _ in range(15)]
    assert allowed == [True] * 10 + [False] * 5


def test_what_was_refused_costs_nothing(quotas):
    quotas(key=10, tenant=100)
    tenant, key = new_uuid7(), new_uuid7()
    waits = [rate_limits.decide(tenant, key).retry_after_s for _ in range(40)]
    assert 0 < max(waits) <= 6.0


def test_remaining_counts_down(quotas):
    quotas(key=5, tenant=100)
    tenant, key = new_uuid7(), new_uuid7()
    assert [rate_limits.decide(tenant, key).remaining for _ in range(6)] == [4, 3, 2, 1, 0, 0]


def test_a_tenant_cannot_go_round_its_limit_with_more_keys(quotas):
    quotas(key=10, tenant=12)
    tenant = new_uuid7()
    allowed = [rate_limits.decide(tenant, new_uuid7()) for _ in range(14)]
    assert sum(d.is_allowed for d in allowed) == 12
    assert allowed[-1].policy == "tenant"
    assert rate_limits.decide(new_uuid7(), new_uuid7()).is_allowed


def test_the_bucket_fills_again(quotas):
    quotas(key=600, tenant=10_000)
    tenant, key = new_uuid7(), new_uuid7()
    while rate_limits.decide(tenant, key).is_allowed:
        pass
    emptied = time.monotonic()
    time.sleep(0.35)
    n_allowed = 0
    while rate_limits.decide(tenant, key).is_allowed:
        n_allowed += 1
    assert 3 <= n_allowed <= 10 * (time.monotonic() - emptied) + 1  # ten a second


def test_threads_share_one_allowance(quotas):
    quotas(key=50, tenant=1000)
    tenant, key, began = new_uuid7(), new_uuid7(), time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        decisions = list(threads.map(lambda _: rate_limits.decide(tenant, key).is_allowed, range(120)))
    assert 50 <= sum(decisions) <= 50 + (time.monotonic() - began) / 1.2 + 1  # what drips in while the threads run


def test_an_answer_says_where_the_caller_stands(quotas):
    quotas(key=2, tenant=100)
    secret = make_api_key(make_tenant())
    first, _, refused = (Client().get("/spends", headers=bearer(secret)) for _ in range(3))
    assert first["RateLimit-Policy"] == '"key";q=2;w=60, "tenant";q=100;w=60'
    assert first["RateLimit"] == '"key";r=1;t=30'
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert refused.json()["retryable"] is True
    assert 1 <= int(refused["Retry-After"]) <= 30
    assert refused["RateLimit"].startswith('"key";r=0;')


@pytest.mark.usefixtures("redis_is_away")
def test_without_redis_reads_pass_and_spending_is_held_back():
    headers = bearer(make_api_key(make_tenant()))
    client = Client()
    assert client.get("/spends", headers=headers).status_code == 200
    refused = client.post("/spends", b'{"name": "x"}', content_type="application/json", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused["Retry-After"]


@pytest.mark.usefixtures("redis_is_away")
def test_a_redis_that_is_away_is_not_waited_for_twice():
    headers = bearer(make_api_key(make_tenant()))
    Client().get("/spends", headers=headers)
    began = time.monotonic()
    for _ in range(5):
        assert Client().get("/spends", headers=headers).status_code == 200
    assert time.monotonic() - began < 0.9


@pytest.mark.usefixtures("redis_is_slow")
def test_a_slow_moment_of_redis_refuses_no_spending():
    """The read is not counted; the spending waits for its answer, although a read had none a moment ago."""
    headers = bearer(make_api_key(make_tenant()))
    client = Client()
    read = client.get("/spends", headers=headers)
    assert (read.status_code, "RateLimit" in read) == (200, False)
    spent = client.post("/spends", b'{"name": "x"}', content_type="application/json", headers=headers)
    assert (spent.status_code, "RateLimit" in spent) == (201, True)


@pytest.mark.nightly
def test_a_redis_that_comes_back_without_its_scripts_is_counted_with_again():
    """Killed while nobody could ask it: the first answer is NOSCRIPT, which is one."""
    tenant, key = new_uuid7(), new_uuid7()
    rate_limits.decide(tenant, key)
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        client.script_flush()
    pause.note_failure()
    with pytest.raises(redis.ConnectionError):
        rate_limits.decide(tenant, key)
    time.sleep(PAUSE_S + 0.1)
    assert rate_limits.decide(tenant, key).is_allowed
