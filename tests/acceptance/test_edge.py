"""The web process under what strangers and customers can send it: nobody's body is read without a key, none costs more
than its length, and no request waits for another's.

A web process of its own, as people run it (granian on a port), beside a real Postgres and Valkey.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.acceptance.deployment import Customer, eventually
from tests.hostile_bodies import MB, ROUTES, WORST, connection_to, head_of
from tests.web_stack import WebStack, running_web


@pytest.fixture(scope="module")
def web() -> Iterator[WebStack]:
    with running_web(forgetful=True, KOLM_SPOOLS_PER_SENDER="3", KOLM_DEFAULT_PLAN="enterprise") as stack:
        yield stack


@pytest.fixture(scope="module")
def attacker(web: WebStack) -> Iterator[Customer]:
    with web.deployment.customer("Attacker") as customer:
        yield customer


@pytest.fixture(scope="module")
def neighbour(web: WebStack) -> Iterator[Customer]:
    with web.deployment.customer("Neighbour") as customer:
        yield customer


def post(web: WebStack, key: str, path: str, body: bytes) -> int:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if path == "/v1/uploads":
        headers["Content-Type"] = "application/x-ndjson"
    return httpx.post(web.deployment.url + path, content=body, headers=headers, timeout=120).status_code


@pytest.mark.nightly
@pytest.mark.parametrize("shape", WORST)
def test_a_body_of_a_megabyte_costs_seconds_of_nobody(web: WebStack, attacker: Customer, shape: str) -> None:
    """The processor's time of the whole web process; before, one such body took minutes of it."""
    body = WORST[shape]()
    assert 0.9 * MB < len(body) <= MB
    for path in ("/v1/specs/validate", "/v1/chat/completions", "/v1/select"):
        before = web.cpu_s()
        assert 400 <= post(web, attacker.key, path, body) < 500, path
        assert web.cpu_s() - before < 4.0, path


@pytest.mark.nightly
def test_eight_at_once_at_every_route_and_the_neighbour_is_served(
    web: WebStack, attacker: Customer, neighbour: Customer
) -> None:
    """In the best of three rounds, and as many times slower as cores were taken: other loads of this machine are not
    what is measured."""
    rounds = [_one_round(web, attacker, neighbour) for _ in range(1)]
    while len(rounds) < 3 and not _is_good(rounds[-1]):
        rounds.append(_one_round(web, attacker, neighbour))
    assert any(_is_good(found) for found in rounds), rounds


def _is_good(found: dict[str, float]) -> bool:
    limits = {"neighbour p99": 1.0, "healthz p50": 0.2, "healthz p99": 1.0}
    return all(found[name] < limit * found["slowed"] for name, limit in limits.items())


def _one_round(web: WebStack, attacker: Customer, neighbour: Customer) -> dict[str, float]:
    bodies = [make() for make in WORST.values()]
    left = [(path, body) for path in ROUTES for body in bodies]
    lock, is_over = threading.Lock(), threading.Event()

    def attack() -> None:
        while not is_over.is_set():
            with lock:
                if not left:
                    return
                path, body = left.pop()
            with suppress(httpx.HTTPError):
                post(web, attacker.key, path, body)

    attackers = [threading.Thread(target=attack) for _ in range(8)]
    for thread in attackers:
        thread.start()
    seen: dict[str, list[float]] = {"neighbour": [], "healthz": []}
    until, before = time.monotonic() + 20, web.core_ns()
    with httpx.Client(base_url=web.deployment.url, timeout=30) as plain:
        while time.monotonic() < until and any(thread.is_alive() for thread in attackers):
            seen["neighbour"].append(_seconds(lambda: neighbour.api.get("/v1/compiles")))
            seen["healthz"].append(_seconds(lambda: plain.get("/healthz")))
    slowed = _slowed(before, web.core_ns())
    is_over.set()
    for thread in attackers:
        thread.join()
    assert len(seen["neighbour"]) > 20
    quantiles = {f"{who} p{q}": _quantile(times, q / 100) for who, times in seen.items() for q in (50, 99)}
    return quantiles | {"slowed": slowed}


def _slowed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> float:
    """How many times longer the web server's threads took than with cores of their own. One that waits for another of
    its threads is not ready, and counts nothing."""
    ran, waited = (sum(times[i] - before.get(name, (0, 0))[i] for name, times in after.items()) for i in (0, 1))
    return (ran + waited) / ran


def _seconds(ask: Callable[[], httpx.Response]) -> float:
    began = time.monotonic()
    assert ask().status_code == 200
    return time.monotonic() - began


def _quantile(times: list[float], q: float) -> float:
    return sorted(times)[min(len(times) - 1, int(q * len(times)))]


# --- what comes without a key, too slowly, or too often --------------------------------------------------------


def spooled_bytes(web: WebStack) -> int:
    """Temporary files that the web process holds open."""
    parent = psutil.Process(web.services.stack.children["web"].pid)
    n = 0
    for process in (parent, *parent.children(recursive=True)):
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(descriptor).endswith("(deleted)"):
                    n += descriptor.stat().st_size
    return n


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/select", ""),
        ("/v1/select", "Authorization: Bearer sk_live_no"),
        ("/v1/uploads", ""),
        ("/internal/runner/claim", ""),
        ("/internal/runner/usage", "Authorization: Bearer wrong"),
        ("/internal/runner/jobs/job_1/blobs/00", "Authorization: Bearer wrong"),
    ],
)
def test_without_a_key_the_answer_comes_before_the_body(web: WebStack, path: str, header: str) -> None:
    lines = ["Content-Type: application/x-ndjson", *([header] if header else [])]
    length = 5 * MB if path == "/v1/uploads" else 200 * MB
    with connection_to(web) as connection:
        connection.sendall(head_of(path, length, *lines))
        answer = connection.recv(65536).decode()
        assert answer.split()[1] in ("401", "404", "405", "410"), answer
        with suppress(OSError):  # it may have hung up by now
            for _ in range(40):
                connection.sendall(b"x" * MB)
        assert spooled_bytes(web) < 3 * MB


@pytest.mark.nightly
def test_headers_that_drip_are_cut(web: WebStack) -> None:
    with connection_to(web) as connection:
        connection.sendall(b"POST /v1/compiles HTTP/1.1\r\nHost: localhost\r\nX-Drip: ")
        assert _closed_within(connection, 30, drip=b"x")


@pytest.mark.nightly
def test_a_body_that_drips_is_answered_and_cut(web: WebStack, attacker: Customer) -> None:
    with connection_to(web) as connection:
        head = head_of("/v1/compiles", 1000, f"Authorization: Bearer {attacker.key}", "Content-Type: application/json")
        connection.sendall(head)
        began = time.monotonic()
        connection.settimeout(1.0)
        answer = b""
        while not answer and time.monotonic() - began < 45:
            with suppress(TimeoutError):
                answer = connection.recv(65536)
            if not answer:
                connection.sendall(b" ")
        assert b" 408 " in answer.splitlines()[0]
        assert b"body_too_slow" in answer


def _closed_within(connection: socket.socket, seconds: float, *, drip: bytes) -> bool:
    until = time.monotonic() + seconds
    connection.settimeout(1.0)
    while time.monotonic() < until:
        try:
            connection.sendall(drip)
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.nightly
def test_slow_senders_fill_their_own_places_and_nobody_elses(
    web: WebStack, attacker: Customer, neighbour: Customer
) -> None:
    """Three large bodies at a time, as this process is set up."""
    lines = [f"Authorization: Bearer {attacker.key}", "Content-Type: application/x-ndjson"]
    with ExitStack() as open_ones:
        for _ in range(3):
            connection = open_ones.enter_context(connection_to(web))
            connection.sendall(head_of("/v1/uploads", 4 * MB, *lines) + b"x" * 1000)
        time.sleep(1)  # the three were looked up and let in
        with connection_to(web) as fourth:
            fourth.sendall(head_of("/v1/uploads", 4 * MB, *lines))
            assert b" 429 " in fourth.recv(65536).splitlines()[0]
        row = json.dumps({"input": "a" * 100}).encode() + b"\n"
        answer = neighbour.api.post(
            "/v1/uploads?kind=captures", content=row * 4000, headers={"Content-Type": "application/x-ndjson"}
        )
        assert answer.status_code != 429, answer.text
    eventually(lambda: spooled_bytes(web) < 3 * MB, within_s=30, what="the places are given back")


# --- one connection a request ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow() -> Iterator[WebStack]:
    """A web process with one connection for everything."""
    with running_web(forgetful=True, KOLM_DB_POOL="1") as stack:
        yield stack


@pytest.mark.nightly
def test_no_request_takes_two_connections(narrow: WebStack) -> None:
    """With a pool of one, a request that waits for a second never gets it and answers 503 after five seconds."""
    with narrow.deployment.customer("Acme") as acme:
        described = acme.get("/v1/openapi.json")["paths"]
        asked = {}
        for path, operations in described.items():
            address = _filled(path)
            for method in operations:
                body = {"json": {}} if method in ("post", "patch", "put") else {}
                if method == "get" and path.endswith("/events"):
                    continue  # a stream of its own test
                asked[method, path] = acme.api.request(method, address, timeout=60, **body).status_code
        assert len(asked) > 60
        assert {call: status for call, status in asked.items() if status >= 500 and status != 501} == {}
        lines = acme.api.get("/v1/usage.csv")
        assert lines.status_code != 503


def _filled(path: str) -> str:
    while "{" in path:
        head, _, rest = path.partition("{")
        path = head + "none" + rest.partition("}")[2]
    return path


@pytest.mark.nightly
def test_due_notes_of_last_use_hold_nobody_up(narrow: WebStack) -> None:
    """Eight keys that were never used, at once, twice over, beside a pool of one: before, all of them waited for each
    other's second connection and were answered 503."""
    with narrow.deployment.customer("Owner") as owner:
        keys = [_new_key(owner, i) for i in range(16)]
        answers: list[int] = []

        def ask(key: str) -> None:
            headers = {"Authorization": f"Bearer {key}"}
            answers.append(httpx.get(f"{narrow.deployment.url}/v1/compiles", headers=headers, timeout=60).status_code)

        threads = [threading.Thread(target=ask, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 16
        eventually(
            lambda: all(row["last_used_at"] for row in _api_keys(owner) if row["name"].startswith("key")),
            within_s=30,
            what="the last use of each key is noted",
        )


def _new_key(owner: Customer, number: int) -> str:
    made = owner.api.post("/v1/api_keys", json={"name": f"key {number}", "scopes": ["compiles:read"]})
    assert made.status_code == 201, made.text
    found: str = made.json()["secret"]
    return found


def _api_keys(owner: Customer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = owner.get("/v1/api_keys", limit=100)["data"]
    return rows
