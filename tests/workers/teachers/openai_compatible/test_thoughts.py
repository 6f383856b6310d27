"""Thoughts are told apart from answers, wherever a vendor puts them."""

import json
import time
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
HARMONY = "<|channel|>analysis<|message|>a or b?<|end|><|start|>assistant<|channel|>final<|message|>"
THOUGHT = [
    "[THINK]a or b?[/THINK]refund",
    "a or b? So refund.[/THINK]\n\nrefund",
    "<|START_THINKING|>a or b?<|END_THINKING|><|START_RESPONSE|>refund<|END_RESPONSE|>",
    "a or b?<|END_THINKING|>refund",
    "<|START_RESPONSE|>refund<|END_RESPONSE|>",
    "◁think▷a or b?◁/think▷refund",
    "Let us see.◁/think▷refund",
    "<seed:think>a or b?</seed:think>refund",
    "<|channel>thought\na or b?<channel|>refund",
    "<|inner_prefix|>a or b?<|inner_suffix|>refund",
    HARMONY + "refund<|return|>",
    "<|start|>assistant" + HARMONY + "refund",
    HARMONY.replace("final", "final <|constrain|>json") + "refund",
    "<|channel|>commentary<|message|>hm<|end|>" + HARMONY + "refund",
    "a or b?<|end|><|start|>assistant<|channel|>final<|message|>refund",
    "<|channel|>final<|message|>refund<|return|>",
    "analysisWe see a or b.assistantfinalrefund",
    "<THINK>a</THINK>refund",
    "<think>a</think>\n<think>b</think>\nrefund",
    "<think>Is </think> a tag? Yes.\n</think>\n\nrefund",
    "The user says <think> here.\n</think>\nrefund",
    "</think>refund",
    "hm, refund it is.</think>refund",
    "hm </think>\n\nrefund",
    "所以是退款。</think>refund",
]
CUT = ["[THINK]a or b", "<|START_THINKING|>a", "◁think▷a", "<|channel|>analysis<|message|>a or b?<|end|>", "<thinking>"]
PLAIN = [
    "My html has a </thought> tag, please refund",
    "My page ends with </think>",
    "My log shows [/THINK] at its end, please refund",
    "Why is there a ◁/think▷ in my mail?",
    "My page shows <thought>loading</thought>, please refund",
    'What is `</think>`, and "</think>", and (</think>)?',
    "analysisResult is empty, please refund",
    "assistantfinal",
    "[think] about it",
]


@pytest.mark.parametrize("text", THOUGHT)
def test_thoughts_in_every_vendors_marks_are_no_part_of_the_answer(text: str) -> None:
    assert read_content({"content": text}) == Content(text="refund", has_thoughts=True)


@pytest.mark.parametrize("text", CUT)
def test_thoughts_that_are_opened_and_never_ended_leave_no_answer(text: str) -> None:
    assert read_content({"content": text}) == Content(text="", has_thoughts=True, is_cut_thought=True)


@pytest.mark.parametrize("text", PLAIN)
@pytest.mark.parametrize("before", ["", "<think>hm</think>"])
def test_a_text_about_marks_is_left_whole(text: str, before: str) -> None:
    assert read_content({"content": before + text}) == Content(text=text, has_thoughts=bool(before))


def test_marks_without_end_are_read_at_once() -> None:
    started = time.monotonic()
    for piece in ("<think>", "</think>", " \n", "<|channel|>analysis", "a</think>", "analysisA", "\t", "<|end|>"):
        read_content({"content": piece * (100_000 // len(piece))})
    assert time.monotonic() - started < 5


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
