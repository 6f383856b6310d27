"""The form of a candidate: what shows that it is no input of the task, and what is nobody's fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.input_form import SLIP, InputForm, LengthRange, repeated_share

REAL = [
    "Where is my refund for order 5512?",
    "The lamp arrived broken, I want my money back.",
    "You charged me twice last week, please fix that.",
    "Can I still return the jacket after thirty days?",
    "Nobody answers the phone at your office today.",
]
FORM = InputForm.of(REAL, lambda text: text.strip().casefold() == "refund")


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I cannot help with that.",
        "I can't assist with writing such messages.",
        "As an AI language model, I have no orders.",
        "Sorry, I cannot create that.",
        "Refund",
    ],
)
def test_a_refusal_or_an_answer_is_worth_nothing(text):
    assert FORM.score(text) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "Here is a message: the lamp arrived broken, give my money back.",
        "Sure! Here's a new message for this slice: the lamp is broken.",
        "1. The lamp arrived broken, I want my money back.",
        "Message: the lamp arrived broken, I want my money back.",
        "```the lamp arrived broken, I want my money back```",
    ],
)
def test_an_input_with_something_around_it_is_worth_a_quarter(text):
    assert FORM.score(text) == SLIP


@pytest.mark.parametrize(
    "text",
    [
        *REAL,
        "Sorry to bother you again, but my parcel is still not here.",
        "I cannot log in since the update of Monday!",
        "here is my order number 5512, where is the parcel",
        "I'm sorry, the lamp I ordered was the wrong one.",
        "20 lamps arrived, I ordered two. What now?",
    ],
)
def test_what_customers_write_keeps_its_worth(text):
    assert FORM.score(text) == 1.0


def test_what_the_tasks_own_inputs_show_as_well_counts_against_nobody():
    numbered = "1. milk 2. eggs 3. flour, and please be quick"
    assert FORM.score(numbered) == SLIP
    assert InputForm.of([*REAL, "2) two lamps"]).score(numbered) == 1.0
    labels_are_inputs = InputForm.of(["refund", *REAL], lambda text: text.strip().casefold() == "refund")
    assert labels_are_inputs.score("refund") == 1.0


def test_a_length_that_no_input_has_loses_as_much_as_it_misses():
    lengths = LengthRange.of(REAL)
    assert lengths.factor(lengths.most * 2) == lengths.factor(lengths.least // 2 + 1) == 1.0
    assert lengths.factor(lengths.most * 4) == 0.5
    assert lengths.factor(lengths.least // 4) == pytest.approx(0.5, abs=0.05)
    assert LengthRange.of(REAL[:4]).factor(10_000) == 1.0, "four inputs tell no range"


def test_a_phrase_again_and_again_is_no_input():
    assert repeated_share("my refund please") == repeated_share("") == 0.0
    assert FORM.score("give me my money " * 4) < 0.5


@given(st.text(max_size=400))
def test_any_text_has_a_form_between_nothing_and_whole(text):
    assert 0.0 <= FORM.score(text) <= 1.0
    assert FORM.score(text) == FORM.score(text)
