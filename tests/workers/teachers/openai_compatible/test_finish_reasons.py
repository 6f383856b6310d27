"""Vendors' words for why a choice ended: only a word that is known to mean a whole answer makes one."""

import json
from typing import Any

import pytest

from backend.domain.dialects.faults import TeacherFault
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from tests.workers.teachers.openai_compatible.test_endpoint_faults import teacher_at
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.answers import read_chat
from workers.teachers.openai_compatible.finish_reasons import finish_reason_of
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.protocol import Choice, CompletionRequest, Message, TeacherFailed

REQUEST = CompletionRequest(messages=(Message(role="user", content="q" * 80),), n=2, max_tokens=20)
WORDS: dict[str, tuple[Any, ...]] = {
    "stop": (None, "stop", "STOP", "FINISH_REASON_STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE"),
    "length": (
        "length",
        "model_length",
        "MAX_TOKENS",
        "max_tokens",
        "max-output-tokens",
        "model_context_window_exceeded",
    ),
    "content_filter": (
        *(
            "content_filter",
            "content-filter",
            "content_filter: PROHIBITED_CONTENT",
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
        ),
        *("PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "refusal", "sensitive", "guardrail_intervened", "ERROR_TOXIC"),
    ),
    "tool_calls": ("tool_calls", "function_call", "tool_use"),
    "error": (
        *("error", "ERROR", "insufficient_system_resource", "abort", "aborted", "cancelled", "OTHER", "pause_turn"),
        *("MALFORMED_FUNCTION_CALL", "stopped by the operator", "unknown", "", 0, True, [], {}, ["stop"]),
    ),
}


@pytest.mark.parametrize(("word", "reason"), [(word, reason) for reason, words in WORDS.items() for word in words])
def test_a_word_is_read_by_a_closed_map(word: Any, reason: str) -> None:
    assert finish_reason_of({"finish_reason": word}) == reason


def test_a_choice_with_an_error_is_never_whole() -> None:
    assert finish_reason_of({"finish_reason": "stop", "error": {"code": 502}}) == "error"
    assert finish_reason_of({"finish_reason": "stop", "error": None}) == "stop"


def chat(*rows: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"choices": list(rows)} | fields).encode()


def row(text: str, **fields: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}} | fields


def test_what_broke_off_has_no_text_that_could_be_a_candidate_or_a_vote() -> None:
    rows = (row("refund", finish_reason="abort"), row("refund", error={"code": 502}, finish_reason="error"))
    for bad in rows:
        choices = read_chat(chat(bad, row("shipping", finish_reason="stop")), REQUEST).choices
        assert [(choice.text, choice.finish_reason) for choice in choices] == [("", "error"), ("shipping", "stop")]


def test_what_broke_off_is_billed_as_what_it_wrote_where_no_usage_is_reported() -> None:
    answer = read_chat(chat(row("word " * 10, finish_reason="abort")), REQUEST)
    assert answer.choices[0].token_logprobs is None
    assert answer.usage.output_tokens > 5


ERROR = {"error": {"code": 502, "message": "Provider returned error"}, "finish_reason": "error"}


def failure_at(body: bytes) -> TeacherFailed:
    with HostileTeacher(answer(200, body)) as hostile:
        teacher = teacher_at(hostile.base_url)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=10.0)
        teacher.close()
    return caught.value


def test_an_error_in_the_place_of_every_choice_may_pass_as_one_within_a_200_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.01)
    good = json.dumps(completion_body("yes", "no")).encode()
    with HostileTeacher(answer(200, chat(row("ref", **ERROR))), answer(200, good)) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=10.0)
        teacher.close()
    assert [choice.text for choice in completion.choices] == ["yes", "no"]
    assert (completion.n_attempts, completion.wasted.output_tokens) == (2, 0)


def test_an_error_in_the_place_of_every_choice_costs_what_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.01)
    usage = {"prompt_tokens": 30, "completion_tokens": 4}
    failed = failure_at(chat(row("ref", **ERROR), row("shi", **ERROR), usage=usage))
    assert (failed.code, failed.fault) == ("teacher_unreachable", TeacherFault.SERVER_ERROR)
    assert failed.n_attempts == retry.MAX_BILLED_FAILURES
    assert failed.usage is not None
    assert (failed.usage.input_tokens, failed.usage.output_tokens) == (60, 8)


def test_an_error_is_not_judged_by_what_the_model_wrote() -> None:
    lasting = {"error": {"code": 402, "message": "no more"}, "finish_reason": "error"}
    failed = failure_at(chat(row("Your key is an invalid api key, flagged by a content filter", **lasting)))
    assert (failed.fault, failed.n_attempts, failed.usage) == (TeacherFault.NO_QUOTA, 1, None)


def test_one_broken_choice_of_a_call_is_lost_alone() -> None:
    with HostileTeacher(answer(200, chat(row("refund", finish_reason="stop"), row("ref", **ERROR)))) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=10.0)
        teacher.close()
    assert [choice.text for choice in completion.choices] == ["refund", ""]
    assert isinstance(completion.choices[1], Choice)


USAGE = {"prompt_tokens": 30, "completion_tokens": 0, "total_tokens": 30}
REFUSED: dict[str, dict[str, Any]] = {
    "no message": {"choices": [{"finish_reason": "content_filter: PROHIBITED_CONTENT", "index": 0, "message": None}]},
    "message left out": {"choices": [{"finish_reason": "SAFETY", "index": 0}]},
    "no content": {"choices": [{"finish_reason": "content_filter", "message": {"role": "assistant"}}]},
    "no choices": {"choices": []},
    "choices are null": {"choices": None},
    "choices left out": {"object": "chat.completion"},
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_text_that_gemini_refuses_is_one_text_of_many_and_costs_what_is_reported(form: str) -> None:
    body = json.dumps(REFUSED[form] | {"usage": USAGE}).encode()
    with HostileTeacher(answer(200, body)) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=10.0)
        teacher.close()
    assert {(choice.text, choice.finish_reason) for choice in completion.choices} == {("", "content_filter")}
    assert (completion.usage.input_tokens, completion.usage.output_tokens, completion.usage.disputed) == (30, 0, False)
    assert (completion.n_attempts, completion.wasted.input_tokens) == (1, 0)
    assert teacher.lessons == ()


def test_a_usage_without_output_may_leave_it_out_beside_no_choices() -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 30, "total_tokens": 30}}).encode()
    assert [choice.finish_reason for choice in read_chat(body, REQUEST).choices] == ["content_filter"] * REQUEST.n


@pytest.mark.parametrize(
    "usage", [None, {}, [], {"prompt_tokens": "x"}, USAGE | {"completion_tokens": 5}, USAGE | {"total_tokens": 35}]
)
def test_no_choices_without_a_usage_that_says_so_are_a_bad_answer(usage: Any) -> None:
    with pytest.raises(BadAnswer):
        read_chat(json.dumps({"choices": [], "usage": usage}).encode(), REQUEST)


def test_no_choices_beside_an_error_are_the_error() -> None:
    failed = failure_at(json.dumps({"choices": [], "error": {"code": 402}, "usage": USAGE}).encode())
    assert (failed.fault, failed.usage) == (TeacherFault.NO_QUOTA, None)


def test_a_choice_without_a_message_at_its_limit_only_thought() -> None:
    assert failure_at(chat({"finish_reason": "MAX_TOKENS"}, usage=USAGE)).code == "teacher_only_thought"


@pytest.mark.parametrize("fields", [{}, {"finish_reason": "stop"}, {"finish_reason": "SAFETY", "message": "no"}])
def test_a_choice_without_a_message_that_ended_by_itself_is_a_bad_answer(fields: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        read_chat(chat(fields), REQUEST)
