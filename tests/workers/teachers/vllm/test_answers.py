"""What vLLM answers, read as hostile input. Against the engine itself: tests/vllm."""

import json
import math
from typing import Any

import pytest

from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.protocol import CompletionRequest, Message, ScoreRequest
from workers.teachers.vllm.answers import read_ids, read_prompt_score, read_text_completion

ASKED = (Message(role="user", content="Q"),)


def entry(logprob: float, rank: int, text: str) -> dict[str, Any]:
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


# a prompt of ids 1, 2 and the answer 7, 8; at 8's place two tokens are likelier than it
ROWS: list[Any] = [
    None,
    {"2": entry(-0.1, 1, "Q")},
    {"7": entry(math.log(0.6), 1, "Yes"), "9": entry(math.log(0.3), 2, "No")},
    {"5": entry(math.log(0.5), 1, "!"), "6": entry(math.log(0.3), 2, "?"), "8": entry(math.log(0.1), 3, "<end>")},
]


def scored_body(rows: Any = ROWS, **fields: Any) -> bytes:
    usage = {"prompt_tokens": 4, "completion_tokens": 1}
    return json.dumps({"choices": [{"text": "x", "prompt_logprobs": rows}], "usage": usage} | fields).encode()


def score(temperature: float = 1.0, top_k: int | None = None, n_top: int = 2) -> ScoreRequest:
    return ScoreRequest(messages=ASKED, text="Yes", temperature=temperature, top_k=top_k, top_logprobs=n_top)


def test_a_score_holds_the_tokens_after_the_prompt() -> None:
    answer = read_prompt_score(scored_body(system_fingerprint="v1"), score(), [1, 2, 7, 8], 2)
    (choice,) = answer.choices
    assert choice.tokens == ("Yes", "<end>")
    assert choice.token_logprobs == pytest.approx((math.log(0.6), math.log(0.1)))
    assert choice.top_logprobs is not None
    assert [name for name, _ in choice.top_logprobs[0]] == ["Yes", "No"]
    assert answer.system_fingerprint == "v1"
    assert answer.usage.input_tokens == 4


def test_temperature_and_top_k_are_applied_to_what_the_engine_tells_raw() -> None:
    (choice,) = read_prompt_score(scored_body(), score(0.5, 2), [1, 2, 7, 8], 2).choices
    assert choice.token_logprobs is not None
    assert math.exp(choice.token_logprobs[0]) == pytest.approx(0.36 / (0.36 + 0.09))
    assert choice.token_logprobs[1] == -10_000, "the third likeliest is outside top-k"
    assert choice.top_logprobs is not None
    assert [math.exp(p) for _, p in choice.top_logprobs[1]] == pytest.approx([0.25 / 0.34, 0.09 / 0.34])


def test_at_temperature_zero_the_likeliest_token_is_certain() -> None:
    (choice,) = read_prompt_score(scored_body(), score(0.0), [1, 2, 7, 8], 2).choices
    assert choice.token_logprobs == (0.0, -10_000)


BAD_ROWS: list[Any] = [
    None,
    7,
    [],
    ROWS[:3],
    [None, None, None, None],
    [*ROWS[:3], []],
    [*ROWS[:3], {"5": entry(-1.0, 1, "!")}],
    [*ROWS[:3], {"8": 7}],
    [*ROWS[:3], {"8": entry(-1.0, 0, "!")}],
    [*ROWS[:3], {"8": {"logprob": -1.0, "rank": True, "decoded_token": "!"}}],
    [*ROWS[:3], {"8": {"logprob": -1.0, "decoded_token": "!"}}],
    [*ROWS[:3], {"8": entry(3.0, 1, "!")}],
    [*ROWS[:3], {"8": {"logprob": "-1", "rank": 1, "decoded_token": "!"}}],
    [*ROWS[:3], {"8": {"logprob": -1.0, "rank": 1, "decoded_token": None}}],
]


@pytest.mark.parametrize("rows", BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_score_that_is_not_one_is_a_bad_answer(rows: Any) -> None:
    with pytest.raises(BadAnswer):
        read_prompt_score(scored_body(rows), score(), [1, 2, 7, 8], 2)


def test_a_log_prob_that_is_no_number_is_a_bad_answer() -> None:
    body = scored_body().replace(b'"logprob": -0.1', b'"logprob": NaN')
    with pytest.raises(BadAnswer):
        read_prompt_score(body, score(), [1, 2, 7, 8], 1)


@pytest.mark.parametrize("tokens", [None, 7, "12", [1, -1], [1.5], [True], [2**31], [[1]]], ids=range(8))
def test_ids_that_are_none_are_a_bad_answer(tokens: Any) -> None:
    with pytest.raises(BadAnswer):
        read_ids(json.dumps({"tokens": tokens}).encode())


def completed(**row: Any) -> bytes:
    return json.dumps({"choices": [{"text": " way", "finish_reason": "stop"} | row]}).encode()


TOLD: dict[str, Any] = {
    "tokens": [" way", "<end>"],
    "token_logprobs": [-0.5, -0.25],
    "top_logprobs": [{" way": -0.5, " road": -1.5}, {"<end>": -0.25}],
    "text_offset": [0, 4],
}


def test_a_text_completion_is_read_like_a_chats() -> None:
    request = CompletionRequest(messages=ASKED, logprobs=True, top_logprobs=2)
    (choice,) = read_text_completion(completed(logprobs=TOLD), request).choices
    assert choice.text == " way"
    assert choice.tokens == (" way", "<end>")
    assert choice.logprob == -0.75
    assert choice.top_logprobs == (((" way", -0.5), (" road", -1.5)), (("<end>", -0.25),))
    (bare,) = read_text_completion(completed(), CompletionRequest(messages=ASKED)).choices
    assert bare.text == " way"
    assert bare.tokens is None


BAD_CHOICES: list[dict[str, Any]] = [
    {"text": 7},
    {"text": "\ud800"},
    {"text": "\x00"},
    {"logprobs": 7},
    {"logprobs": {}},
    {"logprobs": TOLD | {"tokens": [" way"]}},
    {"logprobs": TOLD | {"tokens": [" way", 7]}},
    {"logprobs": TOLD | {"token_logprobs": [-0.5, 0.5]}},
    {"logprobs": TOLD | {"token_logprobs": None}},
    {"logprobs": TOLD | {"top_logprobs": [{}]}},
    {"logprobs": TOLD | {"top_logprobs": [7, 7]}},
]


@pytest.mark.parametrize("row", BAD_CHOICES, ids=range(len(BAD_CHOICES)))
def test_a_text_completion_that_is_not_one_is_a_bad_answer(row: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        read_text_completion(completed(**row), CompletionRequest(messages=ASKED, logprobs=True, top_logprobs=2))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [7]}'], ids=range(5))
def test_a_body_without_choices_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_text_completion(body, CompletionRequest(messages=ASKED))
    with pytest.raises(BadAnswer):
        read_prompt_score(body, score(), [1, 2, 7, 8], 2)
