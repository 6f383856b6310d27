"""`kolm serve` of a label artifact under what a stranger on the same machine can send it; times are shortened."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.loader import Loader
from gpu_runners.serving import label_server
from gpu_runners.serving.label_server import MAX_CONNECTIONS, ArtifactServer
from tests.gpu_runners.small_task import Trained, kolm_of
from tests.hostile_bodies import MB, WORST, connected, drip


@pytest.fixture(scope="module")
def port(trained: Trained) -> Iterator[int]:
    kolm = read_kolm(kolm_of(trained))
    model = Loader(keyring=None, base_dir=None).model_of(kolm)
    with ArtifactServer(("127.0.0.1", 0), model=model, manifest=kolm.manifest) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_server, "PAUSE_S", 1.0)


def head(*lines: str, method: str = "POST", path: str = "/v1/run") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""]).encode()


@pytest.mark.usefixtures("_short_pauses")
@pytest.mark.parametrize(
    "start",
    [b"", b"POST /v1/ru", head()[:-2] + b"X-Drip: ", head(method="GET", path="/healthz") + b"GET /he"],
)
def test_heads_that_drip_are_cut(port: int, start: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(start)
        drip(connection, b"x")


@pytest.mark.usefixtures("_short_pauses")
def test_bodies_that_drip_are_answered_and_cut(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(head("Content-Length: 100000"))
        assert "body_too_slow" in drip(connection, b" ")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("Content-Length: 1000001",), "payload_too_large"),
        (("Content-Length: " + "9" * 5_000,), "payload_too_large"),
        (("Content-Length: \u00b2",), "length_required"),
        (("Transfer-Encoding: chunked",), "length_required"),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), "length_required"),
    ],
)
def test_a_body_is_refused_by_what_it_says_of_itself(port: int, lines: tuple[str, ...], code: str) -> None:
    with connected(port) as connection:
        connection.sendall("\r\n".join(["POST /v1/run HTTP/1.1", "Host: here", *lines, "", ""]).encode("latin-1"))
        assert code in drip(connection, b"")


def test_a_body_that_nobody_reads_is_no_further_request(port: int) -> None:
    inner = head(method="GET", path="/v1/model")
    with connected(port) as connection:
        connection.sendall(head(f"Content-Length: {len(inner)}", method="GET", path="/healthz") + inner)
        assert drip(connection, b"").count("HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "a", "input": "b"}',
        "[" * 65 + "]" * 65,
        "[" * 100_000,
        '{"input": ' + "9" * 5_000 + "}",
        '{"input": NaN}',
        '{"input": 1e999}',
        '{"input": "\\ud800"}',
        '{"\\udfff": 1}',
    ],
)
def test_json_that_readers_disagree_on_is_told_so(port: int, text: str) -> None:
    response = httpx.post(f"http://127.0.0.1:{port}/v1/run", content=text.encode())
    assert (response.status_code, response.json()["code"]) == (400, "invalid_json")
    assert response.json()["detail"].startswith("The body ")


@pytest.mark.nightly
def test_eight_of_the_worst_at_once_stop_nobody(port: int) -> None:
    """Measured by what the worst itself takes, in the best of three rounds: this machine's other load is not judged."""
    rounds = []
    while len(rounds) < 3 and not any(p50 < worst / 8 and p99 < worst for p50, p99, worst in rounds):
        rounds.append(_round(port))
    assert any(p50 < worst / 8 and p99 < worst for p50, p99, worst in rounds), rounds


def _round(port: int) -> tuple[float, float, float]:
    """p50 and p99 of a neighbour's calls, and the longest of the attack's."""
    url = f"http://127.0.0.1:{port}"
    texts = {"input": ["a" * 90_000] * 10}, {"input": "tea " * 24_000}
    taken: list[float] = []
    left = [make() for make in WORST.values()] + [json.dumps(one).encode() for one in texts]

    def attack() -> None:
        while left:
            with suppress(IndexError):
                body = left.pop()
                assert len(body) <= MB
                began = time.monotonic()
                assert httpx.post(f"{url}/v1/run", content=body, timeout=120).status_code < 500
                taken.append(time.monotonic() - began)

    threads = [threading.Thread(target=attack) for _ in range(8)]
    for thread in threads:
        thread.start()
    times = []
    with httpx.Client(base_url=url, timeout=60) as client:
        while any(thread.is_alive() for thread in threads):
            began = time.monotonic()
            assert client.get("/healthz").status_code == 200
            times.append(time.monotonic() - began)
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.99)], max(taken)


@pytest.mark.nightly
@pytest.mark.usefixtures("_short_pauses")
def test_connections_are_bounded_and_given_back(port: int) -> None:
    with ExitStack() as opened:
        for _ in range(MAX_CONNECTIONS):
            opened.enter_context(connected(port))
        with connected(port) as one_more:
            assert drip(one_more, b"", within_s=5) == ""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            return
    raise AssertionError("no place was given back")
