"""Wrong endpoints, each a real server on loopback: the client tells them apart, and each has its sentence. Vendors'
words are as they are documented or were reported, with the page beside them."""

import dataclasses
import gzip
import json
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from backend.domain.dialects.dialect import Option
from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from tests.backend.test_outbound import Receiver, issue_certificate
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from tests.workers.teachers.openai_compatible.test_teacher import KEY, REQUEST, assert_no_secret, stall
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import TeacherCaps, TeacherFailed, TeacherIdentity

PAGE = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Log in</body></html>"
# https://platform.openai.com/docs/guides/error-codes
NO_QUOTA = {
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "type": "insufficient_quota",
    "param": None,
    "code": "insufficient_quota",
}
RATE = {"message": "Rate limit reached for gpt-5-mini in organization org-x on requests per min.", "code": "rate_limit"}
WRONG_KEY = {"message": "Incorrect API key provided: sk-canary*6789.", "code": "invalid_api_key"}
NO_MODEL = {"message": "The model `gpt-9` does not exist or you do not have access to it.", "code": "model_not_found"}
# of transformers 5.19
PINNED = b"{\"detail\": \"Server is pinned to '/models/gemma'; requested 'gpt-9'.\"}"
NO_ACCESS = {"message": "Project `proj_x` does not have access to model `gpt-5`", "code": "model_not_found"}
# https://ai.google.dev/gemini-api/docs/troubleshooting
GOOGLE_KEY = [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "x"}}]
GOOGLE_MINUTE = {"code": 429, "message": "You exceeded your current quota, please check your plan and billing details."}
# https://api-docs.deepseek.com/quick_start/error_codes
DEEPSEEK = {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}
# https://docs.anthropic.com/en/api/errors
ANTHROPIC = {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}

CAPS = TeacherCaps(logprobs=True)


def error(value: Any) -> bytes:
    return json.dumps({"error": value}).encode()


def teacher_at(base_url: str, **changes: Any) -> OpenAICompatibleTeacher:
    fields: dict[str, Any] = {"api_key": KEY, "allowed_origins": frozenset({base_url}), "caps": CAPS} | changes
    identity = TeacherIdentity(provider="openai_compatible", model="gpt-9")
    return OpenAICompatibleTeacher(identity=identity, base_url=base_url, **fields)


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a call is the number of its attempts: a deadline would cut one short on a busy machine."""
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 3)


def failure_at(*script: Any, api_key: str | None = KEY, deadline_s: float = 30.0) -> TeacherFailed:
    with HostileTeacher(*script) as hostile:
        teacher = teacher_at(hostile.base_url, api_key=api_key)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=deadline_s)
        teacher.close()
    assert_no_secret(caught.value)
    return caught.value


CASES: list[tuple[str, int, bytes, TeacherFault | None]] = [
    ("a wrong key", 401, error(WRONG_KEY), TeacherFault.WRONG_KEY),
    ("a bare 401", 401, b"", TeacherFault.WRONG_KEY),
    ("a wrong key at Google", 400, json.dumps(GOOGLE_KEY).encode(), TeacherFault.WRONG_KEY),
    ("no quota", 429, error(NO_QUOTA), TeacherFault.NO_QUOTA),
    ("no balance", 402, error(DEEPSEEK), TeacherFault.NO_QUOTA),
    ("no credit at Anthropic", 400, error(ANTHROPIC), TeacherFault.NO_QUOTA),
    ("too many requests", 429, error(RATE), None),
    ("Google's limit by the minute", 429, error(GOOGLE_MINUTE), None),
    ("no access to the model", 403, error(NO_ACCESS), TeacherFault.NO_ACCESS),
    ("no such model", 404, error(NO_MODEL), TeacherFault.NO_SUCH_MODEL),
    ("another model than transformers serves", 400, PINNED, TeacherFault.NO_SUCH_MODEL),
    ("no such path", 404, b'{"detail": "Not Found"}', TeacherFault.NO_SUCH_PATH),
    ("another method", 405, b'{"detail": "Method Not Allowed"}', TeacherFault.NOT_OPENAI),
    ("a page", 200, PAGE, TeacherFault.HTML),
    ("a page that is not found", 404, PAGE, TeacherFault.HTML),
    ("a page that forbids", 403, PAGE, TeacherFault.HTML),
    ("a page to log in at", 401, PAGE, TeacherFault.HTML),
    ("JSON of something else", 200, b'{"status": "ok"}', TeacherFault.NOT_OPENAI),
    ("a list", 200, b"[1, 2]", TeacherFault.NOT_OPENAI),
    ("a text", 200, b"Ollama is running", TeacherFault.NOT_OPENAI),
    ("nothing", 200, b"", TeacherFault.NOT_OPENAI),
    ("nothing, and says so", 204, b"", TeacherFault.NOT_OPENAI),
    ("a page behind a comment", 200, b"<!-- x -->" + PAGE, TeacherFault.HTML),
    ("a stream", 200, b'data: {"choices": [{"delta": {}}]}\n\ndata: [DONE]\n\n', TeacherFault.STREAM),
    ("a stream that pings first", 200, b": ping\n\nevent: x\ndata: {}\n\n", TeacherFault.STREAM),
    ("a wrong key within a 200", 200, error(WRONG_KEY), TeacherFault.WRONG_KEY),
    ("no credit within a 200", 200, error({"code": 402, "message": "Insufficient credits"}), TeacherFault.NO_QUOTA),
    ("no model within a 200", 200, b'{"error": "model x not found"}', TeacherFault.NO_SUCH_MODEL),
    ("no access within a 200", 200, error({"status": "403", "message": "no"}), TeacherFault.NO_ACCESS),
    ("no choices but an error", 200, b'{"choices": [], "error": {"code": 402}}', TeacherFault.NO_QUOTA),
    ("http to a port of TLS", 400, b"<html>The plain HTTP request was sent to HTTPS port", TeacherFault.WANTS_TLS),
    ("http to a port of TLS in Go", 400, b"Client sent an HTTP request to an HTTPS server.", TeacherFault.WANTS_TLS),
    ("a completion that is cut", 200, b'{"choices": [{"message": {"cont', None),
    ("numbers that are none", 200, b'{"choices": [{"message": {"content": "x"}}], "usage": NaN}', None),
    ("a server that fails", 503, PAGE, TeacherFault.SERVER_ERROR),
    ("a server that fails within a 200", 200, error({"code": 502, "message": "no"}), TeacherFault.SERVER_ERROR),
]


@pytest.mark.parametrize(("name", "status", "body", "fault"), CASES, ids=[case[0] for case in CASES])
def test_a_wrong_endpoint_is_told_apart_and_has_its_sentence(name, status, body, fault) -> None:
    failed = failure_at(answer(status, body))
    assert failed.fault is fault, failed.message
    if fault is not None and status != 200 and fault is not TeacherFault.SERVER_ERROR:
        assert FAULT_TEXTS[fault].finding in failed.message
        assert failed.code == "teacher_rejected"
    for secret in ("sk-canary", "proj_x", "org-x", "Welcome"):
        assert secret not in failed.message


def test_a_key_that_was_not_given_is_not_called_wrong() -> None:
    assert failure_at(answer(401, error(WRONG_KEY)), api_key=None).fault is TeacherFault.NO_KEY


def test_a_redirect_is_a_fault_of_the_address() -> None:
    assert failure_at(answer(308, b"", location="https://elsewhere.example/v1")).fault is TeacherFault.REDIRECT


def test_an_account_without_quota_is_asked_once() -> None:
    assert failure_at(answer(429, error(NO_QUOTA))).n_attempts == 1


def test_a_refusal_within_a_200_is_asked_once_and_has_generated_nothing() -> None:
    failed = failure_at(answer(200, error(WRONG_KEY)))
    assert (failed.code, failed.n_attempts, failed.usage) == ("teacher_rejected", 1, None)
    busy = failure_at(answer(200, error({"code": 429, "message": "slow down"})))
    assert (busy.code, busy.fault, busy.usage) == ("teacher_rate_limited", None, None)


@pytest.mark.parametrize(("status", "code"), [(429, "teacher_rate_limited"), (503, "teacher_unreachable")])
def test_a_pause_that_is_asked_for_beside_an_error_within_a_200_is_kept(status: int, code: str) -> None:
    busy = answer(200, error({"code": status, "message": "slow down"}), retry_after="30")
    failed = failure_at(busy, deadline_s=30.0)
    assert (failed.code, failed.n_attempts) == (code, 1), "the pause ends after the deadline"


def test_a_200_that_refuses_an_option_teaches_it_as_a_400_does() -> None:
    refused = error({"code": 400, "message": "Unsupported parameter: 'seed'", "param": "seed"})
    with HostileTeacher(answer(200, refused), answer(200, json.dumps(completion_body("yes")).encode())) as hostile:
        teacher = teacher_at(hostile.base_url)
        assert teacher.complete(REQUEST, deadline_s=5).choices[0].text == "yes"
        assert [lesson.option for lesson in teacher.lessons] == [Option.SEED]
        teacher.close()


@pytest.mark.parametrize("name", ["logprobs", "top_logprobs"])
def test_a_teacher_that_refuses_log_probs_is_asked_for_the_label_alone(name: str) -> None:
    refused = error({"code": 400, "message": f"Unsupported parameter: '{name}'", "param": name})
    request = dataclasses.replace(REQUEST, n=1, logprobs=True, top_logprobs=5, labels=("yes", "no"))
    told = answer(200, json.dumps(completion_body("yes")).encode())
    with HostileTeacher(answer(400, refused), told) as hostile:
        teacher = teacher_at(hostile.base_url, caps=TeacherCaps(logprobs=True, max_top_logprobs=20))
        (choice,) = teacher.complete(request, deadline_s=5).choices
        assert (choice.text, choice.label_logprobs) == ("yes", None)
        assert [lesson.option for lesson in teacher.lessons] == [Option(name)]
        first, second = (json.loads(one[one.index(b"{") :]) for one in hostile.requests)
        teacher.close()
    assert first["top_logprobs"] == 5
    assert name not in second


def test_a_bomb_is_not_unpacked_and_has_its_sentence() -> None:
    bomb = gzip.compress(b"0" * 20_000_000)
    failed = failure_at(answer(200, bomb, content_encoding="gzip"))
    assert (failed.code, failed.fault) == ("teacher_too_large", TeacherFault.COMPRESSED)


def test_a_key_that_cannot_be_sent_is_a_fault_of_the_key_and_is_not_shown() -> None:
    with pytest.raises(TeacherFailed) as caught:
        teacher_at("https://llm.example.com/v1", api_key="sk-canary 6789")
    assert caught.value.fault is TeacherFault.BAD_KEY
    assert_no_secret(caught.value)


def unconnected(base_url: str, **changes: Any) -> TeacherFailed:
    teacher = teacher_at(base_url, **changes)
    with pytest.raises(TeacherFailed) as caught:
        teacher.complete(REQUEST, deadline_s=30.0)
    teacher.close()
    assert caught.value.usage is None, "nothing was sent"
    return caught.value


@pytest.mark.parametrize(("errno", "fault"), [(socket.EAI_NONAME, TeacherFault.UNKNOWN_HOST), (socket.EAI_AGAIN, None)])
def test_a_host_that_no_name_server_knows_is_told_from_one_that_does_not_answer(errno, fault) -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise socket.gaierror(errno, "no")

    failed = unconnected("https://llm.exmaple.com/v1", resolver=resolver, allowed_origins=frozenset())
    assert (failed.code, failed.fault) == ("teacher_unreachable", fault)
    assert fault is None or failed.n_attempts == 2, "a typo is not asked about for twenty seconds"


def test_a_name_that_leads_inside_is_a_fault_of_the_address() -> None:
    inside: Any = {"resolver": lambda host, port: ["10.0.0.5"], "allowed_origins": frozenset()}
    failed = unconnected("https://llm.example.com/v1", **inside)
    assert (failed.code, failed.fault) == ("teacher_rejected", TeacherFault.ADDRESS)


def test_https_to_a_port_that_speaks_http_says_so() -> None:
    with Receiver(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as server:
        base_url = server.origin.replace("http://", "https://")
        failed = unconnected(base_url, allowed_origins=frozenset({base_url}))
    assert failed.fault is TeacherFault.NO_TLS


def test_a_certificate_that_nobody_vouches_for_says_so(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issue_certificate(tmp_path, "llm.example.com"))
    with Receiver(b"", tls=context) as receiver:
        origin = f"https://llm.example.com:{receiver.origin.rsplit(':', 1)[1]}"
        failed = unconnected(origin, allowed_origins=frozenset({origin}), resolver=lambda host, port: ["127.0.0.1"])
        assert receiver.requests == [], "no key goes to a server that may be another's"
    assert failed.fault is TeacherFault.BAD_CERTIFICATE


def test_an_endpoint_that_stays_silent_is_given_up_in_time() -> None:
    began = time.monotonic()
    failed = failure_at(stall, deadline_s=1.0)
    assert (failed.code, failed.fault) == ("teacher_timeout", None)
    assert time.monotonic() - began < 10


def test_nobody_at_the_address_is_no_fault_that_is_told_apart() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    teacher = teacher_at(base_url)
    with pytest.raises(TeacherFailed) as caught:
        teacher.complete(REQUEST, deadline_s=30.0)
    assert (caught.value.code, caught.value.fault) == ("teacher_unreachable", None)


@pytest.mark.parametrize("status", [408, 412, 413, 451, 500, 502, 504])
def test_other_statuses_name_no_fault(status: int) -> None:
    assert fault_of(status, PAGE) is None
