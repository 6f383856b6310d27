"""Refusals that are about the token limit alone: it is lowered or renamed, and nothing else is left out."""

import json
from dataclasses import replace
from typing import Any

import pytest

from backend.domain.dialects.dialect import ONE_REQUEST, Lesson, Option, with_lessons
from tests.workers.teachers.hostile import HostileTeacher, answer
from tests.workers.teachers.openai_compatible.test_endpoint_faults import teacher_at
from tests.workers.teachers.openai_compatible.test_refusals import CAPS, EVERYTHING, RENAMED, REQUEST, openai
from tests.workers.teachers.openai_compatible.test_statements import sent_to
from tests.workers.teachers.openai_compatible.test_teacher import GOOD
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST as SHORT
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.openai_compatible.refusals import lesson_of
from workers.teachers.openai_compatible.token_limits import LEAST_LIMIT

ASKED = 20_000
# (where it was reported, body with our limit, what is left for the answer)
BESIDE_A_PROMPT = [
    (
        "github.com/evalstate/fast-agent/issues/621: OpenAI, DeepSeek, an older vLLM",
        openai(
            "This model's maximum context length is 32768 tokens. However, you requested 33768 tokens (13768 in the "
            "messages, 20000 in the completion). Please reduce the length of the messages or completion."
        ),
        19_000,
    ),
    (
        "github.com/run-llama/llama_index/issues/948: OpenAI, llama-cpp-python",
        openai(
            "This model's maximum context length is 20097 tokens, however you requested 23860 tokens (3860 in your "
            "prompt; 20000 for the completion). Please reduce your prompt; or completion length."
        ),
        16_237,
    ),
    (
        "github.com/evalstate/fast-agent/issues/621, with functions, which count too",
        openai(
            "This model's maximum context length is 20097 tokens. However, you requested 20201 tokens (100 in the "
            "messages, 101 in the functions, 20000 in the completion). Please reduce the length of the messages, "
            "functions, or completion."
        ),
        19_896,
    ),
    (
        "github.com/OpenHands/OpenHands/issues/9937: OpenRouter",
        openai(
            "This endpoint's maximum context length is 24072 tokens. However, you requested about 27884 tokens (7884 "
            'of text input, 20000 in the output). Please reduce the length of either one, or use the "middle-out" '
            "transform to compress your prompt automatically."
        ),
        16_188,
    ),
    (
        "github.com/anomalyco/opencode/pull/25230: SGLang",
        openai(
            "Requested token count exceeds the model's maximum context length of 20192 tokens. You requested a total "
            "of 21000 tokens: 1000 tokens from the input messages and 20000 tokens for the completion. Please reduce "
            "the number of tokens in the input messages or the completion to fit within the limit."
        ),
        19_192,
    ),
    (
        "github.com/huggingface/chat-ui/issues/340: text-generation-inference, Together",
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 1000 `inputs` "
            "tokens and 20000 `max_new_tokens`",
            "error_type": "validation",
        },
        7_193,
    ),
    (
        "github.com/continuedev/continue/issues/6080: Anthropic",
        openai(
            "input length and `max_tokens` exceed context limit: 195000 + 20000 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
        5_000,
    ),
    (
        "a newer vLLM, from memory",
        openai(
            "You passed 97 input tokens and requested 20000 output tokens. However, the model's context length is only "
            "4096 tokens, resulting in a maximum input length of 0 tokens. Please reduce the length of the input "
            "prompt or the number of requested output tokens. (parameter=input_tokens, value=97)"
        ),
        3_999,
    ),
    (
        "a Cerebras client's log, from memory",
        openai(
            "Please reduce the length of the messages or completion. Current length is 20232 while limit is 8192",
            "messages",
            "context_length_exceeded",
        ),
        7_960,
    ),
    ("Moonshot, from memory", openai("Invalid request: Your request exceeded model token limit: 8192"), 10_000),
    ("a limit of the context", openai("max_tokens (20000) exceeds the model's context length 8192"), 10_000),
    ("no numbers", openai("This request exceeds the model's context window.", "messages"), 10_000),
    ("no input", openai("The maximum context length is 8,192 tokens", "messages", "context_length_exceeded"), 10_000),
    ("an older llama-server, from memory", openai("the request exceeds the available context size."), 10_000),
    (
        "within what a gateway passes on",
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps(openai("prompt (100 tokens) + max_tokens exceed the context size of 4096 tokens"))
                },
            }
        },
        3_996,
    ),
]


@pytest.mark.parametrize("dialect", [EVERYTHING, RENAMED], ids=["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("source", "body", "left"), BESIDE_A_PROMPT, ids=[row[0] for row in BESIDE_A_PROMPT])
def test_an_answer_that_does_not_fit_beside_its_prompt_is_shortened_for_this_request_alone(
    source: str, body: Any, left: int, dialect: Any
) -> None:
    sent = chat_body(REQUEST, "m", CAPS, dialect)
    lesson = lesson_of(400, json.dumps(body).encode(), sent, dialect)
    assert lesson == Lesson(option=Option.TOKEN_LIMIT, value=left, scope=ONE_REQUEST)


PROMPT_ALONE = [
    # github.com/smol-ai/developer/issues/7
    "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens. Please reduce "
    "the length of the messages.",
    # github.com/fierceX/Document_QA/issues/3
    "This model's maximum context length is 8191 tokens, however you requested 8238 tokens (8238 in your prompt; 0 for "
    "the completion). Please reduce your prompt; or completion length.",
    # github.com/stackblitz/bolt.new/issues/2449
    "prompt is too long: 202095 tokens > 200000 maximum",
    # github.com/sgl-project/sglang/issues/4048
    "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    # github.com/QwenLM/Qwen3/issues/1321
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "request (4096 tokens) exceeds the available context size (2048 tokens), try increasing it",
    # from memory: Mistral, Google, text-generation-inference
    "Prompt contains 33000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    # from memory: xAI, Zhipu, DashScope, Fireworks, Bedrock, LM Studio
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
    "Prompt exceeds max length",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "The prompt is too long: 200000, model maximum context length: 131072",
    "Input is too long for requested model.",
    "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length "
    "of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a "
    "shorter input",
    "input length and `max_tokens` exceed context limit: 205000 + 20000 > 200000, decrease input length",
]


@pytest.mark.parametrize("message", PROMPT_ALONE)
def test_a_prompt_that_is_too_long_by_itself_teaches_nothing(message: str) -> None:
    sent = chat_body(REQUEST, "m", CAPS, EVERYTHING)
    assert lesson_of(400, json.dumps(openai(message)).encode(), sent, EVERYTHING) is None


CAPPED = [
    # github.com/BerriAI/litellm/pull/15715
    ("max_tokens: 20000 > 8192, which is the maximum allowed number of output tokens for claude-sonnet-4-5", 8192),
    # github.com/vercel/ai/issues/2772
    (
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that "
        "is lower than 4096.",
        4096,
    ),
    # github.com/open-webui/open-webui/issues/10507
    ("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8192),
    # from memory: OpenAI, Cohere, Google, pydantic
    ("max_tokens is too large: 20000. This model supports at most 16384 completion tokens.", 16_384),
    ("too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model", 4096),
    (
        "Unable to submit request because it has a maxOutputTokens value of 20000 but the supported range is from 1 "
        "(inclusive) to 8193 (exclusive). Update the value and try again.",
        8192,
    ),
    ("max_new_tokens: Input should be less than or equal to 4096", 4096),
    ("max_output_tokens cannot exceed 4096", 4096),
    ("max_tokens must be less than 4097", 4096),
]


@pytest.mark.parametrize("dialect", [EVERYTHING, RENAMED], ids=["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("message", "most"), CAPPED)
def test_a_cap_is_kept_to_under_whatever_name_it_is_stated(message: str, most: int, dialect: Any) -> None:
    sent = chat_body(REQUEST, "m", CAPS, dialect)
    lesson = lesson_of(400, json.dumps(openai(message)).encode(), sent, dialect)
    assert lesson == Lesson(option=Option.TOKEN_LIMIT, value=most)


@pytest.mark.parametrize(
    ("message", "first"),
    [
        ("max_tokens is too large", 10_000),
        ("Unsupported parameter: max_tokens", "max_completion_tokens"),
        ("Invalid max_tokens", "max_completion_tokens"),
    ],
)
def test_a_limit_is_left_out_after_its_other_name_and_a_lower_number_were_refused_and_nothing_else_is(
    message: str, first: int | str
) -> None:
    dialect, known = EVERYTHING, list[Lesson]()
    while Option.TOKEN_LIMIT not in {lesson.option for lesson in known if lesson.value is None}:
        sent = chat_body(REQUEST, "m", CAPS, dialect)
        lesson = lesson_of(400, json.dumps(openai(message)).encode(), sent, dialect, known)
        assert lesson is not None
        known.append(lesson)
        dialect = with_lessons(EVERYTHING, known)
    assert known[0].value == first
    assert {lesson.option for lesson in known} == {Option.TOKEN_LIMIT}
    values = [lesson.value for lesson in known]
    assert "max_completion_tokens" in values
    assert min(value for value in values if isinstance(value, int)) < ASKED
    assert set(chat_body(REQUEST, "m", CAPS, EVERYTHING)) - set(chat_body(REQUEST, "m", CAPS, dialect)) == {
        "max_tokens"
    }


def test_an_answer_is_not_shortened_until_nothing_is_left_of_it() -> None:
    dialect, known = EVERYTHING, list[Lesson]()
    request = replace(REQUEST, max_tokens=100)
    while lesson := lesson_of(400, b"context window exceeded", chat_body(request, "m", CAPS, dialect), dialect, known):
        known.append(lesson)
        dialect = with_lessons(EVERYTHING, known)
    assert [lesson.value for lesson in known] == [50, 25]
    assert LEAST_LIMIT > 25 // 2


def test_a_call_whose_answer_does_not_fit_is_answered_and_the_next_one_asks_for_as_much_as_it_wants() -> None:
    too_long = openai(
        "This model's maximum context length is 30 tokens. However, you requested 35 tokens (15 in the messages, 20 in "
        "the completion). Please reduce the length of the messages or completion."
    )
    refused = answer(400, json.dumps(too_long).encode())
    with HostileTeacher(refused, GOOD) as hostile:
        teacher = teacher_at(hostile.base_url)
        teacher.complete(SHORT, deadline_s=5)
        teacher.complete(SHORT, deadline_s=5)
        teacher.close()
    bodies = sent_to(hostile)
    assert [body.pop("max_tokens") for body in bodies] == [20, 15, 20]
    assert bodies[0] == bodies[1] == bodies[2]
    assert teacher.lessons == ()
