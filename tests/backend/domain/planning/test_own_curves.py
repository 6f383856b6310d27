"""Which rows of an upload a learning curve is measured on, and what five folds of them say."""

from typing import Any

import numpy as np
import pytest

from backend.domain.errors import InvalidInput
from backend.domain.planning.own_curves import MOST_CHARS, MOST_ROWS, measure_curve, rows_for_curve


def examples(n: int, *, n_labels: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [{"input": f"message number {at}", "output": f"label {at % n_labels}", **more} for at in range(n)]


def test_all_rows_of_a_small_upload_are_measured() -> None:
    rows = rows_for_curve(examples(60, n_labels=3))
    assert (len(rows.texts), rows.n_train, rows.n_labels) == (60, 60, 3)
    assert sorted(set(rows.labels)) == [0, 1, 2]
    assert len(set(rows.groups)) == 60


def test_held_out_rows_are_not_looked_at() -> None:
    rows = rows_for_curve([*examples(50), *examples(50, split="test"), *examples(30, split="heldout")])
    assert rows.n_train == 50


def test_a_large_upload_is_a_sample_and_the_same_one_in_any_order() -> None:
    many = examples(3_000)
    rows = rows_for_curve(many)
    assert (len(rows.texts), rows.n_train) == (MOST_ROWS, 3_000)
    assert set(rows.texts) == set(rows_for_curve(many[::-1]).texts)


def test_long_texts_are_bounded_together() -> None:
    long = [{**row, "input": row["input"] + " x" * 5_000} for row in examples(900)]
    rows = rows_for_curve(long)
    assert sum(map(len, rows.texts)) <= MOST_CHARS
    assert rows.n_train == 900


def test_copies_and_rows_of_one_group_stay_together() -> None:
    rows = [
        *examples(40),
        {"input": "Message  NUMBER 0", "output": "label 0"},
        {"input": "one", "output": "label 0", "group": "g"},
        {"input": "two", "output": "label 1", "group": "g"},
    ]
    chosen = rows_for_curve(rows)
    group = dict(zip(chosen.texts, chosen.groups, strict=True))
    assert group["message number 0"] == group["Message  NUMBER 0"]
    assert group["one"] == group["two"]
    assert len(set(chosen.groups)) == 41


@pytest.mark.parametrize(
    "rows",
    [examples(39), examples(60, n_labels=1), examples(60, n_labels=60), examples(700, n_labels=301)],
    ids=["few rows", "one label", "as many labels as rows", "hundreds of labels"],
)
def test_rows_that_say_nothing_of_a_curve_are_refused_with_a_sentence(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput, match=r"^A learning curve .*\.$"):
        rows_for_curve(rows)


def test_a_curve_rises_where_labels_follow_from_the_embedding_and_not_where_they_are_drawn() -> None:
    draw = np.random.default_rng(0)
    rows = rows_for_curve(examples(400, n_labels=4))
    centres = 0.5 * draw.standard_normal((4, 16))
    vectors = centres[list(rows.labels)] + draw.standard_normal((400, 16))
    learned = measure_curve(rows, vectors)
    assert [point.n for point in learned.points] == sorted(point.n for point in learned.points)
    assert learned.points[-1].accuracy > learned.points[0].accuracy > 0.3
    assert (learned.n_measured, learned.n_train, learned.n_labels) == (400, 400, 4)
    drawn = measure_curve(rows, draw.standard_normal((400, 16)))
    assert drawn.points[-1].accuracy < 0.35
