"""What a teacher says that it billed is read as hostile input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.openai_compatible.answers import most_input_tokens, read_usage
from workers.teachers.protocol import Choice, CompletionRequest, Message

REQUEST = CompletionRequest(messages=(Message(role="user", content="x" * 84),), n=2, max_tokens=50)  # at most 100 in
CHOICES = (Choice(text="one", n_tokens=3),)


@pytest.mark.parametrize(
    "extra",
    [
        {"prompt_tokens_details": {"cached_tokens": 30, "cache_creation_tokens": 40}},
        {"prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 40}},
        {"prompt_tokens_details": {"cached_tokens": 30}, "cache_creation_input_tokens": 40},
    ],
)
def test_input_written_to_a_prompt_cache_is_read_under_each_of_its_names(extra: dict[str, Any]) -> None:
    usage = read_usage({"prompt_tokens": 80, "completion_tokens": 3} | extra, REQUEST, CHOICES)
    assert (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens) == (80, 30, 40)
    assert not usage.disputed


def test_cached_and_written_input_are_never_more_than_the_input() -> None:
    told = {"cached_tokens": 60, "cache_creation_tokens": 60}
    usage = read_usage({"prompt_tokens": 80, "completion_tokens": 3, "prompt_tokens_details": told}, REQUEST, CHOICES)
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.disputed) == (60, 20, True)


LONG = CompletionRequest(messages=(Message(role="user", content="x" * 5000),), max_tokens=50)
OPENAI = {"prompt_tokens": 1000, "completion_tokens": 10}
OWN = {"input_tokens": 1000, "output_tokens": 10}
BESIDE = {"prompt_tokens": 100, "completion_tokens": 10, "cache_read_input_tokens": 900}
COUNTS: dict[str, tuple[dict[str, Any], tuple[int, int, int, int, int]]] = {
    "OpenAI's names of responses": (OWN, (1000, 10, 0, 0, 0)),
    "and their details": (
        OWN | {"input_tokens_details": {"cached_tokens": 900}, "output_tokens_details": {"reasoning_tokens": 4}},
        (1000, 10, 900, 0, 4),
    ),
    "zeros under one name": ({"prompt_tokens": 0, "completion_tokens": 0} | OWN, (1000, 10, 0, 0, 0)),
    "zeros under the other": (OPENAI | {"input_tokens": 0, "output_tokens": 0}, (1000, 10, 0, 0, 0)),
    "cached at the top": (OPENAI | {"cached_tokens": 900}, (1000, 10, 900, 0, 0)),
    "of vLLM": (OPENAI | {"num_cached_tokens": 900, "total_tokens": 1010}, (1000, 10, 900, 0, 0)),
    "of DeepSeek": (OPENAI | {"prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100}, (1000, 10, 900, 0, 0)),
    "within the input": (OPENAI | {"cache_read_input_tokens": 900, "total_tokens": 1010}, (1000, 10, 900, 0, 0)),
    "details of nothing": (
        OPENAI | {"prompt_tokens_details": {"cached_tokens": 0}, "cache_read_input_tokens": 900},
        (1000, 10, 900, 0, 0),
    ),
    "beside the input": (BESIDE | {"total_tokens": 1010}, (1000, 10, 900, 0, 0)),
    "more than the input": (BESIDE, (1000, 10, 900, 0, 0)),
    "read and written beside it": (
        BESIDE | {"cache_creation_input_tokens": 50, "total_tokens": 1060},
        (1050, 10, 900, 50, 0),
    ),
    "beside it, and thoughts": (
        BESIDE | {"total_tokens": 1030, "completion_tokens_details": {"reasoning_tokens": 20}},
        (1000, 30, 900, 0, 20),
    ),
    "Anthropic's own": (OWN | {"cache_read_input_tokens": 900}, (1900, 10, 900, 0, 0)),
    "thoughts as many as cached": (
        OPENAI | {"total_tokens": 1040, "cached_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 30}},
        (1000, 40, 30, 0, 30),
    ),
    "output left out": ({"prompt_tokens": 1000, "total_tokens": 1010}, (1000, 10, 0, 0, 0)),
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts_are_read_under_vendors_names_and_cached_input_is_never_output(case: str) -> None:
    reported, counts = COUNTS[case]
    usage = read_usage(reported, LONG, CHOICES)
    read = (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_write_tokens)
    assert (*read, usage.thought_tokens) == counts
    assert not usage.disputed


def test_cached_input_that_a_total_does_not_hold_is_disputed() -> None:
    usage = read_usage(BESIDE | {"total_tokens": 110}, LONG, CHOICES)
    assert (usage.input_tokens, usage.cached_tokens, usage.disputed) == (100, 100, True)


def shown(n_tokens: int) -> Choice:
    return Choice(text="x", token_logprobs=(-0.5,) * n_tokens, n_tokens=n_tokens)


def test_output_of_fewer_tokens_than_the_choices_show_is_raised_to_these() -> None:
    """As llama-server of llama-cpp-python 0.3.36 reports two choices: with the tokens of the first."""
    usage = read_usage({"prompt_tokens": 80, "completion_tokens": 20}, REQUEST, (shown(20), shown(30)))
    assert (usage.output_tokens, usage.disputed) == (50, True)
    ends_uncounted = read_usage({"prompt_tokens": 80, "completion_tokens": 48}, REQUEST, (shown(20), shown(30)))
    assert (ends_uncounted.output_tokens, ends_uncounted.disputed) == (48, False)


anything = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=3)
NAMES = ("cached_tokens", "cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens")
details = anything | st.dictionaries(st.sampled_from(NAMES), anything)


@given(
    told=st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": anything,
            "completion_tokens": anything,
            "prompt_tokens_details": details,
            "cache_creation_input_tokens": anything,
            "cache_read_input_tokens": anything,
            "cached_tokens": anything,
            "input_tokens": anything,
            "output_tokens": anything,
            "input_tokens_details": details,
            "total_tokens": anything,
        },
    )
)
def test_whatever_a_teacher_says_its_parts_fit_into_its_input(told: dict[str, Any]) -> None:
    usage = read_usage(told, REQUEST, CHOICES)
    assert 0 <= usage.input_tokens <= most_input_tokens(REQUEST)
    assert usage.cached_tokens >= 0
    assert usage.cache_write_tokens >= 0
    assert usage.cached_tokens + usage.cache_write_tokens <= usage.input_tokens
    assert 0 < usage.output_tokens <= REQUEST.n * REQUEST.max_tokens
