"""What an input shows to copy recipes, and where it lies in a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.recipes.inputs import FRAME, MAX_UNITS, InputText, frame_of, input_in


def test_anchors_point_at_the_unit_behind_them() -> None:
    text = InputText(b"order A-12 by Bonn, by Kiel")
    assert text.data[text.anchors["first U after: by "] :].startswith(b"Bonn")
    assert text.data[text.anchors["last U after: by "] :].startswith(b"Kiel")
    assert text.data[text.anchors["first N"] :].startswith(b"12")
    assert text.data[text.anchors["first unit after the beginning: order "] :].startswith(b"A-12")
    assert text.data[text.anchors["first word: Kiel"] :] == b"Kiel"


def test_words_and_pairs_of_words_are_cues() -> None:
    words = InputText("Stück 3 rot".encode()).words
    assert {"has: Stück", "has: 3 rot", "begins: Stück", "begins: Stück 3", "has a number"} <= words


def test_what_comes_next_is_told_from_the_most_telling_on() -> None:
    text = InputText(b"in New York on 3 May")
    end = text.data.index(b" on")
    assert text.ahead(end, 2) == [
        "before:  on 3",
        "before:  on",
        "after 2, before a space and L",
        "before a space and L",
    ]
    assert text.ahead(len(text.data), 1) == ["before the end"]
    assert text.is_boundary(end)
    assert not text.is_boundary(end + 1)  # a blank has come: the value goes on
    assert text.is_inside(4)


def test_a_long_input_is_read_so_far_and_no_further() -> None:
    assert len(InputText(b"a " * 5_000).units) == MAX_UNITS
    assert InputText(b"").ahead(0, 0) == ["before the end"]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_input(data: bytes) -> None:
    text = InputText(data)
    assert all(0 <= at < max(1, len(data)) for at in text.anchors.values())
    assert all(isinstance(cue, str) for cue in text.words)
    for at in range(len(data) + 1):
        assert text.ahead(at, 1)


prompts = st.lists(st.integers(3, 9), min_size=1, max_size=8)


@given(st.lists(prompts, min_size=2, max_size=6, unique_by=tuple), st.integers(0, 12), st.integers(0, 12))
def test_the_input_is_what_stands_between_the_frame(inputs: list[list[int]], before: int, after: int) -> None:
    rows = [(*range(100, 100 + before), *one, *range(200, 200 + after)) for one in inputs]
    frame = frame_of(rows)
    assert all(len(side) <= FRAME for side in frame)
    for row, one in zip(rows, inputs, strict=True):
        found = input_in(row, frame)
        assert found is not None
        if before and after:
            joined = "," + ",".join(map(str, one)) + ","
            assert "," + "".join(f"{token}," for token in found) in joined or not found
    if before:
        assert input_in((1, 2, 3), frame) is None


def test_one_prompt_has_no_frame() -> None:
    assert frame_of([(1, 2), (1, 2)]) == ((), ())
    assert input_in((1, 2), ((), ())) == (1, 2)
    assert input_in((1, 2, 5, 9), ((1, 2), (9,))) == (5,)
    assert input_in((1, 2, 5), ((1, 2), (9,))) == (5,)
