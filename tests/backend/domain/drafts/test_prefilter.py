"""What is left out of a pool without asking: drafts that look like another label."""

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.domain.drafts.prefilter import is_off_label, margins

RNG = np.random.default_rng(5)
N_LABELS = 4
CENTRES = RNG.normal(size=(N_LABELS, 64))


def rows_of(label: int, n: int, *, noise: float = 0.9) -> NDArray[np.float32]:
    rows = CENTRES[label] + noise * RNG.normal(size=(n, 64))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


GOLD = np.concatenate([rows_of(label, 8) for label in range(N_LABELS)])
GOLD_LABELS = [label for label in range(N_LABELS) for _ in range(8)]
NOTHING = np.zeros((0, 64), dtype=np.float32)


def test_drafts_of_another_label_are_left_out_and_nearly_all_of_the_own_stay() -> None:
    right, wrong = rows_of(0, 400), np.concatenate([rows_of(label, 100) for label in (1, 2, 3)])
    assert is_off_label(right, [0] * 400, GOLD, GOLD_LABELS).mean() < 0.3
    assert is_off_label(wrong, [0] * 300, GOLD, GOLD_LABELS).mean() > 0.95


def test_a_margin_is_the_own_centroid_less_the_best_other() -> None:
    centroids = np.eye(3, dtype=np.float32)
    row = np.array([[0.6, 0.8, 0.0]], dtype=np.float32)
    assert margins(row, centroids, np.array([0]))[0] == pytest.approx(-0.2)
    assert margins(row, centroids, np.array([1]))[0] == pytest.approx(0.2)
    assert margins(row, centroids, np.array([2]))[0] == pytest.approx(-0.8)


@pytest.mark.parametrize(
    ("gold", "labels", "own"),
    [
        (NOTHING, [], 0),
        (GOLD[:8], [0] * 8, 0),  # one label: nothing to compare with
        (GOLD[5:16], GOLD_LABELS[5:16], 0),  # three rows of it
        (GOLD[8:], GOLD_LABELS[8:], 0),  # none of it
    ],
)
def test_nothing_is_left_out_where_there_is_too_little_gold(
    gold: NDArray[np.float32], labels: list[int], own: int
) -> None:
    assert not is_off_label(rows_of(2, 50), [own] * 50, gold, labels).any()


def test_labels_with_enough_gold_are_filtered_beside_ones_without() -> None:
    drafts = np.concatenate([rows_of(1, 20), rows_of(1, 20)])
    off = is_off_label(drafts, [0] * 20 + [3] * 20, GOLD[5:], GOLD_LABELS[5:])
    assert not off[:20].any()
    assert off[20:].mean() > 0.9
