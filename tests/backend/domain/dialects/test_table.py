"""Which dialect an address and a model speak."""

from datetime import date
from typing import get_args

import pytest

from backend.domain.dialects.dialect import (
    Lesson,
    Option,
    ResponseFormat,
    lessons_from_json,
    schema_digest,
    thought_room,
    with_lessons,
)
from backend.domain.dialects.table import BY_NAME, SERVERS, UNKNOWN, VENDORS, dialect_for
from backend.domain.spec.teacher import DialectName
from tests.backend.domain.dialects.dialects_page import PAGE, page_with_dialects

ADDRESSES = [
    ("https://api.openai.com/v1", "gpt-4o-mini", "openai"),
    ("https://api.openai.com/v1", "gpt-5-mini", "openai-reasoning"),
    ("https://api.openai.com/v1", "o4-mini", "openai-reasoning"),
    ("https://api.openai.com/v1", "ft:gpt-5-nano:acme::x", "openai-reasoning"),
    ("https://api.openai.com/v1", "gpt-5-chat-latest", "openai"),
    ("https://acme.openai.azure.com/openai/v1", "prod", "azure-openai"),
    ("https://acme.services.ai.azure.com/openai/v1", "prod", "azure-openai"),
    ("https://api.anthropic.com/v1", "claude-opus-4-8", "anthropic"),
    ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-flash", "gemini"),
    ("https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi", "google/g", "vertex"),
    ("https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi", "g", "vertex"),
    ("https://api.mistral.ai/v1", "mistral-small-latest", "mistral"),
    ("https://api.mistral.ai/v1", "magistral-medium-latest", "mistral-reasoning"),
    ("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", "groq"),
    ("https://api.groq.com/openai/v1", "openai/gpt-oss-120b", "groq-reasoning"),
    ("https://api.deepseek.com", "deepseek-v4-flash", "deepseek"),
    ("https://api.together.xyz/v1", "Qwen/Qwen3-235B", "together"),
    ("https://api.fireworks.ai/inference/v1", "accounts/fireworks/models/x", "fireworks"),
    ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.6", "openrouter-breakpoints"),
    ("https://openrouter.ai/api/v1", "meta-llama/llama-4", "openrouter"),
    ("https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", "openai.gpt-oss-120b-1:0", "bedrock"),
    ("https://bedrock-mantle.us-east-1.api.aws/v1", "openai.gpt-oss-20b", "bedrock"),
    ("https://api.x.ai/v1", "grok-4.3", "xai"),
    ("https://api.cerebras.ai/v1", "gpt-oss-120b", "cerebras"),
    ("https://api.openai.com.example.com/v1", "gpt-5-mini", "openai-compatible"),
    ("https://notapi.openai.com.evil.example/v1", "o3", "openai-compatible"),
    ("http://127.0.0.1:8000/v1", "gpt-5", "openai-compatible"),
    ("http://[::1", "m", "openai-compatible"),
    (None, "m", "openai-compatible"),
]


@pytest.mark.parametrize(("base_url", "model", "name"), ADDRESSES)
def test_a_dialect_is_found_by_address_and_model(base_url: str | None, model: str, name: str) -> None:
    assert dialect_for(base_url, model).name == name


def test_a_dialect_that_is_named_goes_before_the_address() -> None:
    assert dialect_for("https://api.openai.com/v1", "gpt-5", name="ollama").name == "ollama"


def test_a_spec_can_name_each_dialect_and_no_other() -> None:
    assert set(get_args(DialectName)) == set(BY_NAME)


@pytest.mark.parametrize("dialect", [*VENDORS, *SERVERS], ids=lambda d: d.name)
def test_every_row_names_the_vendors_page_and_when_it_was_written(dialect: object) -> None:
    row = BY_NAME[dialect.name]  # type: ignore[attr-defined]
    assert row.source.startswith("https://")
    date.fromisoformat(row.written_on)
    assert not row.efforts or Option.EFFORT in row.takes


def test_lessons_make_another_dialect_and_come_back_from_their_json() -> None:
    lessons = (
        Lesson(option=Option.TOKEN_LIMIT, value="max_completion_tokens"),
        Lesson(option=Option.TOKEN_LIMIT, value=100),
        Lesson(option=Option.N, value=1),
        Lesson(option=Option.SEED),
        Lesson(option=Option.RESPONSE_FORMAT, value="json_object"),
        Lesson(option=Option.RESPONSE_FORMAT, value="json_object", scope=schema_digest({"type": "object"})),
        Lesson(option=Option.EFFORT, value="low"),
        Lesson(option=Option.TEMPERATURE, value=1),
        Lesson(option=Option.TOP_LOGPROBS, value=5),
        Lesson(option=Option.THOUGHTS),
    )
    learnt = with_lessons(UNKNOWN, lessons)
    assert (learnt.token_limit, learnt.max_tokens, learnt.max_n) == ("max_completion_tokens", 100, 1)
    assert (learnt.efforts, learnt.max_temperature, learnt.max_top_logprobs) == (("low",), 1.0, 5)
    assert learnt.response_format is ResponseFormat.OBJECT
    assert Option.SEED not in learnt.takes
    assert learnt.thinks
    assert lessons_from_json([lesson.to_json() for lesson in lessons]) == lessons


def test_a_lesson_of_a_later_release_is_left_out() -> None:
    assert lessons_from_json([["telepathy", None], ["telepathy/x", None], ["seed", None]]) == (
        Lesson(option=Option.SEED),
    )


@pytest.mark.parametrize(
    ("name", "effort", "declared", "room"),
    [
        ("openai", None, None, 0),
        ("openai-reasoning", None, None, 4096),
        ("openai-reasoning", "none", None, 0),
        ("openai-reasoning", "low", None, 2048),
        ("openai-compatible", "high", None, 16_384),
        ("openai-reasoning", "high", 50, 50),
    ],
)
def test_room_for_thoughts_is_as_declared_else_by_effort_else_by_the_model(
    name: str, effort: str | None, declared: int | None, room: int
) -> None:
    assert thought_room(BY_NAME[name], effort, declared) == room


def test_the_page_shows_the_rows_that_ship() -> None:
    text = PAGE.read_text()
    assert page_with_dialects(text) == text, "run `python -m tests.backend.domain.dialects.dialects_page`"


def test_a_lesson_that_comes_late_gives_nothing_back() -> None:
    known = [
        Lesson(option=Option.RESPONSE_FORMAT, value="text"),
        Lesson(option=Option.N, value=1),
        Lesson(option=Option.TOKEN_LIMIT),
    ]
    late = [
        Lesson(option=Option.RESPONSE_FORMAT, value="json_object"),
        Lesson(option=Option.N, value=4),
        Lesson(option=Option.TOKEN_LIMIT, value="max_completion_tokens"),
    ]
    learnt = with_lessons(UNKNOWN, [*known, *late])
    assert (learnt.response_format, learnt.max_n, learnt.token_limit) == (ResponseFormat.FREE, 1, "")
