"""The kinds of tokens, by the features that they stand for."""

import pytest

from gpu_runners.models.spans.adapter import features
from gpu_runners.models.spans.kinds import LINE, N_KINDS, SENTENCE, Shape, drop_case, kinds_of


def described(text: str, offsets: list[tuple[int, int]]) -> list[tuple[Shape, bool, bool]]:
    """The shape of each token, and whether a line and a sentence begin there."""
    rows = features()[list(kinds_of(text, offsets))]
    return [(Shape(int(row[:LINE].argmax())), bool(row[LINE]), bool(row[SENTENCE])) for row in rows]


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("lamp", Shape.LOWER),
        ("Lamp", Shape.TITLE),
        ("I", Shape.TITLE),
        ("LAMP", Shape.UPPER),
        ("iPhone", Shape.MIXED),
        ("1204", Shape.DIGITS),
        ("W0110", Shape.CODE),
        ("#", Shape.OTHER),
        ("灯", Shape.LOWER),
        ("Ärzte", Shape.TITLE),
    ],
)
def test_the_shape_of_a_word(word: str, shape: Shape) -> None:
    text = f"x {word}"
    assert described(text, [(0, 1), (2, len(text))])[1] == (shape, False, False)


def test_every_piece_of_a_word_has_the_shape_of_the_whole() -> None:
    assert [shape for shape, _, _ in described("Stockholm-2", [(0, 5), (5, 9), (9, 10), (10, 11)])] == [
        Shape.TITLE,
        Shape.TITLE,
        Shape.OTHER,
        Shape.DIGITS,
    ]


def test_lines_and_sentences_begin() -> None:
    text = "Hi there.\nTwo lamps! Thanks"
    offsets = [(0, 2), (3, 8), (8, 9), (10, 13), (14, 19), (19, 20), (21, 27)]
    assert [(line, sentence) for _, line, sentence in described(text, offsets)] == [
        (True, True),
        (False, False),
        (False, False),
        (True, True),
        (False, False),
        (False, False),
        (False, True),
    ]


def test_a_text_without_capitals_has_the_kinds_that_are_said_of_it_in_lower_case() -> None:
    text = "Hi Anna, send LAMPS\nto iCity 12a."
    offsets = [(0, 2), (3, 7), (7, 8), (9, 13), (14, 19), (20, 22), (23, 28), (29, 32), (32, 33)]
    assert tuple(map(drop_case, kinds_of(text, offsets))) == kinds_of(text.lower(), offsets)


def test_no_two_kinds_have_the_same_features() -> None:
    assert len({tuple(row) for row in features().tolist()}) == N_KINDS
    assert not features()[0].any()


def test_a_token_without_a_character_is_of_a_kind() -> None:
    assert len(kinds_of("", [])) == 0
    assert described("a", [(0, 0)]) == [(Shape.LOWER, True, True)]
