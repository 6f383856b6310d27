"""Numbers as ranges: what is written is read back, and what deviates from the two forms is no answer."""

import itertools
import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.teachers.prompts.malformed_numbers import MALFORMED
from workers.teachers.prompts.judge import ACCEPTED, SLICES_JUDGE_JSON_ASK, SLICES_JUDGE_SYSTEM, answer_room
from workers.teachers.prompts.judge_audit import AUDIT_JSON_ASK, AUDIT_SYSTEM, MISPLACED
from workers.teachers.prompts.number_ranges import as_ranges, read_choice, read_numbers
from workers.teachers.protocol import Choice

NUMBERS = st.frozensets(st.integers(1, 110), max_size=110)


def read(answer: str, n: int = 110) -> frozenset[int] | None:
    return read_numbers(answer, n, name="accepted")


@given(NUMBERS, st.sampled_from(["-", "\u2013", " - ", " \u2013\n"]), st.sampled_from([",", ", ", " ,\n", "\t, "]))
def test_ranges_read_back_whatever_their_dashes_and_white_space(numbers: frozenset[int], dash: str, comma: str) -> None:
    ranges = as_ranges(numbers)
    spaced = ranges.replace(", ", "|").replace("-", dash).replace("|", comma)
    for answer in (ranges, f"\n {spaced}\r\n", f"```\n{spaced}\n```", f"```json\n{ranges}\n```\n"):
        assert read(answer) == numbers


@given(NUMBERS, st.sampled_from([None, 0, 2]))
def test_an_object_holds_ranges_as_one_text_or_as_a_list(numbers: frozenset[int], indent: int | None) -> None:
    ranges = as_ranges(numbers)
    parts = ranges.split(", ") if numbers else []
    mixed = [int(part) if part.isdigit() else part for part in parts]
    for value in (ranges, parts, mixed, sorted(numbers)):
        answer = json.dumps({"accepted": value}, indent=indent)
        assert read(answer) == read(f"```json\n{answer}\n```") == numbers
    assert read('{"accepted": ""}') == read('{"accepted": []}') == frozenset()


@given(NUMBERS)
def test_ranges_are_the_shortest_in_ascending_order(numbers: frozenset[int]) -> None:
    runs = [tuple(map(int, part.split("-"))) for part in as_ranges(numbers).split(", ") if part != "none"]
    named = [number for run in runs for number in range(run[0], run[-1] + 1)]
    assert named == sorted(numbers)
    assert all(one[-1] + 1 < other[0] for one, other in itertools.pairwise(runs))


@pytest.mark.parametrize("answer", MALFORMED, ids=lambda answer: answer[:24])
def test_what_deviates_is_no_answer(answer: str) -> None:
    assert read(answer) is None


@given(NUMBERS, st.text() | st.text("0123456789-, \u2013none{}[]\"'`\n:acept"), st.integers(0, 2**32))
def test_an_edited_answer_reads_as_what_it_says_or_not_at_all(numbers: frozenset[int], noise: str, seed: int) -> None:
    rng = random.Random(seed)
    answer = as_ranges(numbers)
    at = sorted(rng.sample(range(len(answer) + 1), 2))
    edited = answer[: at[0]] + noise + answer[at[rng.randrange(2)] :]
    named = read(edited)
    if named is not None:
        pairs = re.findall(r"([0-9]+)(?:[\s]*[-\u2013][\s]*([0-9]+))?", edited)
        assert named == {n for first, last in pairs for n in range(int(first), int(last or first) + 1)}
        assert max(named, default=0) <= 110


def test_an_answer_that_was_cut_off_is_none() -> None:
    """Of 14 it may have left the 1."""
    assert read_choice([Choice(text="1", finish_reason="length")], 20, name="accepted") is None
    assert read_choice([Choice(text="1", finish_reason="content_filter")], 20, name="accepted") is None
    assert read_choice([], 20, name="accepted") is None
    assert read_choice([Choice(text="1")], 20, name="accepted") == {1}


@pytest.mark.parametrize(
    ("instructions", "name"),
    [
        (SLICES_JUDGE_SYSTEM, ACCEPTED),
        (SLICES_JUDGE_JSON_ASK, ACCEPTED),
        (AUDIT_SYSTEM, MISPLACED),
        (AUDIT_JSON_ASK, MISPLACED),
    ],
)
def test_the_example_of_the_instructions_is_no_answer(instructions: str, name: str) -> None:
    """It names numbers beyond the end of any request."""
    examples = re.findall(r"\{.*\}|[0-9]+(?:-[0-9]+)?(?:, [0-9]+(?:-[0-9]+)?)+", instructions)
    assert len(examples) == 1
    assert read_numbers(examples[0], 999, name=name)
    assert read_numbers(examples[0], 120, name=name) is None


@pytest.mark.parametrize("n", [1, 2, 9, 24, 101])
def test_every_sound_answer_fits_into_its_room(n: int) -> None:
    """A token is a character of these at most, and never less than half of a separator."""
    each = json.dumps({"accepted": ", ".join(map(str, range(1, n + 1)))})
    n_tokens = len(re.findall(r'[0-9]|, |[{}":]|[a-z]+| ', each))
    assert n_tokens <= answer_room(n) <= 6 * n + 32
    assert read(each, n) == set(range(1, n + 1))
    assert read(json.dumps({"accepted": [str(i) for i in range(1, n + 1)]}, indent=4), n) is not None
