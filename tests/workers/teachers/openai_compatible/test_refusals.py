"""What refusals teach: bodies that vendors and servers sent, as they were reported, each with the page it is from."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.dialects.dialect import (
    GREEDY,
    ONE_REQUEST,
    Dialect,
    Lesson,
    Option,
    ResponseFormat,
    schema_digest,
    with_lessons,
)
from backend.domain.dialects.table import BY_NAME, UNKNOWN
from tests.workers.teachers.strict_vendors import CONTENT_REFUSALS
from workers.teachers.openai_compatible.bodies import chat_body
from workers.teachers.openai_compatible.refusals import LEARNT_FROM, lesson_of
from workers.teachers.openai_compatible.teacher import MAX_LESSONS_A_CALL
from workers.teachers.protocol import CompletionRequest, Message, TeacherCaps

REQUEST = CompletionRequest(
    messages=(Message(role="system", content="s"), Message(role="user", content="u")),
    n=8,
    temperature=1.4,
    top_p=0.9,
    top_k=5,
    seed=7,
    max_tokens=20_000,
    effort="low",
    logprobs=True,
    top_logprobs=25,
    cache_key="k",
    answer_schema='{"type":"object"}',
)
CAPS = TeacherCaps(logprobs=True, max_top_logprobs=100)
EVERYTHING = replace(UNKNOWN, takes=frozenset(Option), max_top_logprobs=100)
RENAMED = with_lessons(EVERYTHING, [Lesson(option=Option.TOKEN_LIMIT, value="max_completion_tokens")])


def openai(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def google(message: str) -> list[dict[str, Any]]:
    violation = {"fieldViolations": [{"description": message}]}
    return [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "details": [violation]}}]


def forbidden(*loc: Any) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": list(loc), "msg": "Extra inputs are not permitted", "input": 7}


# (where it was reported, status, body, option, value)
REPORTED = [
    (
        "github.com/fish2018/YPrompt/issues/26",
        400,
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        ),
        Option.TOKEN_LIMIT,
        "max_completion_tokens",
    ),
    (
        "github.com/diffbot/code-gpt-docs/issues/445",
        400,
        openai(
            "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is "
            "supported.",
            "temperature",
            "unsupported_value",
        ),
        Option.TEMPERATURE,
        None,
    ),
    (
        "github.com/appatalks/eva-agent/issues/83",
        400,
        openai("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        Option.TEMPERATURE,
        None,
    ),
    (
        "github.com/AAswordman/Operit/issues/1048",
        400,
        openai("Unrecognized request argument supplied: reasoning_effort"),
        Option.EFFORT,
        None,
    ),
    (
        "github.com/run-llama/llama_index/issues/17731",
        400,
        openai("Unknown parameter: 'reasoning_effort'.", "reasoning_effort", "unknown_parameter"),
        Option.EFFORT,
        None,
    ),
    (
        "github.com/egoist/chatwise-releases/issues/1257",
        400,
        openai(
            "Unsupported value: 'reasoning_effort' does not support 'low' with this model. Supported values are: "
            "'medium'.",
            "reasoning_effort",
            "unsupported_value",
        ),
        Option.EFFORT,
        "medium",
    ),
    (
        "github.com/thisisartium/continuous-alignment-testing/issues/25, with our n",
        400,
        openai("Invalid 'n': integer above maximum value. Expected a value <= 4, but got 8 instead.", "n"),
        Option.N,
        4,
    ),
    (
        "github.com/ultimatejimmy/xray.koplugin/issues/33",
        400,
        openai(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            "messages",
        ),
        Option.RESPONSE_FORMAT,
        "json_object",
    ),
    (
        "github.com/moeru-ai/xsai/issues/202",
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps(
                        openai(
                            "Invalid schema for response_format 'json_schema': In context=('properties', 'etymology'), "
                            "'additionalProperties' is required to be supplied and to be false.",
                            "response_format",
                        )
                    ),
                    "provider_name": "Azure",
                },
            },
            "user_id": "X",
        },
        Option.RESPONSE_FORMAT,
        "json_object",
    ),
    (
        "github.com/spring-projects/spring-ai/issues/5016",
        400,
        openai("The deployment doesn't support logprobs request parameter.", code="422"),
        Option.LOGPROBS,
        None,
    ),
    (
        "github.com/openai/openai-python/issues/1080",
        400,
        openai("This model does not support the 'logprobs' parameter.", "logprobs"),
        Option.LOGPROBS,
        None,
    ),
    (
        "github.com/caozhiyuan/copilot-api/issues/164",
        400,
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                "code": "invalid_request_body",
            }
        },
        Option.TOKEN_LIMIT,
        "max_completion_tokens",
    ),
    (
        "github.com/tailcallhq/forgecode/issues/1177",
        400,
        openai("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "messages[0].role"),
        Option.SYSTEM_ROLE,
        None,
    ),
    (
        "github.com/partITech/php-mistral/issues/76, with our field",
        422,
        {"object": "Error", "detail": [forbidden("body", "seed")], "message": [forbidden("body", "seed")]},
        Option.SEED,
        None,
    ),
    (
        "github.com/mistralai/platform-docs-public/issues/7, with our field",
        422,
        {"object": "error", "message": json.dumps({"detail": [forbidden("body", "logprobs")]}), "param": None},
        Option.LOGPROBS,
        None,
    ),
    ("console.groq.com/docs/openai", 400, openai("property 'logprobs' is unsupported"), Option.LOGPROBS, None),
    (
        "github.com/CherryHQ/cherry-studio/issues/1099",
        400,
        openai("property 'reasoning_effort' is unsupported, did you mean 'reasoning_format'?"),
        Option.EFFORT,
        None,
    ),
    (
        "github.com/Alishahryar1/free-claude-code/issues/1348",
        400,
        openai("`reasoning_effort` must be one of `none` or `default`"),
        Option.EFFORT,
        "none",
    ),
    ("a Groq client's log", 400, openai("'n' : number must be at most 1"), Option.N, 1),
    (
        "github.com/n4ze3m/page-assist/issues/418, with our field",
        400,
        google('Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
        Option.SEED,
        None,
    ),
    (
        "github.com/MinLL/SkyrimNet-GamePlugin/issues/77, shortened",
        400,
        google(
            'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot find field.\n'
            'Invalid JSON payload received. Unknown name "top_k": Cannot find field.'
        ),
        Option.TOP_K,
        None,
    ),
    ("a Gemini client's log", 400, google("Multiple candidates is not enabled for this model"), Option.N, None),
    (
        "a Gemini client's log, 2025",
        400,
        google("Only one candidate can be specified in the current model"),
        Option.N,
        1,
    ),
    (
        "a Gemini client's log, 2026",
        400,
        google("Budget 0 is invalid. This model only works in thinking mode."),
        Option.EFFORT,
        None,
    ),
    (
        "github.com/crewAIInc/crewAI/issues/5990",
        400,
        openai("This response_format type is unavailable now", code="invalid_request_error"),
        Option.RESPONSE_FORMAT,
        "json_object",
    ),
    (
        "a DeepSeek client's log",
        400,
        openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        Option.TOKEN_LIMIT,
        8192,
    ),
    (
        "github.com/ltmoerdani/opencode-copilot-chat/issues/20",
        400,
        {"message": "temperature is deprecated for this model."},
        Option.TEMPERATURE,
        None,
    ),
    (
        "github.com/anthropics/claude-code/issues/30010",
        400,
        {"type": "error", "error": {"message": "This model does not support the effort parameter."}},
        Option.EFFORT,
        None,
    ),
    (
        "github.com/BerriAI/litellm/pull/16265",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "Model grok-4-latest does not support parameter reasoningEffort.",
        },
        Option.EFFORT,
        None,
    ),
    (
        "github.com/block/buzz/issues/3018",
        404,
        {"error": {"message": "No endpoints found that can handle the requested parameters.", "code": 404}},
        Option.CACHE_KEY,
        None,
    ),
    (
        "an OpenRouter client's log",
        400,
        {"error": {"message": "Reasoning is mandatory for this endpoint and cannot be disabled.", "code": 400}},
        Option.EFFORT,
        None,
    ),
    (
        "github.com/vercel/ai/pull/18306",
        400,
        {"error": "Extra inputs are not permitted, field: 'promptCacheKey', value: 'k'"},
        Option.CACHE_KEY,
        None,
    ),
    (
        "github.com/mozilla-ai/any-llm/issues/714: names nothing",
        400,
        {"message": "Input validation error", "type_": "invalid_request_error"},
        Option.CACHE_KEY,
        None,
    ),
    (
        "github.com/LoadShine/tada/issues/16",
        400,
        {"error": "'response_format.type' must be 'json_schema' or 'text'"},
        Option.RESPONSE_FORMAT,
        "json_object",
    ),
    (
        "github.com/ollama/ollama/issues/12561",
        400,
        openai('think value "low" is not supported for this model'),
        Option.EFFORT,
        None,
    ),
    (
        "github.com/vllm-project/vllm/issues/3657, with our field",
        400,
        {"object": "error", "message": "[{'type': 'extra_forbidden', 'loc': ('body', 'top_k'), 'input': 5}]"},
        Option.TOP_K,
        None,
    ),
    (
        "a conformance test against vLLM",
        400,
        openai(
            "Requested sample logprobs of 25, which is greater than max allowed: 20 (parameter=logprobs, value=25)",
            "logprobs",
        ),
        Option.TOP_LOGPROBS,
        20,
    ),
    (
        "llama-server of llama-cpp-python 0.3.36, six asked of four slots",
        400,
        {
            "error": {
                "code": 400,
                "message": "Field 'n': Value must be between 1 <= value <= 4, but got 6",
                "type": "invalid_request_error",
            }
        },
        Option.N,
        4,
    ),
    (
        "transformers 5.19 serve",
        422,
        {"detail": "Unexpected fields in the request: {'top_k'}"},
        Option.TOP_K,
        None,
    ),
    (
        "transformers serve",
        422,
        {"detail": "Unsupported fields in the request: {'response_format'}"},
        Option.RESPONSE_FORMAT,
        "json_object",
    ),
    (
        "github.com/ai-dynamo/dynamo/pull/4021, with our field",
        400,
        {"message": "Unsupported parameter(s): `seed`", "type": "Bad Request", "code": 400},
        Option.SEED,
        None,
    ),
    (
        "an old llama-server",
        500,
        {"error": {"code": 500, "message": "Only one completion choice is allowed", "type": "server_error"}},
        Option.N,
        1,
    ),
    (
        "a Bedrock client's log",
        400,
        {
            "message": "Malformed input request: #: extraneous key [max_tokens] is not permitted, please reformat your "
            "input and try again."
        },
        Option.TOKEN_LIMIT,
        "max_completion_tokens",
    ),
]


@pytest.mark.parametrize(("source", "status", "body", "option", "value"), REPORTED, ids=[row[0] for row in REPORTED])
def test_a_reported_refusal_teaches_what_to_send_instead(
    source: str, status: int, body: Any, option: Option, value: str | int | None
) -> None:
    sent = chat_body(REQUEST, "m", CAPS, EVERYTHING)
    lesson = lesson_of(status, json.dumps(body).encode(), sent, EVERYTHING)
    assert lesson is not None
    assert (lesson.option, lesson.value) == (option, value)
    is_about_the_schema = "Invalid schema" in json.dumps(body)
    assert lesson.scope == (schema_digest({"type": "object"}) if is_about_the_schema else "")


def test_a_cap_of_the_limit_is_kept_to_and_not_taken_for_a_name() -> None:
    """github.com/Alishahryar1/free-claude-code/issues/1354"""
    said = openai(
        "`max_completion_tokens` must be less than or equal to `16384`, the maximum value for `max_completion_tokens` "
        "is less than the `context_window` for this model",
        "max_completion_tokens",
    )
    sent = chat_body(REQUEST, "m", CAPS, RENAMED)
    lesson = lesson_of(400, json.dumps(said).encode(), sent, RENAMED)
    assert lesson == Lesson(option=Option.TOKEN_LIMIT, value=16_384)


def test_a_limit_beyond_the_context_is_lowered_to_what_is_left() -> None:
    said = openai(
        "'max_tokens' or 'max_completion_tokens' is too large: 20000. This model's maximum context length is 4096 "
        "tokens and your request has 96 input tokens (20000 > 4096 - 96)."
    )
    lesson = lesson_of(400, json.dumps(said).encode(), chat_body(REQUEST, "m", CAPS, EVERYTHING), EVERYTHING)
    assert lesson == Lesson(option=Option.TOKEN_LIMIT, value=4000, scope=ONE_REQUEST)


ABOUT_SOMETHING_ELSE = [
    (400, openai("Incorrect API key provided", code="invalid_api_key")),
    (400, openai("This model's maximum context length is 4096 tokens. Please reduce the length of the messages.")),
    (400, openai("The response was filtered due to the prompt triggering content filter", code="content_filter")),
    (404, openai("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found")),
    (400, openai("The model 'openai.gpt-5.6-luna' does not support the '/v1/chat/completions' API")),
    (400, openai("You exceeded your current quota")),
    (400, openai("request (4096 tokens) exceeds the available context size (2048 tokens), try increasing it")),
    (400, {"detail": "Server is pinned to '/models/gemma'; requested 'gpt-9'."}),
    (401, openai("Unsupported parameter: 'seed'", "seed")),
    (429, openai("Unsupported parameter: 'seed'", "seed")),
    *CONTENT_REFUSALS.values(),
    # what the model wrote is nothing that the endpoint says of the request
    (400, {"error": {"code": "json_validate_failed", "failed_generation": "the 'seed' and temperature"}}),
    (500, openai("logprobs: out of memory")),
    (503, openai("Only one completion choice is allowed")),
]


@pytest.mark.parametrize(("status", "body"), ABOUT_SOMETHING_ELSE)
def test_a_refusal_about_something_else_teaches_nothing(status: int, body: Any) -> None:
    sent = chat_body(REQUEST, "m", CAPS, EVERYTHING)
    assert lesson_of(status, json.dumps(body).encode(), sent, EVERYTHING) is None


def test_a_refusal_that_names_nothing_ends_with_the_bare_request_and_then_gives_up() -> None:
    dialect, known = EVERYTHING, []
    for _ in range(30):
        sent = chat_body(REQUEST, "m", CAPS, dialect)
        lesson = lesson_of(400, b"Bad Request", sent, dialect, known)
        if lesson is None:
            break
        known.append(lesson)
        dialect = with_lessons(EVERYTHING, known)
    assert set(sent) == {"model", "messages"}
    assert [message["role"] for message in sent["messages"]] == ["user"]


SHARED = Message(role="user", content="task: input", n_shared=5)


@pytest.mark.parametrize("name", BY_NAME)
def test_whatever_a_dialect_sends_can_be_left_out_also_what_turns_thoughts_off(name: str) -> None:
    request = replace(REQUEST, effort="none", messages=(REQUEST.messages[0], SHARED))
    dialect, known = BY_NAME[name], []
    for _ in range(MAX_LESSONS_A_CALL + 1):
        sent = chat_body(request, "m", CAPS, dialect)
        lesson = lesson_of(400, b"Bad Request", sent, dialect, known)
        if lesson is None:
            break
        known.append(lesson)
        dialect = with_lessons(BY_NAME[name], known)
    assert set(sent) == {"model", "messages"}
    assert [(message["role"], type(message["content"])) for message in sent["messages"]] == [("user", str)]


def test_the_switch_that_turns_thoughts_off_is_known_by_what_the_server_calls_it() -> None:
    """vLLM with a tokenizer of Mistral's."""
    sent = chat_body(replace(REQUEST, effort="none"), "m", CAPS, BY_NAME["vllm"])
    refused = openai("chat_template is not supported for Mistral tokenizers.")
    assert lesson_of(400, json.dumps(refused).encode(), sent, BY_NAME["vllm"]) == Lesson(option=Option.EFFORT)


def test_a_mark_in_a_message_that_is_refused_is_left_out() -> None:
    dialect = BY_NAME["openrouter-breakpoints"]
    sent = chat_body(replace(REQUEST, messages=(SHARED,)), "m", CAPS, dialect)
    refused = openai("messages.0.content.0.cache_control: Extra inputs are not permitted")
    lesson = lesson_of(400, json.dumps(refused).encode(), sent, dialect)
    assert lesson == Lesson(option=Option.BREAKPOINTS)
    assert chat_body(replace(REQUEST, messages=(SHARED,)), "m", CAPS, with_lessons(dialect, [lesson]))["messages"] == [
        {"role": "user", "content": "task: input"}
    ]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["seed", "n", "<= 3", "max_tokens"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "param", "detail", "loc", "raw"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    raw=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()),
    status=st.sampled_from(sorted(LEARNT_FROM)),
    name=st.sampled_from(sorted(BY_NAME)),
)
def test_whatever_a_refusal_says_less_is_sent_and_an_end_is_reached(raw: bytes, status: int, name: str) -> None:
    """Hostile bodies: each lesson takes something away or lowers it, so that there is a last one."""
    start: Dialect = BY_NAME[name]
    dialect, known = start, []
    for _ in range(40):
        sent = chat_body(REQUEST, "m", CAPS, dialect)
        lesson = lesson_of(status, raw, sent, dialect, known)
        if lesson is None:
            return
        assert lesson not in known
        known.append(lesson)
        dialect = with_lessons(start, known)
        assert dialect.takes <= start.takes
        assert dialect.max_n <= start.max_n
        assert ResponseFormat(dialect.response_format)
    raise AssertionError(known)


GREEDY_REQUEST = replace(REQUEST, temperature=0.0)
AT_TEMPERATURE_0 = [
    # vllm/sampling_params.py, as quoted in public sources
    ("n must be 1 when using greedy sampling, got 8.", Lesson(option=Option.N, value=1, scope=GREEDY)),
    # github.com/EricLBuehler/candle-vllm/issues/307
    (
        "top_p must be 1 when using greedy sampling (no temperature specified)",
        Lesson(option=Option.TOP_P, scope=GREEDY),
    ),
    # from memory: text-generation-inference and a gateway
    (
        "Input validation error: `temperature` must be strictly positive",
        Lesson(option=Option.TEMPERATURE, scope=GREEDY),
    ),
    ("temperature must be > 0 when n > 1", Lesson(option=Option.N, value=1, scope=GREEDY)),
]


@pytest.mark.parametrize(("message", "lesson"), AT_TEMPERATURE_0)
def test_what_is_refused_at_temperature_0_is_sent_at_others(message: str, lesson: Lesson) -> None:
    sent = chat_body(GREEDY_REQUEST, "m", CAPS, EVERYTHING)
    assert lesson_of(400, json.dumps(openai(message)).encode(), sent, EVERYTHING) == lesson


# what two options are not taken together, and which of them goes
TOGETHER = [
    # github.com/aws-samples/bedrock-access-gateway/issues/191
    ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", Option.TOP_P),
    # github.com/anomalyco/opencode/issues/28930
    (
        "Error from provider (Anthropic): `temperature` and `top_p` cannot both be specified for this model.",
        Option.TOP_P,
    ),
    # from memory
    ("temperature and top_k are mutually exclusive", Option.TOP_K),
    ("response_format cannot be used together with logprobs", Option.LOGPROBS),
]


@pytest.mark.parametrize(("message", "option"), TOGETHER)
def test_of_two_options_that_are_not_taken_together_goes_what_an_answer_needs_less(
    message: str, option: Option
) -> None:
    request = replace(REQUEST, top_logprobs=0)
    sent = chat_body(request, "m", CAPS, EVERYTHING)
    assert lesson_of(400, json.dumps(openai(message)).encode(), sent, EVERYTHING) == Lesson(option=option)


# from memory: what is not taken is named by what it does
NAMED_OTHERWISE = [
    ("This model does not support structured outputs.", Option.RESPONSE_FORMAT),
    ("JSON mode is not enabled for this model", Option.RESPONSE_FORMAT),
    ("guided decoding is not available with this backend", Option.RESPONSE_FORMAT),
    ("Log probabilities are not available for this model", Option.LOGPROBS),
    ("Prompt caching is not enabled for this account", Option.CACHE_KEY),
]


@pytest.mark.parametrize(("message", "option"), NAMED_OTHERWISE)
def test_what_a_refusal_names_in_other_words_is_left_out_first(message: str, option: Option) -> None:
    sent = chat_body(REQUEST, "m", CAPS, EVERYTHING)
    lesson = lesson_of(400, json.dumps(openai(message)).encode(), sent, EVERYTHING)
    assert lesson is not None
    assert (lesson.option, lesson.is_guess) == (option, False)
