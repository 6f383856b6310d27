"""The pause that an endpoint asks for, in each form in which vendors ask for one (the pages: `waits`)."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.teachers.hostile import answer
from tests.workers.teachers.openai_compatible.test_endpoint_faults import error, failure_at
from tests.workers.teachers.openai_compatible.test_retry import NOW
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.waits import duration_s, wait_s

EPOCH = int(NOW.timestamp())
GOOGLE = [
    {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"url": "https://ai.google.dev/gemini-api/docs"}]},
    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"},
]


def words(message: str, **fields: Any) -> bytes:
    return error({"message": message, **fields})


def limits(**headers: str) -> dict[str, str]:
    return {f"x-ratelimit-{name.replace('_', '-')}": value for name, value in headers.items()}


HEADERS: list[tuple[str, dict[str, str], float | None]] = [
    ("milliseconds", {"retry-after-ms": "1250"}, 1.25),
    ("milliseconds before seconds", {"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ("milliseconds that are none", {"retry-after-ms": "soon", "retry-after": "3"}, 3.0),
    ("requests", limits(remaining_requests="0", reset_requests="1s"), 1.0),
    ("tokens", limits(remaining_tokens="0", reset_tokens="6m0s"), 360.0),
    (
        "both, the longer",
        limits(remaining_requests="0", reset_requests="350ms", remaining_tokens="0", reset_tokens="2s"),
        2,
    ),
    (
        "what is left counts not",
        limits(remaining_requests="0", reset_requests="1s", remaining_tokens="9", reset_tokens="9s"),
        1,
    ),
    ("nothing is used up", limits(remaining_requests="3", reset_requests="1s"), None),
    ("what remains is not said", limits(reset_requests="1s"), None),
    ("azure's unknown limit", limits(remaining_tokens="-1", reset_tokens="0"), None),
    ("cerebras", limits(remaining_tokens_minute="0", reset_tokens_minute="26.28409"), 26.28409),
    ("openrouter, ms", limits(remaining="0", reset=f"{EPOCH + 20}000"), 20.0),
    ("openrouter, s", limits(reset=f"{EPOCH + 20}"), 20.0),
    ("seconds from now", limits(reset="20"), 20.0),
    ("an epoch with some left", limits(remaining="5", reset=f"{EPOCH + 20}"), None),
    ("an epoch that is over", limits(remaining="0", reset=f"{EPOCH - 20}"), None),
    (
        "what is asked for, before a limit",
        {"retry-after": "2", **limits(remaining_requests="0", reset_requests="1h")},
        2.0,
    ),
    ("nothing", {}, None),
]
BODIES: list[tuple[str, bytes, float | None]] = [
    ("google", words("Quota exceeded.", code=429, details=GOOGLE), 34.0),
    ("google in a list", b"[" + words("Quota exceeded.", code=429, details=GOOGLE) + b"]", 34.0),
    ("google through a gateway", words(json.dumps({"error": {"code": 429, "details": GOOGLE}})), 34.0),
    ("google in words", words("limit: 10, model: gemini-3-pro Please retry in 45.578569677s."), 45.578569677),
    (
        "openai",
        words("Limit 3, Used 3, Requested 1. Please try again in 7.66s. Visit https://platform.openai.com"),
        7.66,
    ),
    ("openai, minutes", words("Please try again in 6m0s."), 360.0),
    ("openai, milliseconds", words("Please try again in 350ms."), 0.35),
    ("groq", words("on tokens per day (TPD): Limit 100000. Please try again in 1h2m3.5s."), 3723.5),
    ("azure", words("have exceeded the token rate limit. Please retry after 45 seconds."), 45.0),
    ("a gateway", b'{"detail": "Rate limited; try again in 2 minutes"}', 120.0),
    ("no JSON", b"slow down, retry in 3 s", 3.0),
    (
        "openrouter",
        words("Rate limit exceeded", metadata={"headers": limits(remaining="0", reset=f"{EPOCH + 20}000")}),
        20.0,
    ),
    ("no time", words("Please try again in a while."), None),
    ("no duration", words("Please try again in 7 samples."), None),
    ("a customer's words", words("slow down", input="try again in 50s"), None),
    ("later", words("Please try again later."), None),
]


@pytest.mark.parametrize(("name", "headers", "seconds"), HEADERS, ids=[case[0] for case in HEADERS])
def test_headers_say_how_long(name: str, headers: dict[str, str], seconds: float | None) -> None:
    assert wait_s(headers, b"", NOW) == seconds


@pytest.mark.parametrize(("name", "body", "seconds"), BODIES, ids=[case[0] for case in BODIES])
def test_a_refusal_says_how_long(name: str, body: bytes, seconds: float | None) -> None:
    assert wait_s({}, body, NOW) == (seconds and pytest.approx(seconds))


def test_what_the_refusal_asks_for_comes_before_the_whole_reset_of_a_limit() -> None:
    used_up = limits(remaining_requests="0", reset_requests="6m0s")
    assert wait_s(used_up, words("Please try again in 8.64s."), NOW) == 8.64


@pytest.mark.parametrize(
    "text",
    ["", "-1s", "0s", "1e9s", "nan", "inf", "s", "1", "１s", "1x", "1s!", "9" * 40 + "s", "1s" * 50, "0x1s", "1,5s"],
)
def test_what_is_no_duration_counts_for_nothing_and_a_number_alone_is_seconds(text: str) -> None:
    assert duration_s(text) == (1.0 if text == "1" else None)


@given(st.text(max_size=60), st.sampled_from(["retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens"]))
def test_no_header_breaks_a_call_or_makes_it_wait_for_longer_than_a_minute(value: str, name: str) -> None:
    seconds = wait_s({name: value, "x-ratelimit-remaining-tokens": "0"}, value.encode(), datetime.now(UTC))
    assert seconds is None or seconds > 0
    assert 0 <= retry.delay_s(0, seconds, random.Random(1)) <= retry.MAX_RETRY_AFTER_S + 1


def test_words_without_end_are_read_in_no_time() -> None:
    for text in ("retry in 1s ", "try again in 1" + "1" * 60_000, "1m" * 30_000, "retry after " * 5_000):
        wait_s({"x-ratelimit-reset-tokens": text, "x-ratelimit-remaining-tokens": "0"}, words(text), NOW)


AT_THE_WIRE: list[tuple[str, bytes, dict[str, str]]] = [
    ("retry-after-ms", b"{}", {"retry_after_ms": "40000"}),
    ("a limit", b"{}", {"x_ratelimit_remaining_tokens": "0", "x_ratelimit_reset_tokens": "40s"}),
    ("google", words("Quota exceeded.", details=[GOOGLE[1] | {"retryDelay": "40s"}]), {}),
    ("in words", words("Please try again in 40.5s."), {}),
]


@pytest.mark.parametrize(("name", "body", "headers"), AT_THE_WIRE, ids=[case[0] for case in AT_THE_WIRE])
@pytest.mark.parametrize("status", [429, 200])
def test_a_call_keeps_the_pause_that_it_is_asked_for(status, name, body, headers) -> None:
    if status == 200:
        body = error((json.loads(body).get("error") or {}) | {"code": 429})
    failed = failure_at(answer(status, body, **headers), deadline_s=30.0)
    assert (failed.code, failed.n_attempts) == ("teacher_rate_limited", 1), "the pause ends after the deadline"
