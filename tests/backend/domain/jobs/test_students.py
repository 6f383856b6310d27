"""Which student is ahead, and what is said of the others."""

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.domain.jobs.students import FEW_PAIRS, Student, is_ahead, standings

FROZEN, ADAPTER = Student.FROZEN, Student.ADAPTER
NO_LOSS = {FROZEN: 0.0, ADAPTER: 0.0}


def right(both: int, adapter: int, frozen: int, neither: int) -> dict[Student, NDArray[np.bool_]]:
    cells = [(True, True)] * both + [(True, False)] * adapter + [(False, True)] * frozen + [(False, False)] * neither
    return {
        ADAPTER: np.array([a for a, _ in cells], dtype=np.bool_),
        FROZEN: np.array([b for _, b in cells], dtype=np.bool_),
    }


@pytest.mark.parametrize(
    ("cells", "is_frozen"),
    [
        ((50, 10, 10, 5), False),
        ((50, 4, 9, 5), True),  # 5 more, of 13: over a standard error of 3.6
        ((50, 6, 9, 5), False),  # 3 more, of 15: within 3.9
        ((50, 0, 1, 5), False),  # 1 more is 1 standard error, not over it
        ((50, 0, 2, 5), True),
        ((0, 0, 0, 0), False),
    ],
)
def test_the_frozen_head_is_ahead_by_over_a_standard_error(cells: tuple[int, int, int, int], is_frozen: bool) -> None:
    answers = right(*cells)
    assert is_ahead(answers[FROZEN], answers[ADAPTER], n_pairs=FEW_PAIRS + 1) is is_frozen


@pytest.mark.parametrize(("cells", "is_frozen"), [((6, 1, 4, 5), False), ((6, 1, 7, 5), True), ((6, 0, 4, 5), False)])
def test_with_few_pairs_it_takes_over_two_standard_errors(cells: tuple[int, int, int, int], is_frozen: bool) -> None:
    answers = right(*cells)
    assert is_ahead(answers[FROZEN], answers[ADAPTER], n_pairs=FEW_PAIRS) is is_frozen


def test_the_standings_begin_with_the_winner_and_count_what_differs() -> None:
    first, second = standings(right(50, 4, 9, 5), {FROZEN: 0.25, ADAPTER: 0.5}, FROZEN)
    assert first.to_json() == {
        "student": "frozen", "n": 68, "correct": 59, "accuracy_ppm": 867_647, "log_loss_ppm": 250_000,
        "better": 0, "worse": 0,
    }  # fmt: skip
    assert (second.student, second.correct, second.better, second.worse) == (ADAPTER, 54, 4, 9)


def test_a_student_that_was_asked_about_nothing_has_no_accuracy() -> None:
    assert [one.to_json()["accuracy_ppm"] for one in standings(right(0, 0, 0, 0), NO_LOSS, ADAPTER)] == [0, 0]


def test_nobody_stands_where_nobody_was_asked() -> None:
    assert standings({}, {}, ADAPTER) == ()
