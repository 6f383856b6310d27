"""The lines of a batch's files: what is read of them, and what is not."""

import json
from typing import Any

import pytest

from backend.domain.dialects.dialect import Lesson, Option
from backend.domain.dialects.faults import TeacherFault
from backend.domain.dialects.table import BY_NAME
from tests.workers.teachers.hostile import HostileTeacher
from tests.workers.teachers.hostile import answer as http_answer
from tests.workers.teachers.openai_compatible.test_endpoint_faults import teacher_at
from tests.workers.teachers.strict_vendors import CONTENT_REFUSALS
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.answers import Answer
from workers.teachers.openai_compatible.batch_lines import (
    BatchRequest,
    answer_of,
    filter_failure,
    is_filtered,
    lesson_of,
    read_lines,
)
from workers.teachers.openai_compatible.teacher import MOST_REFUSED
from workers.teachers.protocol import CompletionRequest, Message, TeacherFailed, Usage

REQUEST = CompletionRequest(messages=(Message(role="user", content="hello", n_shared=2),), n=2, seed=7)
SENT = BatchRequest(name="a", request=REQUEST, body={"model": "m", "messages": [], "seed": 7})


def row(status: int | None, body: Any = None, *, name: Any = "a", error: Any = None) -> bytes:
    response = None if status is None else {"status_code": status, "request_id": "req_1", "body": body}
    return json.dumps({"id": "x", "custom_id": name, "response": response, "error": error}).encode()


def chat(*texts: str) -> dict[str, Any]:
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} for text in texts]
    return {"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}


def only(data: bytes) -> Any:
    (line,) = read_lines([data])
    return answer_of(line, SENT)


def test_a_request_is_read_back_as_it_was_written() -> None:
    assert BatchRequest.from_json(SENT.to_json()) == SENT
    line = json.loads(SENT.line("/v1/chat/completions"))
    assert line == {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": SENT.body}


def test_an_answer_is_read_as_a_live_one_is() -> None:
    answer = only(row(200, chat("one", "two", "three")))
    assert isinstance(answer, Answer)
    assert [choice.text for choice in answer.choices] == ["one", "two"]
    assert answer.usage.output_tokens == 2


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"7", b"\xff", b'{"custom_id": 7}', b'{"custom_id": null}', b'{"response": {}}', b"NaN"]
)
def test_a_line_that_names_nothing_is_none(data: bytes) -> None:
    assert list(read_lines([data])) == []


def test_a_name_counts_once() -> None:
    lines = list(read_lines([row(200, chat("first")), row(200, chat("second")), row(500, {}, name="b")]))
    assert [(line.name, line.status) for line in lines] == [("a", 200), ("b", 500)]


@pytest.mark.parametrize("code", ["batch_expired", "batch_cancelled", ""])
def test_a_request_that_was_not_run_has_no_answer_and_costs_nothing(code: str) -> None:
    assert only(row(None, error={"code": code})) is None


@pytest.mark.parametrize(
    ("data", "code", "is_retryable"),
    [
        (row(429, {}), "teacher_rate_limited", True),
        (row(503, {}), "teacher_unreachable", True),
        (row(401, {}), "teacher_rejected", False),
        (row(404, {}), "teacher_rejected", False),
        (row(None, error={"code": "request_timeout"}), "teacher_unreachable", True),
        (row(None, error={"code": "server_is_odd"}), "teacher_unreachable", True),
        (row(0, None), "teacher_unreachable", True),
        (
            row(400, {"error": {"code": "json_validate_failed", "failed_generation": "credit"}}),
            "teacher_protocol",
            True,
        ),
        (row(200, {"choices": []}), "teacher_protocol", True),
        (row(200, None), "teacher_protocol", True),
        (row(200, {"choices": [{"message": {"content": "\ud800"}}]}), "teacher_protocol", True),
    ],
)
def test_a_line_fails_as_a_live_call_does(data: bytes, code: str, is_retryable: bool) -> None:
    failed = only(data)
    assert isinstance(failed, TeacherFailed)
    assert (failed.code, failed.retryable) == (code, is_retryable)
    assert (failed.usage is not None) == (code == "teacher_protocol"), "what may have been billed"


QUOTA = {"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}}
LIKE_LIVE: dict[str, tuple[int, Any]] = {
    "no quota": (429, QUOTA),
    "a rate limit": (429, {"error": {"message": "slow down"}}),
    "a rate limit within a 200": (200, {"error": {"code": 429, "message": "slow down"}}),
    "no quota within a 200": (200, {"error": {"code": 402}}),
    "an error of its own within a 200": (200, {"error": {"code": 503}}),
    "no quota in a choice": (200, {"choices": [{"error": {"code": 402}, "message": {"content": "re"}}]}),
    "an option within a 200": (200, {"error": {"code": 400, "message": "temperature is wrong"}}),
    "a wrong key": (401, {"error": {"code": "invalid_api_key"}}),
    "an error of its own": (503, {}),
    "something else": (200, {"object": "list"}),
    "broken JSON within a 200": (200, {"error": {"code": "json_validate_failed"}}),
    "a choice that is none": (200, {"choices": [7]}),
}


@pytest.mark.parametrize("case", LIKE_LIVE)
def test_a_line_ends_with_the_sentence_and_the_cost_of_a_live_call(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 1)
    status, body = LIKE_LIVE[case]
    with HostileTeacher(http_answer(status, json.dumps(body).encode())) as hostile:
        teacher = teacher_at(hostile.base_url)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=30.0)
        teacher.close()
    live, of_batch = caught.value, only(row(status, body))
    assert (of_batch.code, of_batch.usage, of_batch.retryable) == (live.code, live.usage, live.retryable)
    assert of_batch.message.partition(": ")[2] == live.message.partition(": ")[2]


@pytest.mark.parametrize("vendor", CONTENT_REFUSALS)
def test_a_filter_is_read_in_an_error_within_a_200(vendor: str) -> None:
    status, body = CONTENT_REFUSALS[vendor]
    error = body["error"] if isinstance(body.get("error"), dict) else {"message": json.dumps(body)}
    within = {"error": error | {"code": status, "type": error.get("code")}}
    for shape in (within, {"choices": [{"message": {"content": ""}} | within]}):
        (line,) = read_lines([row(200, shape)])
        answer = answer_of(line, SENT)
        assert isinstance(answer, Answer)
        assert {choice.finish_reason for choice in answer.choices} == {"content_filter"}
        assert answer.usage == Usage()
        assert is_filtered(line)
        assert filter_failure(line, "m").message.endswith("(200 with an error).")


@pytest.mark.parametrize(
    "response",
    [
        {"body": chat("one", "two")},
        {"status_code": None, "body": chat("one", "two")},
        {"status_code": "200", "body": chat("one", "two")},
    ],
)
def test_an_answer_without_a_status_or_with_one_as_text_was_run_and_paid(response: dict[str, Any]) -> None:
    answer = only(json.dumps({"custom_id": "a", "response": response}).encode())
    assert isinstance(answer, Answer)
    assert [choice.text for choice in answer.choices] == ["one", "two"]


@pytest.mark.parametrize("body", [None, {}, "", [], {"error": None}])
def test_a_line_without_status_and_answer_was_not_run(body: Any) -> None:
    assert only(json.dumps({"custom_id": "a", "response": {"body": body}}).encode()) is None


def test_an_error_without_a_status_is_one_of_the_endpoint_unless_the_line_was_not_run() -> None:
    line = {"custom_id": "a", "response": {"body": QUOTA}}
    assert only(json.dumps(line).encode()).fault is TeacherFault.NO_QUOTA
    assert only(json.dumps(line | {"error": {"code": "batch_expired"}}).encode()) is None
    assert only(json.dumps({"custom_id": "a", "response": {"status_code": "429", "body": QUOTA}}).encode()).fault


def test_a_refusal_within_a_200_teaches_what_a_refused_line_does() -> None:
    refusal = {"error": {"code": 400, "message": "Unknown parameter: 'seed'.", "param": "seed"}}
    (line,) = read_lines([row(200, refusal)])
    assert lesson_of(line, SENT, BY_NAME["openai"], ()) == Lesson(option=Option.SEED)


@pytest.mark.parametrize("vendor", CONTENT_REFUSALS)
def test_a_text_that_a_filter_refuses_is_answered_with_nothing_and_costs_nothing(vendor: str) -> None:
    (line,) = read_lines([row(*CONTENT_REFUSALS[vendor])])
    answer = answer_of(line, SENT)
    assert isinstance(answer, Answer)
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [("", "content_filter")] * 2
    assert answer.usage == Usage()
    assert is_filtered(line)
    assert lesson_of(line, SENT, BY_NAME["openai"], ()) is None


@pytest.mark.parametrize(
    "data",
    [
        row(None, error={"code": "batch_expired"}),
        row(200, chat("")),
        row(400, {"error": {"code": "json_validate_failed", "message": "flagged"}}),
        row(401, {"error": {"message": "Your key was flagged"}}),
        row(429, {"error": {"message": "Your prompt was flagged"}}),
        row(400, {"error": {"message": "Unknown parameter: 'seed'.", "param": "seed"}}),
    ],
)
def test_other_lines_are_no_filters_refusals(data: bytes) -> None:
    (line,) = read_lines([data])
    assert not is_filtered(line)


def test_one_refused_text_too_many_fails_in_the_words_of_a_live_call() -> None:
    refused = CONTENT_REFUSALS["openai"]
    (line,) = read_lines([row(*refused)])
    with HostileTeacher(http_answer(refused[0], json.dumps(refused[1]).encode())) as hostile:
        teacher = teacher_at(hostile.base_url)
        for _ in range(MOST_REFUSED):
            teacher.complete(REQUEST, deadline_s=30.0)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=30.0)
        teacher.close()
    live, of_batch = caught.value, filter_failure(line, teacher.identity.model)
    assert (of_batch.message, of_batch.code, of_batch.fault) == (live.message, live.code, live.fault)
    assert (of_batch.usage, live.usage) == (None, None)


def test_a_refused_line_teaches_what_a_refused_call_does() -> None:
    refusal = {"error": {"message": "Unknown parameter: 'seed'.", "param": "seed"}}
    (line,) = read_lines([row(400, refusal)])
    lesson = lesson_of(line, SENT, BY_NAME["openai"], ())
    assert lesson == Lesson(option=Option.SEED)
    assert lesson_of(line, SENT, BY_NAME["openai"], (lesson,)) is None
