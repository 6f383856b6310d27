"""The production client against teachers that misbehave (T13), on loopback and raw sockets."""

import dataclasses
import json
import random
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.teacher import OpenAICompatibleTeacher
from workers.teachers.protocol import (
    Completion,
    CompletionRequest,
    Message,
    TeacherCanceled,
    TeacherCaps,
    TeacherFailed,
    TeacherIdentity,
)

KEY = "sk-canary-0123456789"
REQUEST = CompletionRequest(messages=(Message(role="user", content="hello teacher"),), n=2, max_tokens=20, seed=3)
Act = Callable[[socket.socket, threading.Event], None]
GOOD = answer(200, json.dumps(completion_body("one", "two")).encode(), x_request_id="req-1")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.02)


def teacher_for(hostile: HostileTeacher, *, concurrency: int = 4) -> OpenAICompatibleTeacher:
    return OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model="m"),
        base_url=hostile.base_url,
        api_key=KEY,
        caps=TeacherCaps(logprobs=True),
        concurrency=concurrency,
        allowed_origins=frozenset({hostile.base_url}),
        rng=random.Random(1),
    )


def call(
    *script: Act, request: CompletionRequest = REQUEST, deadline_s: float = 30.0
) -> tuple[Completion, HostileTeacher]:
    with HostileTeacher(*script) as hostile:
        teacher = teacher_for(hostile)
        try:
            return teacher.complete(request, deadline_s=deadline_s), hostile
        finally:
            teacher.close()


def failure(*script: Act, deadline_s: float = 30.0) -> tuple[TeacherFailed, HostileTeacher]:
    with HostileTeacher(*script) as hostile:
        teacher = teacher_for(hostile)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=deadline_s)
        teacher.close()
        assert_no_secret(caught.value)
        return caught.value, hostile


def assert_no_secret(error: BaseException) -> None:
    assert KEY not in "".join(traceback.format_exception(error))


def test_a_good_answer_comes_back_whole() -> None:
    completion, hostile = call(GOOD)
    assert [c.text for c in completion.choices] == ["one", "two"]
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (9, 5)
    assert completion.provider_request_id == "req-1"
    assert completion.n_attempts == 1
    sent = json.loads(hostile.requests[0].partition(b"\r\n\r\n")[2])
    assert (sent["n"], sent["max_tokens"], sent["seed"]) == (2, 20, 3)
    assert f"bearer {KEY}".encode() in hostile.requests[0].lower()


@pytest.mark.parametrize(("own", "sent"), [("", "none"), ("low", "low")])
def test_a_question_that_is_silent_about_effort_has_the_teachers(own: str, sent: str) -> None:
    with HostileTeacher(GOOD) as hostile:
        teacher = OpenAICompatibleTeacher(
            identity=TeacherIdentity(provider="openai_compatible", model="m"),
            base_url=hostile.base_url,
            api_key=KEY,
            caps=TeacherCaps(),
            effort="none",
            allowed_origins=frozenset({hostile.base_url}),
        )
        teacher.complete(dataclasses.replace(REQUEST, effort=own), deadline_s=30.0)
        teacher.close()
    assert json.loads(hostile.requests[0].partition(b"\r\n\r\n")[2])["reasoning_effort"] == sent


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_failure_is_tried_again(status: int) -> None:
    completion, hostile = call(answer(status, b"{}"), answer(status, b"oops"), GOOD)
    assert completion.n_attempts == 3
    assert len(hostile.requests) == 3
    assert completion.wasted.output_tokens == 0  # such answers are not billed


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 418, 422, 451])
def test_a_lasting_refusal_is_asked_once(status: int) -> None:
    error, hostile = failure(answer(status, f'{{"error": "bad key {KEY}"}}'.encode()))
    assert (error.code, error.retryable, error.usage) == ("teacher_rejected", False, None)
    assert len(hostile.requests) == 1


def test_a_redirect_is_not_followed() -> None:
    with HostileTeacher(GOOD) as elsewhere:
        error, hostile = failure(answer(307, b"", location=elsewhere.base_url + "/chat/completions"))
        assert error.code == "teacher_rejected"
        assert (len(hostile.requests), len(elsewhere.requests)) == (1, 0)


def test_a_storm_of_429_ends_with_its_own_code_and_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.001)
    error, hostile = failure(answer(429, b"{}", retry_after="0"))
    assert error.code == "teacher_rate_limited"
    assert error.retryable
    assert error.usage is None
    assert len(hostile.requests) == retry.MAX_ATTEMPTS


def test_retry_after_is_honoured() -> None:
    started = time.monotonic()
    call(answer(429, b"", retry_after="1"), GOOD)
    assert time.monotonic() - started >= 1.0


def test_a_retry_after_beyond_the_deadline_fails_at_once() -> None:
    error, hostile = failure(answer(429, b"", retry_after="30"), deadline_s=30.0)
    assert (error.code, len(hostile.requests)) == ("teacher_rate_limited", 1)


def stall(connection: socket.socket, over: threading.Event) -> None:
    over.wait(20)


def drip(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while not over.wait(0.05):
        connection.sendall(b" ")


def drip_header(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-a: ")
    while not over.wait(0.05):
        connection.sendall(b"a")


@pytest.mark.parametrize("act", [stall, drip, drip_header])
def test_a_stall_or_a_slow_drip_ends_at_the_deadline_and_is_counted_as_billed(act: Act) -> None:
    started = time.monotonic()
    error, _ = failure(act, deadline_s=1.0)
    assert 0.9 < time.monotonic() - started < 10
    assert error.code == "teacher_timeout"
    assert error.retryable
    assert error.usage is not None
    assert error.usage.output_tokens == REQUEST.n * REQUEST.max_tokens
    assert error.usage.estimated


def test_ten_megabytes_are_not_read() -> None:
    def flood(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10):
            connection.sendall(b"100000\r\n" + b"a" * 0x100000 + b"\r\n")

    for act in (flood, answer(200, b'"' + b"a" * 10_000_000 + b'"')):
        error, hostile = failure(act, deadline_s=30.0)
        assert (error.code, error.retryable) == ("teacher_too_large", False)
        assert len(hostile.requests) == 1


LOGPROBS = b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": %s}]}}]}'
BROKEN: dict[str, bytes] = {
    "half JSON": b'{"choices": [{"message": {"content": "on',
    "invalid UTF-8": b'{"choices": [{"message": {"content": "\xff\xfe"}}]}',
    "a lone surrogate": b'{"choices": [{"message": {"content": "\\ud800"}}]}',
    "a NUL": b'{"choices": [{"message": {"content": "a\\u0000b"}}]}',
    "empty": b"",
    "a list": b"[]",
    "null": b"null",
    "no choices": b"{}",
    "empty choices": b'{"choices": []}',
    "choices of another type": b'{"choices": {"0": 1}}',
    "a choice without message": b'{"choices": [{"text": "a"}]}',
    "content of another type": b'{"choices": [{"message": {"content": ["a"]}}]}',
    "NaN log-prob": LOGPROBS % b"NaN",
    "infinite log-prob": LOGPROBS % b"-1e999",
    "positive log-prob": LOGPROBS % b"0.5",
    "log-prob of another type": LOGPROBS % b'"x"',
    "a bomb of brackets": b"[" * 200_000,
    "a huge number": b'{"choices": ' + b"9" * 10_000 + b"}",
    "an endless choice": json.dumps(completion_body("a" * 5000)).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_answer_is_tried_again_and_counted_as_waste(name: str) -> None:
    completion, hostile = call(answer(200, BROKEN[name]), GOOD)
    assert (completion.n_attempts, len(hostile.requests)) == (2, 2)
    assert completion.wasted.output_tokens == REQUEST.n * REQUEST.max_tokens
    assert completion.wasted.estimated


def test_a_teacher_that_only_talks_nonsense_is_paid_for_it_twice_at_most() -> None:
    error, hostile = failure(answer(200, BROKEN["half JSON"]), deadline_s=30.0)
    assert (error.code, error.retryable) == ("teacher_protocol", True)
    assert len(hostile.requests) == error.n_attempts == retry.MAX_BILLED_FAILURES
    assert error.usage is not None
    assert error.usage.output_tokens == 2 * REQUEST.n * REQUEST.max_tokens


def test_a_page_of_a_web_server_was_written_by_no_model_and_costs_nothing() -> None:
    page = answer(200, b"<html>502 Bad Gateway</html>")
    completion, hostile = call(page, GOOD)
    assert (completion.n_attempts, len(hostile.requests), completion.wasted.output_tokens) == (2, 2, 0)
    error, _ = failure(page, deadline_s=30.0)
    assert (error.code, error.usage) == ("teacher_protocol", None)


def reset(connection: socket.socket, over: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def cut(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")


def gibberish(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


@pytest.mark.parametrize("act", [reset, cut, gibberish])
def test_a_broken_connection_is_tried_again(act: Act) -> None:
    completion, _ = call(act, GOOD)
    assert completion.n_attempts == 2


def test_a_closed_port_is_unreachable_and_costs_nothing() -> None:
    with HostileTeacher(GOOD) as hostile:
        pass
    teacher = teacher_for(hostile)
    with pytest.raises(TeacherFailed) as caught:
        teacher.complete(REQUEST, deadline_s=0.5)
    teacher.close()
    assert (caught.value.code, caught.value.usage) == ("teacher_unreachable", None)


def test_fewer_choices_are_accepted_and_more_are_dropped() -> None:
    fewer, _ = call(answer(200, json.dumps(completion_body("one")).encode()))
    more, _ = call(answer(200, json.dumps(completion_body("1", "2", "3", "4")).encode()))
    assert [len(c.choices) for c in (fewer, more)] == [1, 2]


def test_a_refusal_without_content_is_an_empty_choice() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": None, "refusal": "no"}}]}
    completion, _ = call(answer(200, json.dumps(body).encode()))
    assert completion.choices[0].text == ""


@pytest.mark.parametrize(
    ("usage", "flag"),
    [
        (None, "estimated"),
        ("lots", "estimated"),
        ([], "estimated"),
        ({}, "disputed"),
        ({"prompt_tokens": -5, "completion_tokens": 3}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": -3}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": 10**12}, "disputed"),
        ({"prompt_tokens": 10**12, "completion_tokens": 3}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": 3.5}, "disputed"),
        ({"prompt_tokens": True, "completion_tokens": 3}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": 0}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 99}}, "disputed"),
        ({"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}, None),
    ],
)
def test_usage_that_cannot_be_is_marked_and_never_exceeds_what_the_request_could_cost(
    usage: Any, flag: str | None
) -> None:
    body = completion_body("one", "two") | {"usage": usage}
    completion, _ = call(answer(200, json.dumps(body).encode()))
    got = completion.usage
    assert 0 < got.output_tokens <= REQUEST.n * REQUEST.max_tokens
    assert 0 <= got.input_tokens <= sum(len(m.content) + 16 for m in REQUEST.messages)
    assert 0 <= got.cached_tokens <= got.input_tokens
    assert {"estimated": got.estimated, "disputed": got.disputed} == {
        "estimated": flag == "estimated",
        "disputed": flag == "disputed",
    }


@pytest.mark.parametrize("act", [stall, drip, answer(429, b"", retry_after="19")])
def test_cancel_ends_the_call_soon(act: Act) -> None:
    cancel = threading.Event()
    with HostileTeacher(act) as hostile:
        teacher = teacher_for(hostile)
        timer = threading.Timer(0.3, cancel.set)
        timer.start()
        started = time.monotonic()
        with pytest.raises(TeacherCanceled) as caught:
            teacher.complete(REQUEST, deadline_s=20.0, cancelled=cancel.is_set)
        assert time.monotonic() - started < 10
        assert_no_secret(caught.value)
        timer.join()
        teacher.close()


def test_no_more_calls_than_the_concurrency_limit_are_in_flight() -> None:
    flying, most = 0, 0
    guard = threading.Lock()

    def slow(connection: socket.socket, over: threading.Event) -> None:
        nonlocal flying, most
        with guard:
            flying += 1
            most = max(most, flying)
        time.sleep(0.1)
        with guard:
            flying -= 1
        GOOD(connection, over)

    with HostileTeacher(slow) as hostile:
        teacher = teacher_for(hostile, concurrency=2)
        threads = [
            threading.Thread(target=teacher.complete, args=(REQUEST,), kwargs={"deadline_s": 30.0}) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        teacher.close()
    assert most == 2
    assert len(hostile.requests) == 6


@pytest.mark.parametrize(
    "base_url", ["https://169.254.169.254/v1", "http://10.0.0.1/v1", "https://[::1]/v1", "http://127.0.0.1:1/v1", "x"]
)
def test_a_private_address_is_refused_once_and_costs_nothing(base_url: str) -> None:
    teacher = OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model="m"),
        base_url=base_url,
        api_key=KEY,
        caps=TeacherCaps(),
    )
    with pytest.raises(TeacherFailed) as caught:
        teacher.complete(REQUEST, deadline_s=2.0)
    assert (caught.value.code, caught.value.usage, caught.value.n_attempts) == ("teacher_rejected", None, 1)
    teacher.close()


@pytest.mark.parametrize("key", ["sk-a\r\nx-evil: 1", "sk a", "sk-ü", "sk-\x00"])
def test_a_key_that_is_no_header_value_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(TeacherFailed) as caught:
        OpenAICompatibleTeacher(
            identity=TeacherIdentity(provider="openai_compatible", model="m"),
            base_url="https://example.com/v1",
            api_key=key,
            caps=TeacherCaps(),
        )
    assert key not in repr(caught.value)


def test_the_key_is_in_no_repr_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    with HostileTeacher(reset, answer(500, b""), GOOD) as hostile:
        teacher = teacher_for(hostile)
        teacher.complete(REQUEST, deadline_s=30.0)
        assert KEY not in repr(teacher) + repr(teacher._client) + repr(teacher._client.headers)
        teacher.close()
    assert KEY not in caplog.text
