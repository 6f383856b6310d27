import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.folds import cross_predict, fold_of
from backend.domain.labeling.linear_head import fit_linear_head
from tests.backend.domain.labeling.test_linear_head import clusters, one_hot


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 8)), unique_by=lambda row: row[0]), st.integers(1, 6))
def test_near_duplicates_share_a_fold_in_any_order(rows: list[tuple[int, int]], k: int) -> None:
    keys, groups = [f"row {i}" for i, _ in rows], np.array([group for _, group in rows], dtype=np.int64)
    folds = fold_of(keys, groups, k=k)
    assert all(0 <= fold < k for fold in folds)
    assert len({(g, f) for g, f in zip(groups, folds, strict=True)}) == len(set(groups.tolist()))
    assert fold_of(keys[::-1], groups[::-1], k=k).tolist() == folds[::-1].tolist()


def test_a_row_keeps_its_fold_when_others_come() -> None:
    keys = [f"row {i}" for i in range(60)]
    early = fold_of(keys[:30], np.arange(30))
    assert fold_of(keys, np.arange(60))[:30].tolist() == early.tolist()
    assert set(fold_of(keys, np.arange(60)).tolist()) == set(range(5))


def test_a_row_is_predicted_by_the_head_of_the_other_folds() -> None:
    rows, labels = clusters(60, 16, 3, seed=1)
    targets, folds = one_hot(labels, 3), np.arange(60) % 4
    predicted = cross_predict(rows, targets, folds, c=2.0)
    other = fit_linear_head(rows[folds != 2], targets[folds != 2], c=2.0)
    np.testing.assert_allclose(predicted[folds == 2], other.probabilities(rows[folds == 2]))
    np.testing.assert_allclose(predicted.sum(axis=1), 1)


def test_a_label_that_the_other_folds_lack_has_a_floor() -> None:
    rows, labels = clusters(40, 8, 3, seed=2)
    labels[labels == 2] = 1
    labels[5] = 2
    folds = np.zeros(40, dtype=np.int64)
    folds[20:] = 1
    predicted = cross_predict(rows, one_hot(labels, 3), folds)
    np.testing.assert_allclose(predicted[:20, 2], 1 / 23)
    np.testing.assert_allclose(predicted.sum(axis=1), 1)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_one_fold_predicts_nothing(n: int) -> None:
    predicted = cross_predict(np.ones((n, 3)), np.eye(2)[np.zeros(n, dtype=int)], np.zeros(n, dtype=np.int64))
    np.testing.assert_array_equal(predicted, np.full((n, 2), 1 / 2))


def test_weights_count() -> None:
    rows, labels = clusters(60, 8, 2, seed=4)
    targets, folds = one_hot(labels, 2), np.arange(60) % 3
    doubled = cross_predict(rows, targets, folds, weights=np.full(60, 2.0), c=1.0)
    np.testing.assert_allclose(doubled, cross_predict(rows, targets, folds, c=2.0), atol=1e-5)
    nothing = cross_predict(rows, targets, folds, weights=np.zeros(60))
    np.testing.assert_array_equal(nothing, np.full((60, 2), 1 / 2))
