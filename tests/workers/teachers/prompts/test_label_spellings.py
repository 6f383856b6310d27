"""Labels that are alike without marks: each is read where it stands exactly, and nowhere else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.teachers.prompts.test_label_reading import DECIDED, UNDECIDED
from workers.teachers.prompts.candidate_and_label import parse_label

TWINS = ("A", "A*", "C", "C#", "C++", "_private", "private", "-1", "1", "(x)", "x", "a*b", "ab", "grade A", "B")
ENDS = ("yes", "yes.", "inc", "inc.", "other")
NUMBER_AT_START = ("{} - the", "{} — the", "{}, because", "{} because", "{} (the")  # counts for less: it may count


@pytest.mark.parametrize("answer", DECIDED)
def test_a_twin_in_its_place_is_read_whatever_surrounds_it(answer: str) -> None:
    for label in TWINS:
        is_unread = label == "1" and answer.startswith(NUMBER_AT_START)
        for written in (label, label.upper(), label.lower()):
            assert parse_label(answer.format(written), TWINS) == (None if is_unread else label), written


@pytest.mark.parametrize("answer", UNDECIDED)
def test_an_answer_that_denies_doubts_or_names_two_twins_is_not_read(answer: str) -> None:
    for labels in ([label for label in TWINS if "1" not in label], ENDS):
        for first in labels:
            for second in set(labels) - {first}:
                assert parse_label(answer.format(first, second), labels) is None, (first, second)


MARKS = ("*", "-", "`a`", '"a"', "a", "**", "_", "yes", "yes.", "rock 'n' roll", "A*", "¿", "...", "{}")


@pytest.mark.parametrize("label", MARKS)
@pytest.mark.parametrize("answer", ["{}", " {}\n", "{}\n\nThe customer asks for it.", "<label>{}</label>"])
def test_a_label_of_marks_is_read_as_a_line_or_value_of_its_own(answer: str, label: str) -> None:
    assert parse_label(answer.format(label), MARKS) == label


@pytest.mark.parametrize(
    ("answer", "labels", "label"),
    [
        ("yes.", ("yes", "yes."), "yes."),
        ("Yes", ("yes", "yes."), "yes"),
        ("yes!", ("yes", "yes."), "yes"),
        ("The label is yes.", ("yes", "yes."), None),  # the sentence's full stop, or the label's
        ('The label is "yes".', ("yes", "yes."), "yes"),
        ('The label is "yes."', ("yes", "yes."), "yes."),
        ("The label is yes.", ("yes", "no"), "yes"),
        ("**Label: A**", ("A", "A*"), "A"),
        ("**Label: A***", ("A", "A*"), "A*"),
        ("**A***", ("A", "A*"), "A*"),
        ("*A*", ("A", "A*"), "A"),
        ("A\\*", ("A", "A*"), "A*"),
        ("A**", ("A", "A*"), None),
        ("A*, A**", ("A", "A*"), None),
        ('{"label": "A**"}', ("A", "A*"), None),
        ("A*", ("A*", "B"), "A*"),
        ("A", ("A*", "B"), "A*"),
        ("Grade A", ("A", "A*", "grade_a"), "grade_a"),
        ("The label is grade A", ("A", "A*", "grade_a"), "grade_a"),
        ("card-payment", ("card payment", "card_payment"), None),
        ("The label is card_payment.", ("card payment", "card_payment"), "card_payment"),
        ("1. 0", ("-1", "0", "1"), "0"),
        ("0.1", ("-1", "0", "1"), None),
        ("Label: -1", ("-1", "0", "1"), "-1"),
        ("- 1", ("-1", "0", "1"), "1"),
        ("e\u0301*", ("\xe9", "\xe9*"), "\xe9*"),
        ("rock n roll", ("rock 'n' roll", "jazz"), "rock 'n' roll"),
        ("The label is Rock 'n' Roll.", ("rock 'n' roll", "jazz"), "rock 'n' roll"),
    ],
)
def test_twins_are_told_apart_or_not_read(answer: str, labels: tuple[str, ...], label: str | None) -> None:
    assert parse_label(answer, labels) == label


PIECES = [*TWINS, *ENDS, "not", "the label is", "Label:", "\n", ".", ", ", " - ", '"', "**", "*", "_", "`", " ", "1."]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=10))
def test_a_twin_that_is_read_stands_exactly_in_the_answer(parts: list[str]) -> None:
    answer = "".join(parts)
    for labels in (TWINS, ENDS):
        label = parse_label(answer, labels)
        is_loose = label is None or label in ("C++", "grade A", "B", "other")  # without a twin
        assert is_loose or label in labels
        assert is_loose or label.casefold() in answer.replace("\\", "").casefold()


@pytest.mark.parametrize("piece", ["- ", "A* ", "**A", "*", "`A*", "yes. ", "_private", "1. ", "*\n_"])
def test_no_answer_with_twins_takes_long_to_read(piece: str) -> None:
    labels = (*TWINS, *ENDS, *(f"A{i}{mark}" for i in range(100) for mark in ("", "*")))
    began = time.process_time()
    parse_label(piece * (20_000 // len(piece)), labels)
    assert time.process_time() - began < 1.0
