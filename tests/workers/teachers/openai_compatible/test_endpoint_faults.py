"""Wrong endpoints, each a real server on loopback: the client tells them apart, and each has its sentence. Vendors'
words are as they are documented or were reported, with the page beside them."""

import json
import socket
import time
from typing import Any

import pytest

from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from tests.workers.teachers.hostile import HostileTeacher, answer
from tests.workers.teachers.openai_compatible.test_teacher import KEY, REQUEST, assert_no_secret, stall
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


def error(value: Any) -> bytes:
    return json.dumps({"error": value}).encode()


def failure_at(*script: Any, api_key: str | None = KEY, deadline_s: float = 2.0) -> TeacherFailed:
    with HostileTeacher(*script) as hostile:
        teacher = OpenAICompatibleTeacher(
            identity=TeacherIdentity(provider="openai_compatible", model="gpt-9"),
            base_url=hostile.base_url,
            api_key=api_key,
            caps=TeacherCaps(logprobs=True),
            allowed_origins=frozenset({hostile.base_url}),
        )
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
    ("a completion that is cut", 200, b'{"choices": [{"message": {"cont', None),
    ("a server that fails", 503, PAGE, None),
]


@pytest.mark.parametrize(("name", "status", "body", "fault"), CASES, ids=[case[0] for case in CASES])
def test_a_wrong_endpoint_is_told_apart_and_has_its_sentence(name, status, body, fault) -> None:
    failed = failure_at(answer(status, body))
    assert failed.fault is fault, failed.message
    if fault is not None and status != 200:
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


def test_an_endpoint_that_stays_silent_is_given_up_in_time() -> None:
    began = time.monotonic()
    failed = failure_at(stall, deadline_s=1.0)
    assert (failed.code, failed.fault) == ("teacher_timeout", None)
    assert time.monotonic() - began < 10


def test_nobody_at_the_address_is_no_fault_that_is_told_apart() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    teacher = OpenAICompatibleTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model="m"),
        base_url=base_url,
        api_key=KEY,
        caps=TeacherCaps(),
        allowed_origins=frozenset({base_url}),
    )
    with pytest.raises(TeacherFailed) as caught:
        teacher.complete(REQUEST, deadline_s=1.0)
    assert (caught.value.code, caught.value.fault) == ("teacher_unreachable", None)


@pytest.mark.parametrize("status", [408, 413, 451, 500, 502, 504])
def test_other_statuses_name_no_fault(status: int) -> None:
    assert fault_of(status, PAGE) is None
