"""What is sent, field by field: nothing that a server might not know, unless it said that it does."""

import json
from dataclasses import replace

import pytest

from backend.domain.dialects.dialect import Lesson, Option, ResponseFormat, with_lessons
from backend.domain.dialects.table import BY_NAME, UNKNOWN
from workers.teachers.openai_compatible.bodies import chat_body, echo_body
from workers.teachers.protocol import CompletionRequest, Message, ScoreRequest, TeacherCaps

MESSAGES = (Message(role="system", content="s"), Message(role="user", content="u"))
FULL = CompletionRequest(
    messages=MESSAGES, logprobs=True, top_logprobs=30, top_k=5, prefix="be", drafts=("a", "ü"), cache_salt="t", seed=1
)
ALL = TeacherCaps(logprobs=True, prompt_logprobs=True, prefix=True, engine_drafts=True, max_top_logprobs=20)


def test_a_plain_request_has_openais_fields_alone() -> None:
    body = chat_body(CompletionRequest(messages=MESSAGES, n=2, top_p=0.9), "m", ALL, UNKNOWN)
    assert set(body) == {"model", "messages", "n", "temperature", "top_p", "max_tokens"}


def test_what_would_be_sent_at_its_default_is_left_out() -> None:
    assert not {"n", "top_p", "seed"} & set(chat_body(CompletionRequest(messages=MESSAGES), "m", ALL, UNKNOWN))


def test_an_engine_gets_the_begun_answer_the_drafts_and_the_salt() -> None:
    body = chat_body(FULL, "m", ALL, BY_NAME["vllm"])
    assert body["messages"][-1] == {"role": "assistant", "content": "be"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["logprobs"], body["top_logprobs"], body["top_k"]) == (True, 20, 5)
    assert body["cache_salt"] == "t"
    assert json.loads(body["vllm_xargs"]["kolm_drafts"]) == ["a", "ü"]


def test_a_vendor_gets_neither_drafts_nor_the_salt() -> None:
    body = chat_body(FULL, "m", TeacherCaps(logprobs=True), UNKNOWN)
    assert not {"cache_salt", "vllm_xargs", "top_logprobs"} & set(body)
    assert body["logprobs"] is True


def test_a_score_asks_for_no_token_and_as_many_alternatives_as_there_are() -> None:
    body = echo_body(ScoreRequest(messages=MESSAGES, text="x", top_logprobs=30, top_k=5), "m", ALL)
    assert body["prompt"] == "s\n\nu\n\nx"
    assert (body["max_tokens"], body["echo"], body["logprobs"], body["top_k"]) == (0, True, 20, 5)


RICH = CompletionRequest(
    messages=(Message(role="system", content="rules"), Message(role="user", content="task: input", n_shared=6)),
    n=5,
    temperature=1.8,
    top_p=0.9,
    top_k=4,
    seed=7,
    max_tokens=30,
    thought_tokens=1000,
    effort="minimal",
    logprobs=True,
    cache_key="k",
    answer_schema='{"type":"object"}',
)
TELLS = TeacherCaps(logprobs=True)
ANTHROPIC = BY_NAME["anthropic"]


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_no_dialect_is_sent_what_it_does_not_take(name: str) -> None:
    dialect = BY_NAME[name]
    body = chat_body(RICH, "m", TELLS, dialect)
    fields = {
        Option.TEMPERATURE: "temperature",
        Option.TOP_P: "top_p",
        Option.TOP_K: "top_k",
        Option.DO_SAMPLE: "generation_config",
        Option.N: "n",
        Option.SEED: dialect.seed,
        Option.LOGPROBS: "logprobs",
        Option.CACHE_KEY: "prompt_cache_key",
    }
    for option, field in fields.items():
        assert (field in body) == (option in dialect.takes), option
    assert body.get("n", 1) <= dialect.max_n
    assert body.get("temperature", 0) <= dialect.max_temperature
    assert body[dialect.token_limit] == 1030
    told = "tool" if "tools" in body else body.get("response_format", {}).get("type", "text")
    assert told == (dialect.response_format if Option.RESPONSE_FORMAT in dialect.takes else "text")


def test_a_reasoning_model_of_openai_gets_its_limit_and_effort_and_no_temperature() -> None:
    body = chat_body(RICH, "gpt-5-mini", TELLS, BY_NAME["openai-reasoning"])
    assert (body["max_completion_tokens"], body["reasoning_effort"], body["n"]) == (1030, "minimal", 5)
    assert not {"max_tokens", "temperature", "top_p", "logprobs", "top_k"} & set(body)


@pytest.mark.parametrize(
    ("dialect", "asked", "sent"),
    [
        ("mistral", "medium", "high"),
        ("mistral", "none", "none"),
        ("gemini", "xhigh", "high"),
        ("fireworks", "minimal", "low"),
        ("xai", "xhigh", "high"),
        ("ollama", "xhigh", "high"),
        ("deepseek", "minimal", "low"),
        ("deepseek", "medium", "low"),
        ("deepseek", "xhigh", "high"),
        ("groq-reasoning", "none", "low"),
        ("openai-compatible", "xhigh", "xhigh"),
    ],
)
def test_an_effort_that_a_dialect_has_not_becomes_the_nearest(dialect: str, asked: str, sent: str) -> None:
    body = chat_body(replace(RICH, effort=asked), "m", TELLS, BY_NAME[dialect])
    assert body["reasoning_effort"] == sent


def test_thoughts_are_turned_off_only_where_that_is_asked_and_by_the_dialects_own_switch() -> None:
    off = chat_body(replace(RICH, effort="none"), "m", TELLS, BY_NAME["deepseek"])
    assert off["thinking"] == {"type": "disabled"}
    assert "reasoning_effort" not in off
    nested = chat_body(RICH, "m", TELLS, BY_NAME["openrouter"])
    assert nested["reasoning"] == {"effort": "minimal"}
    only_none = replace(UNKNOWN, efforts=("none",))
    assert "reasoning_effort" not in chat_body(RICH, "m", TELLS, only_none)


def test_transformers_is_asked_to_draw_where_a_temperature_is() -> None:
    body = chat_body(RICH, "m", TELLS, BY_NAME["transformers"])
    assert json.loads(body["generation_config"]) == {"do_sample": True}
    greedy = chat_body(replace(RICH, temperature=0.0), "m", TELLS, BY_NAME["transformers"])
    assert "generation_config" not in greedy


def test_a_seed_goes_under_the_vendors_name() -> None:
    body = chat_body(RICH, "m", TELLS, BY_NAME["mistral"])
    assert (body["random_seed"], body["temperature"], "seed" in body) == (7, 1.5, False)


def test_an_answer_is_held_to_its_schema_as_far_as_the_dialect_can() -> None:
    schema = chat_body(RICH, "m", TELLS, UNKNOWN)["response_format"]
    assert schema == {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    weaker = replace(UNKNOWN, response_format=ResponseFormat.OBJECT)
    assert chat_body(RICH, "m", TELLS, weaker)["response_format"] == {"type": "json_object"}


def test_where_a_tool_is_the_form_one_call_is_forced_whose_arguments_are_the_answer() -> None:
    body = chat_body(RICH, "m", TELLS, BY_NAME["anthropic"])
    (tool,) = body["tools"]
    assert (tool["type"], tool["function"]["name"]) == ("function", "answer")
    assert tool["function"]["parameters"] == {"type": "object"}
    assert tool["function"]["description"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "answer"}}
    assert "response_format" not in body
    assert not {"tools", "tool_choice"} & set(chat_body(replace(RICH, answer_schema=""), "m", TELLS, ANTHROPIC))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": ["object", "null"]},
        {"enum": ["a"]},
        {"anyOf": [{"type": "object"}, {"type": "null"}]},
    ],
)
def test_a_schema_of_anything_but_an_object_goes_out_as_no_tool(schema: dict[str, object]) -> None:
    body = chat_body(replace(RICH, answer_schema=json.dumps(schema)), "m", TELLS, ANTHROPIC)
    assert not {"tools", "tool_choice", "response_format"} & set(body)


def test_a_tool_that_was_refused_is_left_out_and_nothing_takes_its_place() -> None:
    refused = with_lessons(ANTHROPIC, [Lesson(option=Option.RESPONSE_FORMAT, value="text")])
    assert not {"tools", "tool_choice", "response_format"} & set(chat_body(RICH, "m", TELLS, refused))
    assert not refused.has_tool


def test_a_refused_json_schema_says_nothing_of_tools() -> None:
    weaker = with_lessons(ANTHROPIC, [Lesson(option=Option.RESPONSE_FORMAT, value="json_object")])
    assert "tools" in chat_body(RICH, "m", TELLS, weaker)


def test_a_tool_changes_nothing_of_what_a_cache_is_asked_for() -> None:
    dialect = replace(BY_NAME["openrouter-breakpoints"], response_format=ResponseFormat.TOOL)
    body = chat_body(RICH, "m", TELLS, replace(dialect, takes=dialect.takes | {Option.CACHE_KEY}))
    assert body["messages"][-1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert (body["prompt_cache_key"], "tools" in body) == ("k", True)


def test_where_there_is_no_system_role_its_text_opens_the_question() -> None:
    dialect = replace(UNKNOWN, takes=UNKNOWN.takes - {Option.SYSTEM_ROLE})
    assert chat_body(RICH, "m", TELLS, dialect)["messages"] == [{"role": "user", "content": "rules\n\ntask: input"}]


def test_the_end_of_what_requests_share_is_marked_for_a_cache_that_wants_it() -> None:
    _, asked = chat_body(RICH, "m", TELLS, BY_NAME["openrouter-breakpoints"])["messages"]
    shared, own = asked["content"]
    assert (shared["text"], shared["cache_control"]) == ("task: ", {"type": "ephemeral"})
    assert own == {"type": "text", "text": "input"}
    assert chat_body(RICH, "m", TELLS, UNKNOWN)["messages"][1]["content"] == "task: input"
