"""Thoughts are told apart from answers, wherever a vendor puts them."""

import json
from typing import Any

import pytest

from workers.teachers.openai_compatible.answers import read_chat, read_usage
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.thoughts import Content, read_content
from workers.teachers.protocol import CompletionRequest, Message

REQUEST = CompletionRequest(messages=(Message(role="user", content="q" * 80),), max_tokens=20, thought_tokens=100)

READ = [
    ({"content": "refund"}, Content(text="refund")),
    ({"content": None}, Content(text="")),
    ({"content": "refund", "reasoning_content": "hm"}, Content(text="refund", has_thoughts=True)),
    ({"content": "refund", "reasoning": "hm"}, Content(text="refund", has_thoughts=True)),
    ({"content": "", "reasoning": "hm"}, Content(text="", has_thoughts=True, is_cut_thought=True)),
    ({"content": None, "reasoning_content": "hm"}, Content(text="", has_thoughts=True, is_cut_thought=True)),
    ({"content": "<think>a or b?</think>\n\nrefund"}, Content(text="refund", has_thoughts=True)),
    ({"content": "a or b?\n</think>\nrefund"}, Content(text="refund", has_thoughts=True)),
    ({"content": "<think>a or b? hm"}, Content(text="", has_thoughts=True, is_cut_thought=True)),
    ({"content": "<thought>x</thought>refund"}, Content(text="refund", has_thoughts=True)),
    (
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "r"},
            ]
        },
        Content(text="r", has_thoughts=True),
    ),
    ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, Content(text="ab")),
    ({"content": [{"type": "image_url", "image_url": {}}]}, Content(text="")),
    ({"content": "what does <think> mean?"}, Content(text="what does <think> mean?")),
]


@pytest.mark.parametrize(("message", "content"), READ)
def test_thoughts_are_no_part_of_the_answer(message: dict[str, Any], content: Content) -> None:
    assert read_content(message) == content


@pytest.mark.parametrize("content", [3, {}, [3], ["a"], [None]])
def test_a_content_that_is_neither_text_nor_parts_is_a_bad_answer(content: Any) -> None:
    with pytest.raises(BadAnswer):
        read_content({"content": content})


def test_log_probs_of_thoughts_are_not_taken_for_the_answers() -> None:
    row = {"token": "<think>", "logprob": -0.1, "top_logprobs": []}
    body = {"choices": [{"message": {"content": "<think>x</think>refund"}, "logprobs": {"content": [row] * 9}}]}
    (choice,) = read_chat(json.dumps(body).encode(), REQUEST).choices
    assert (choice.text, choice.logprob, choice.token_logprobs) == ("refund", None, None)


@pytest.mark.parametrize(
    ("told", "output", "thoughts"),
    [
        ({"completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 45}}, 50, 45),
        ({"completion_tokens": 50, "total_tokens": 80, "completion_tokens_details": {"reasoning_tokens": 45}}, 50, 45),
        ({"completion_tokens": 5, "total_tokens": 80, "completion_tokens_details": {"reasoning_tokens": 45}}, 50, 45),
        ({"completion_tokens": 5, "total_tokens": 80}, 50, 45),
        ({"completion_tokens": 5, "total_tokens": "x"}, 5, 0),
        ({"completion_tokens": 5, "total_tokens": 3}, 5, 0),
    ],
)
def test_thoughts_are_billed_as_output_also_where_only_the_total_holds_them(
    told: dict[str, Any], output: int, thoughts: int
) -> None:
    usage = read_usage({"prompt_tokens": 30} | told, REQUEST, ())
    assert (usage.output_tokens, usage.thought_tokens, usage.disputed) == (output, thoughts, False)


def test_thoughts_that_cannot_be_are_disputed_and_clamped() -> None:
    usage = read_usage({"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 10**9}, REQUEST, ())
    assert (usage.output_tokens, usage.disputed) == (120, True)


def test_deepseeks_name_for_cached_input_is_read() -> None:
    usage = read_usage({"prompt_tokens": 30, "completion_tokens": 5, "prompt_cache_hit_tokens": 20}, REQUEST, ())
    assert usage.cached_tokens == 20
