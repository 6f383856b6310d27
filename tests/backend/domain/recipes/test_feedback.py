"""Feedback of packs as it comes from outside: read strictly, and shapes hold no text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.feedback import MAX_ROWS, PackFeedback, checked_feedback
from backend.domain.recipes.shapes import shape_of

COUNTS = st.integers(0, 10**9)
SHAPES = st.binary(max_size=40).map(shape_of).filter(bool)
TRIED = st.tuples(COUNTS, COUNTS).map(lambda pair: {"id": "0f" * 8, "tried": sum(pair), "accepted": pair[0]})
FEEDBACK = st.builds(
    PackFeedback,
    artifact_sha256=st.just("a" * 64),
    pack_sha256=st.just("b" * 64),
    n_answers=COUNTS,
    n_tokens=COUNTS,
    tried=st.lists(TRIED, max_size=5),
    missed=st.lists(st.fixed_dictionaries({"shape": SHAPES, "n": COUNTS}), max_size=5),
    learned=st.lists(st.fixed_dictionaries({"tokens": st.lists(st.integers(0, 10**6), min_size=1)}), max_size=3),
)


@given(FEEDBACK)
def test_what_a_runner_counts_is_read_as_it_was_told(feedback: PackFeedback) -> None:
    assert checked_feedback(feedback.to_json()) == feedback


@given(FEEDBACK, st.text(alphabet=st.characters(categories=["Ll", "Lu", "Nd"]), min_size=8))
def test_a_word_in_the_place_of_a_shape_is_refused(feedback: PackFeedback, word: str) -> None:
    for shape in (word, f"json d1 value # | STR {word}", f"text d0 i0 | {word}"):
        with pytest.raises(ValueError, match="not of its form"):
            checked_feedback(feedback.to_json() | {"missed": [{"shape": shape, "n": 1}]})


@pytest.mark.parametrize("value", [None, [], "x", {}, {"n_answers": 1}])
def test_what_is_no_feedback_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        checked_feedback(value)


@given(FEEDBACK, st.sampled_from(["tried", "missed", "learned"]))
def test_a_part_that_is_too_long_or_no_list_is_refused(feedback: PackFeedback, part: str) -> None:
    for rows in ({}, None, [None], [{}] * (MAX_ROWS + 1)):
        with pytest.raises(ValueError):
            checked_feedback(feedback.to_json() | {part: rows})
