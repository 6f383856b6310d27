"""What a refusal states, and what a call makes of one that is about the request's content or about an answer."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.dialects.dialect import Lesson, Option, lessons_from_json
from backend.domain.dialects.faults import TeacherFault
from backend.domain.dialects.table import BY_NAME
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from tests.workers.teachers.openai_compatible.test_endpoint_faults import failure_at, teacher_at
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST, cut
from tests.workers.teachers.strict_vendors import CONTENT_REFUSALS
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible import teacher as teacher_module
from workers.teachers.openai_compatible.endpoint_faults import fault_of
from workers.teachers.protocol import Completion, TeacherFailed, Usage

# https://github.com/thepersonalaicompany/amurex-backend/issues/38
BROKEN_JSON = {
    "message": "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "json_validate_failed",
    "failed_generation": "The temperature and the seed; your API key is invalid, insufficient credit, flagged",
}
JSON_REQUEST = replace(REQUEST, answer_schema='{"type":"object"}')


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.02)


def act(status: int, body: Any) -> Any:
    return answer(status, json.dumps(body).encode())


GOOD = act(200, completion_body("{}", "{}"))


def sent_to(hostile: HostileTeacher) -> list[dict[str, Any]]:
    return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in hostile.requests]


@pytest.mark.parametrize("vendor", CONTENT_REFUSALS)
def test_a_text_that_a_filter_refuses_is_answered_with_nothing_once_and_teaches_nothing(vendor: str) -> None:
    with HostileTeacher(act(*CONTENT_REFUSALS[vendor])) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert [(choice.text, choice.finish_reason) for choice in completion.choices] == [("", "content_filter")] * 2
    assert (completion.usage, completion.wasted, len(hostile.requests)) == (Usage(), Usage(), 1)
    assert teacher.lessons == ()


def test_what_an_attempt_before_the_filters_refusal_may_have_cost_is_waste() -> None:
    with HostileTeacher(cut, act(*CONTENT_REFUSALS["openai"])) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert completion.wasted.output_tokens == REQUEST.most_output_tokens


@pytest.mark.parametrize(
    "message",
    [
        "Your account was flagged for violating our usage policies and is deactivated.",
        # Azure's, https://github.com/pollinations/pollinations/issues/9707
        "Your resource has been temporarily blocked because we detected behavior that may violate our content policy.",
    ],
)
def test_an_account_that_is_shut_out_is_no_text_that_a_filter_refuses(message: str) -> None:
    assert failure_at(act(403, {"error": {"message": message}})).fault is TeacherFault.NO_ACCESS


@pytest.mark.parametrize("name", ["flagged", "inappropriate_reason", "content_filter"])
def test_a_field_of_the_schema_with_a_filters_name_weakens_the_form_as_any_other(name: str) -> None:
    message = f"Invalid schema for response_format 'answer': In context=('properties', '{name}'), 'type' is required."
    with HostileTeacher(act(400, {"error": {"message": message, "param": "response_format"}}), GOOD) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(JSON_REQUEST, deadline_s=5)
        teacher.close()
    assert completion.choices[0].finish_reason != "content_filter"
    assert [lesson.option for lesson in teacher.lessons] == [Option.RESPONSE_FORMAT]


def test_texts_without_end_that_a_filter_refuses_are_an_endpoint_that_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(teacher_module, "MOST_REFUSED", 2)
    refused = act(*CONTENT_REFUSALS["openai"])
    with HostileTeacher(refused, refused, GOOD, refused) as hostile:
        teacher = teacher_at(hostile.base_url)
        reasons = [teacher.complete(REQUEST, deadline_s=5).choices[0].finish_reason for _ in range(5)]
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert [reason == "content_filter" for reason in reasons] == [True, True, False, True, True]
    assert caught.value.fault is TeacherFault.CONTENT


def test_a_customers_words_in_a_refusal_are_nobodys_fault() -> None:
    """https://openrouter.ai/docs/api/reference/errors-and-debugging"""
    metadata = {"reasons": ["violence"], "flagged_input": "API key not valid, insufficient credits"}
    error = {"code": 403, "message": "Your input was flagged", "metadata": metadata}
    assert fault_of(403, json.dumps({"error": error}).encode()) is TeacherFault.CONTENT


def complete_json(*script: Any) -> tuple[Completion, list[dict[str, Any]]]:
    with HostileTeacher(*script) as hostile:
        teacher = teacher_at(hostile.base_url, dialect=BY_NAME["groq"])
        completion = teacher.complete(JSON_REQUEST, deadline_s=5)
        teacher.close()
        assert teacher.lessons == ()
    return completion, sent_to(hostile)


def test_an_answer_that_is_withheld_because_it_is_no_json_is_written_again() -> None:
    completion, sent = complete_json(act(400, {"error": BROKEN_JSON}), GOOD)
    assert completion.wasted.output_tokens == REQUEST.most_output_tokens
    assert sent[0] == sent[1]


def test_after_two_such_answers_the_call_asks_for_no_form_and_the_next_one_does() -> None:
    broken = act(400, {"error": BROKEN_JSON})
    completion, sent = complete_json(broken, broken, GOOD)
    assert completion.n_attempts == 3
    assert [body.keys() - sent[2].keys() for body in sent] == [{"response_format"}, {"response_format"}, set()]


def test_a_model_that_writes_no_json_at_all_fails_and_may_be_asked_again() -> None:
    failed = failure_at(act(400, {"error": BROKEN_JSON}))
    assert (failed.code, failed.retryable, failed.fault) == ("teacher_protocol", True, None)
    assert failed.n_attempts == retry.MAX_BILLED_FAILURES


def test_a_schema_that_is_refused_weakens_the_calls_that_ask_for_it_and_no_other() -> None:
    invalid = {"message": "Invalid schema for response_format 'answer': 'additionalProperties' is required."}
    other = replace(JSON_REQUEST, answer_schema='{"type":"array"}')
    with HostileTeacher(act(400, {"error": invalid | {"param": "response_format"}}), GOOD) as hostile:
        teacher = teacher_at(hostile.base_url)
        for request in (JSON_REQUEST, JSON_REQUEST, other):
            teacher.complete(request, deadline_s=5)
        teacher.close()
    forms = [body["response_format"]["type"] for body in sent_to(hostile)]
    assert forms == ["json_schema", "json_object", "json_object", "json_schema"]
    assert [(lesson.option, lesson.value) for lesson in teacher.lessons] == [(Option.RESPONSE_FORMAT, "json_object")]


def test_what_another_call_learns_meanwhile_is_learnt_by_this_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both calls are on their way when the option is refused to the first: the second is refused for it as well."""
    refused = {"error": {"message": "Unsupported parameter: 'seed'", "param": "seed"}}
    with HostileTeacher(act(400, refused), GOOD) as hostile:
        teacher = teacher_at(hostile.base_url)
        post = teacher._post

        def post_beside_another(*asked: Any) -> Any:
            try:
                return post(*asked)
            finally:
                teacher.learn([Lesson(option=Option.SEED)])

        monkeypatch.setattr(teacher, "_post", post_beside_another)
        completion = teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert completion.n_attempts == 2
    assert ["seed" in body for body in sent_to(hostile)] == [True, False]
    assert teacher.lessons == (Lesson(option=Option.SEED),)


def test_a_prompt_that_fills_the_context_lowers_the_limit_of_its_own_call_alone() -> None:
    """vLLM's words."""
    message = (
        "'max_tokens' or 'max_completion_tokens' is too large: 20. This model's maximum context length is 4096 tokens "
        "and your request has 4090 input tokens (20 > 4096 - 4090)."
    )
    with HostileTeacher(act(400, {"error": {"message": message, "param": "max_tokens"}}), GOOD) as hostile:
        teacher = teacher_at(hostile.base_url)
        for _ in range(2):
            teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert [body["max_tokens"] for body in sent_to(hostile)] == [20, 6, 20]
    assert teacher.lessons == ()


def test_what_an_attempt_before_a_thought_may_have_cost_is_not_lost() -> None:
    thought = {"choices": [{"message": {"content": "", "reasoning": "hm"}, "finish_reason": "length"}]}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 5}}
    with HostileTeacher(cut, act(200, thought | {"usage": usage})) as hostile:
        teacher = teacher_at(hostile.base_url)
        with pytest.raises(TeacherFailed) as caught:
            teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    failed = caught.value
    assert (failed.code, failed.n_attempts) == ("teacher_only_thought", 2)
    assert failed.usage is not None
    assert (failed.usage.output_tokens, failed.usage.thought_tokens) == (REQUEST.most_output_tokens + 5, 5)


@pytest.mark.parametrize(("text", "is_thought"), [("", True), ("\n\n", True), ("  \n" + " \t " * 9, False)])
def test_white_space_up_to_the_limit_is_an_answer_and_no_thought(text: str, is_thought: bool) -> None:
    """llama-server's, before the first word of an answer that is held to a schema; vLLM's anywhere in one."""
    cut_at_limit = {"choices": [{"message": {"content": text}, "finish_reason": "length"}]}
    with HostileTeacher(act(200, cut_at_limit | {"usage": {"prompt_tokens": 9, "completion_tokens": 20}})) as hostile:
        teacher = teacher_at(hostile.base_url)
        with contextlib.suppress(TeacherFailed):
            assert teacher.complete(REQUEST, deadline_s=5).choices[0].text == text
        teacher.close()
    assert teacher.lessons == ((Lesson(option=Option.THOUGHTS),) if is_thought else ())


def test_a_filter_that_ended_a_thought_left_no_answer_and_is_no_lack_of_room() -> None:
    filtered = {"choices": [{"message": {"content": "", "reasoning": "hm"}, "finish_reason": "content_filter"}]}
    with HostileTeacher(act(200, filtered | {"usage": {"prompt_tokens": 9, "completion_tokens": 5}})) as hostile:
        teacher = teacher_at(hostile.base_url)
        completion = teacher.complete(REQUEST, deadline_s=5)
        teacher.close()
    assert [(choice.text, choice.finish_reason) for choice in completion.choices] == [("", "content_filter")]
    assert teacher.lessons == ()


def test_choices_that_a_server_refuses_at_temperature_0_are_asked_for_at_others_and_at_0_not_again() -> None:
    # vllm/sampling_params.py, as quoted in public sources
    refused = {"object": "error", "message": "n must be 1 when using greedy sampling, got 2.", "code": 400}
    greedy = replace(REQUEST, temperature=0.0)
    one, two = act(200, completion_body("one")), act(200, completion_body("one", "two"))
    with HostileTeacher(act(400, refused), one, two, one) as hostile:
        teacher = teacher_at(hostile.base_url)
        n_choices = [len(teacher.complete(request, deadline_s=5).choices) for request in (greedy, REQUEST, greedy)]
        teacher.close()
    assert n_choices == [1, 2, 1]
    assert [body.get("n") for body in sent_to(hostile)] == [2, None, 2, None]
    assert [lesson.sentence for lesson in teacher.lessons] == ["n: 1 at temperature 0"]
    assert lessons_from_json([lesson.to_json() for lesson in teacher.lessons]) == teacher.lessons
