"""T16, at the socket: what the interpreter itself is asked to connect to (its audit events) while webhooks are sent to
hostile addresses and teachers are called at them. The transport's own tests are in tests/backend/test_outbound.py."""

import itertools
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from backend.domain.webhooks.signing import Scheme, new_secret
from backend.rest.new_ids import new_uuid7
from backend.webhooks.messages import Message, Outcome
from backend.webhooks.sending import send
from tests.backend.test_outbound import HOSTILE_ANSWERS, HOSTILE_URLS
from tests.webhook_receiver import Answer, Receiver, receiving
from workers.teachers import protocol
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import CompletionRequest, TeacherCaps, TeacherFailed, TeacherIdentity

PUBLIC = "93.184.216.34"
REBINDING = "https://rebinding.example.com/v1"
_watched: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Every connection that anything in this process asks the kernel for. Ours to loopback go through; the others are
    noted and refused, so that no test leaves the machine."""
    if event == "socket.connect" and _watched is not None and isinstance(arguments[1], tuple):
        _watched.append(str(arguments[1][0]))
        if arguments[1][0] != "127.0.0.1":
            raise ConnectionRefusedError("the test lets nothing out")


sys.addaudithook(_audit)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    global _watched
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.01)
    _watched = []
    yield _watched
    _watched = None


def by_webhook(url: str, settings: Any) -> str:
    secret = new_secret(Scheme.V1, bytes(32))
    message = Message(id="evt_1", url=url, body=b"{}", secrets=(secret,), tenant_id=new_uuid7())
    outcome: Outcome = send(message, total_s=3.0)
    assert not outcome.is_ok
    return outcome.error


def by_teacher(url: str, settings: Any) -> None:
    teacher = OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model="m"),
        base_url=url,
        api_key="sk-0123456789",
        caps=TeacherCaps(logprobs=True),
        allowed_origins=frozenset(settings.KOLM_ALLOW_PRIVATE_TEACHERS),
    )
    request = CompletionRequest(messages=(protocol.Message(role="user", content="hello"),))
    try:
        # no URL at all: such a spec is refused before there is a teacher
        with pytest.raises((TeacherFailed, httpx.InvalidURL)):
            teacher.complete(request, deadline_s=3.0)
    finally:
        teacher.close()


CALLERS = pytest.mark.parametrize("call", [by_webhook, by_teacher])


def test_there_are_enough_of_them() -> None:
    assert len(set(HOSTILE_URLS)) >= 40
    assert sum("[" in url for url in HOSTILE_URLS) >= 10


@CALLERS
@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_opens_no_socket(
    call: Callable[[str, Any], object], url: str, connections: list[str], settings: Any
) -> None:
    call(url, settings)
    assert connections == []


@CALLERS
@pytest.mark.parametrize("answers", HOSTILE_ANSWERS, ids=" ".join)
def test_a_name_with_a_private_address_opens_no_socket(
    call: Callable[[str, Any], object],
    answers: list[str],
    connections: list[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    answer_with(monkeypatch, itertools.repeat(answers))
    call(REBINDING, settings)
    assert connections == []


@CALLERS
def test_a_name_server_that_rebinds_gets_one_look_and_never_an_inner_connection(
    call: Callable[[str, Any], object], connections: list[str], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Public when it is asked first, loopback, metadata and mapped addresses when it is asked again."""
    inner = ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "10.0.0.1"]
    answer_with(monkeypatch, itertools.cycle([[PUBLIC], *([address] for address in inner)]))
    for _ in range(12):
        call(REBINDING, settings)
    assert set(connections) == {PUBLIC}


@CALLERS
@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:1/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "//169.254.169.254/",
        "file:///etc/passwd",
    ],
)
@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_opens_no_second_socket(
    call: Callable[[str, Any], object], location: str, status: int, connections: list[str], settings: Any
) -> None:
    with receiving() as receiver:
        settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = settings.KOLM_ALLOW_PRIVATE_TEACHERS = (receiver.origin,)
        receiver.answer = lambda received: Answer(status=status, headers={"location": location})
        call(receiver.url, settings)
        assert_only(receiver, connections)


def assert_only(receiver: Receiver, connections: list[str]) -> None:
    """As many connections as the receiver answered requests, all of them to it."""
    assert set(connections) == {"127.0.0.1"}
    assert len(connections) == len(receiver.got)
    assert {received.path for received in receiver.got} <= {"/hook", "/hook/chat/completions"}


def test_proxies_of_the_environment_are_not_asked(
    connections: list[str], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    answer_with(monkeypatch, itertools.repeat([PUBLIC]))
    assert by_webhook("https://hooks.example.com/", settings) == "connect_failed"
    by_teacher("https://hooks.example.com/v1", settings)
    assert set(connections) == {PUBLIC}


def test_the_watch_sees_a_connection_that_is_made(connections: list[str]) -> None:
    """Otherwise the empty lists above would say nothing."""
    with receiving() as receiver:
        port = int(receiver.origin.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("169.254.169.254", 80), timeout=1)
    assert connections == ["127.0.0.1", "169.254.169.254"]


def answer_with(monkeypatch: pytest.MonkeyPatch, answers: Iterator[list[str]]) -> None:
    """A name server for every name, by what the operating system would tell of its answers."""

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        time.sleep(0.001)
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in next(answers)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
