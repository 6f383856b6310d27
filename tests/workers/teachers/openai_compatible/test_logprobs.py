"""Log-probs of hostile answers: every malformed shape is BadAnswer, never another exception and never a number."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.openai_compatible.answers import read_chat, read_echo_score
from workers.teachers.openai_compatible.logprobs import LEAST_LOGPROB, BadAnswer
from workers.teachers.protocol import Choice, CompletionRequest, Message, ScoreRequest

MESSAGES = (Message(role="user", content="q"),)
REQUEST = CompletionRequest(messages=MESSAGES, max_tokens=20, logprobs=True, top_logprobs=2)
SCORE = ScoreRequest(messages=MESSAGES, text="a b", top_logprobs=2)
PROMPT = "q\n\n"


def token(name: Any = "a", logprob: Any = -0.5, top: Any = ()) -> dict[str, Any]:
    return {"token": name, "logprob": logprob, "top_logprobs": list(top) if isinstance(top, tuple) else top}


def chat(content: Any, request: CompletionRequest = REQUEST) -> Choice:
    body = {"choices": [{"message": {"content": "a b"}, "logprobs": {"content": content}}]}
    (choice,) = read_chat(json.dumps(body).encode(), request).choices
    return choice


def echo(**columns: Any) -> Choice:
    told = {
        "text_offset": [0, 3, 4, 6],
        "tokens": ["q", "a", " b", "<end>"],
        "token_logprobs": [None, -0.5, -0.25, -1.0],
        "top_logprobs": [None, {"a": -0.5, "c": -1.0}, {" b": -0.25}, {"<end>": -1.0}],
        **columns,
    }
    body = {"choices": [{"logprobs": {k: v for k, v in told.items() if v != "left out"}}]}
    (choice,) = read_echo_score(json.dumps(body).encode(), SCORE, PROMPT).choices
    return choice


def test_tokens_and_alternatives_come_best_first() -> None:
    top = (token("c", -1.0), token("a", -0.5), token("drawn", -9.0), token("never asked for", -10.0))
    choice = chat([token("a", -0.5, top), token(" b", -0.1)])
    assert choice.tokens == ("a", " b")
    assert choice.token_logprobs == (-0.5, -0.1)
    assert choice.top_logprobs == ((("a", -0.5), ("c", -1.0), ("drawn", -9.0)), ())
    assert choice.n_tokens == 2


def test_alternatives_that_are_too_unlikely_to_be_learnt_are_not_kept() -> None:
    request = dataclasses.replace(REQUEST, top_logprobs=20, least_probability=1e-4)
    top = (token("a", -0.51234567), token("b", math.log(1.1e-4)), token("c", math.log(0.9e-4)))
    choice = chat([token("a", -0.51234567, top), token(" b", -0.1)], request)
    assert choice.top_logprobs == ((("a", -0.5123), ("b", round(math.log(1.1e-4), 4))), ())
    assert choice.token_logprobs == (-0.5123, -0.1)
    assert chat([token("a")], request).top_logprobs == ((),)


def test_a_nul_in_a_token_becomes_a_character_that_can_be_stored() -> None:
    choice = chat([token("a\x00", -0.5, (token("\x00", -0.5),))])
    assert (choice.tokens, choice.top_logprobs) == (("a\ufffd",), ((("\ufffd", -0.5),),))


def test_what_was_not_asked_for_or_not_told_is_none() -> None:
    plain = dataclasses.replace(REQUEST, top_logprobs=0)
    assert chat([token()], plain).top_logprobs is None
    bare = chat([{"logprob": -0.5}])
    assert (bare.tokens, bare.top_logprobs, bare.token_logprobs) == (None, None, (-0.5,))
    assert chat(None).token_logprobs is None


LABELS = dataclasses.replace(REQUEST, labels=("refund_late", "refund_lost", "other"))


def of_label(content: Any, *, text: str = "refund_late", request: CompletionRequest = LABELS) -> Choice:
    body = {"choices": [{"message": {"content": text}, "logprobs": {"content": content}}]}
    (choice,) = read_chat(json.dumps(body).encode(), request).choices
    return choice


def test_an_answer_about_labels_keeps_their_log_probs_and_no_tokens() -> None:
    rows = [
        token("refund", math.log(0.9), (token("refund", math.log(0.9)), token("other", math.log(0.1)))),
        token("_la", math.log(0.75), (token("_lo", math.log(0.25)),)),  # the drawn one is not among the likeliest
        token("te", 0.0, (token("te", 0.0),)),
        token("<|end|>", 0.0, (token("<|end|>", 0.0),)),
    ]
    choice = of_label(rows)
    assert choice.label_logprobs == pytest.approx(
        {"refund_late": math.log(0.675), "refund_lost": math.log(0.225), "other": math.log(0.1)}, abs=1e-4
    )
    assert (choice.tokens, choice.top_logprobs) == (None, None)
    assert choice.logprob == pytest.approx(math.log(0.675))
    assert of_label(rows, request=REQUEST).label_logprobs is None


def test_a_label_that_another_begins_with_is_scored_where_the_end_is_among_the_tokens() -> None:
    asked = dataclasses.replace(REQUEST, labels=("refund", "refund_late"))
    rows = [token("refund", 0.0), token("<|im_end|>", math.log(0.6), (token("_late", math.log(0.4)),))]
    assert of_label(rows, text="refund", request=asked).label_logprobs == pytest.approx(
        {"refund": math.log(0.6), "refund_late": math.log(0.4)}, abs=1e-4
    )
    choice = of_label(rows[:1], text="refund", request=asked)
    assert (choice.text, choice.label_logprobs) == ("refund", None)


TWICE = (token("refund_late", -0.1), token("other", -0.1))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([token("refund_late", -0.1)], "other"),  # thoughts, or another text's
        ([token("refund_late", -0.1, TWICE)], "refund_late"),  # more probability than there is
        ([token("refund_late", -0.1, "x")], "refund_late"),
        ([token("refund_late", -0.1, (token("other", 2.0),))], "refund_late"),
        ([token("refund_late", -0.1, (token("other", None),))], "refund_late"),
        ([token("refund_late", -0.1, (token(3),))], "refund_late"),
        ([{"token": "refund_late", "logprob": -0.1}], "refund_late"),
        ([token("The", -0.1), token(" label is refund_late", -0.1)], "The label is refund_late"),
    ],
)
def test_scores_that_cannot_be_believed_are_none_and_the_answer_stands(rows: Any, text: str) -> None:
    choice = of_label(rows, text=text)
    assert (choice.text, choice.label_logprobs) == (text, None)
    assert choice.logprob is not None


def test_an_answer_without_log_probs_is_a_vote_like_any_other() -> None:
    assert (of_label(None).text, of_label(None).label_logprobs) == ("refund_late", None)


@pytest.mark.parametrize(
    "content",
    [
        {},
        "x",
        [None],
        [["a"]],
        [token(3)],
        [token(None)],
        [token("\ud800")],
        [token("x" * 2000)],
        [token("a", None)],
        [token("a", "0")],
        [token("a", True)],
        [token("a", 0.5)],
        [token("a", -(10**400))],
        [token("a", -0.5, "x")],
        [token("a", -0.5, {})],
        [token("a", -0.5, (3,))],
        [token("a", -0.5, (token("c", 2.0),))],
        [token("a", -0.5, (token(3),))],
    ],
)
def test_a_malformed_chat_row_is_a_bad_answer(content: Any) -> None:
    with pytest.raises(BadAnswer):
        chat(content)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "-1e999"])
def test_a_number_that_is_none_is_a_bad_answer(number: str) -> None:
    body = '{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": %s}]}}]}'
    with pytest.raises(BadAnswer):
        read_chat((body % number).encode(), REQUEST)


def test_an_echo_is_read_from_where_the_text_starts() -> None:
    choice = echo()
    assert choice.text == "a b"
    assert choice.tokens == ("a", " b", "<end>")
    assert choice.logprob == pytest.approx(-1.75)
    assert choice.top_logprobs == ((("a", -0.5), ("c", -1.0)), ((" b", -0.25),), (("<end>", -1.0),))
    assert echo(top_logprobs=None).top_logprobs is None
    assert echo(token_logprobs=[None, -9999, -1e300, 0.0005]).token_logprobs == (-9999, LEAST_LOGPROB, 0.0)


@pytest.mark.parametrize(
    "columns",
    [
        {"tokens": "left out"},
        {"text_offset": "left out"},
        {"token_logprobs": "left out"},
        {"tokens": "abc"},
        {"tokens": ["q", "a", " b"]},
        {"tokens": ["q", 1, " b", "<end>"]},
        {"tokens": ["q", "\ud800", " b", "<end>"]},
        {"token_logprobs": [None, None, -0.25, -1.0]},
        {"token_logprobs": [None, 0.5, -0.25, -1.0]},
        {"token_logprobs": [None, "x", -0.25, -1.0]},
        {"text_offset": [0, 1, 2, 9]},
        {"text_offset": [0, "3", 4, 6]},
        {"text_offset": [0, None, 3, 6]},
        {"top_logprobs": {}},
        {"top_logprobs": [None, {}]},
        {"top_logprobs": [None, None, {}, {}]},
        {"top_logprobs": [None, [], {}, {}]},
        {"top_logprobs": [None, {"a": 0.5}, {}, {}]},
        {"top_logprobs": [None, {"a": None}, {}, {}]},
    ],
)
def test_a_malformed_echo_is_a_bad_answer(columns: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        echo(**columns)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [1]}', b'{"choices": [{}]}'])
def test_an_echo_without_choices_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_echo_score(body, SCORE, PROMPT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["content", "a", "logprob"]), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_whatever_comes_back_is_read_or_refused(rows: Any, column: Any) -> None:
    for read in (lambda: chat(rows), lambda: echo(tokens=column), lambda: echo(top_logprobs=rows)):
        try:
            choice = read()
        except BadAnswer:
            continue
        assert all(math.isfinite(p) and p <= 0 for p in choice.token_logprobs or ())
