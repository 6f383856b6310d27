import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from backend.domain.labeling.linear_head import Floats, Ints, LinearHead, fit_linear_head


def clusters(n: int, d: int, n_labels: int, seed: int, *, spread: float = 1.0) -> tuple[Floats, Ints]:
    """Unit rows about one centre a label, which overlap as real requests do; every label has a row."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n_labels), rng.integers(0, n_labels, n - n_labels)])
    centres = rng.standard_normal((n_labels, d)) + 1.0
    rows = centres[labels] + spread * 1.5 * rng.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def one_hot(labels: Ints, n_labels: int) -> Floats:
    return np.eye(n_labels)[labels]


def of_sklearn(rows: Floats, labels: Ints, c: float, weights: Floats | None = None) -> LogisticRegression:
    return LogisticRegression(C=c, tol=1e-9, max_iter=20_000).fit(rows, labels, sample_weight=weights)


def loss(head: LinearHead, rows: Floats, targets: Floats, weights: Floats, c: float) -> float:
    """The docstring's objective."""
    crossed = -(targets * np.log(head.probabilities(rows))).sum(axis=1)
    return float(c * (weights @ crossed) + (head.weight**2).sum() / 2)


@pytest.mark.parametrize(
    ("n", "d", "n_labels", "c"), [(30, 64, 3, 1.0), (200, 32, 7, 10.0), (60, 200, 20, 10.0), (40, 3, 5, 100.0)]
)
def test_the_optimum_is_that_of_scikit_learn(n: int, d: int, n_labels: int, c: float) -> None:
    rows, labels = clusters(n, d, n_labels, seed=n)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, n)
    elsewhere = clusters(100, d, n_labels, seed=n + 1)[0]
    head = fit_linear_head(rows, one_hot(labels, n_labels), weights=weights, c=c)
    expected = of_sklearn(rows, labels, c, weights).predict_proba(elsewhere)
    np.testing.assert_allclose(head.probabilities(elsewhere), expected, atol=1e-4)


def test_two_labels_are_the_binary_regression_at_twice_the_c() -> None:
    rows, labels = clusters(80, 24, 2, seed=3)
    head = fit_linear_head(rows, one_hot(labels, 2), c=5.0)
    np.testing.assert_allclose(head.probabilities(rows), of_sklearn(rows, labels, 10.0).predict_proba(rows), atol=1e-4)


def test_soft_targets_are_as_good_as_weighted_copies() -> None:
    rows, _ = clusters(50, 20, 4, seed=5)
    targets = np.random.default_rng(5).dirichlet(np.full(4, 0.5), 50)
    head = fit_linear_head(rows, targets, c=10.0)
    copies, labels = np.repeat(rows, 4, axis=0), np.tile(np.arange(4), 50)
    expected = of_sklearn(copies, labels, 10.0, targets.ravel()).predict_proba(rows)
    np.testing.assert_allclose(head.probabilities(rows), expected, atol=1e-4)


def test_a_row_of_weight_nothing_is_as_good_as_absent() -> None:
    rows, labels = clusters(60, 16, 3, seed=7)
    targets, weights = one_hot(labels, 3), np.repeat([1.0, 0.0], 30)
    with_zeros = fit_linear_head(rows, targets, weights=weights).probabilities(rows)
    np.testing.assert_allclose(with_zeros, fit_linear_head(rows[:30], targets[:30]).probabilities(rows), atol=1e-6)


def test_a_start_changes_nothing_but_the_way() -> None:
    rows, labels = clusters(120, 40, 6, seed=9)
    targets = one_hot(labels, 6)
    before = fit_linear_head(rows[:60], targets[:60])
    warm, cold = fit_linear_head(rows, targets, start=before), fit_linear_head(rows, targets)
    np.testing.assert_allclose(warm.probabilities(rows), cold.probabilities(rows), atol=1e-4)


def test_the_order_of_rows_changes_nothing_visible() -> None:
    rows, labels = clusters(100, 30, 5, seed=11)
    order = np.random.default_rng(0).permutation(100)
    here = fit_linear_head(rows, one_hot(labels, 5))
    there = fit_linear_head(rows[order], one_hot(labels[order], 5))
    np.testing.assert_allclose(here.probabilities(rows), there.probabilities(rows), atol=2e-5)
    again = fit_linear_head(rows, one_hot(labels, 5))
    assert np.array_equal(here.weight, again.weight)
    assert np.array_equal(here.bias, again.bias)


def test_one_label_is_answered_always() -> None:
    rows, _ = clusters(10, 8, 1, seed=13)
    targets = np.zeros((10, 3))
    targets[:, 1] = 1.0
    probabilities = fit_linear_head(rows, targets).probabilities(rows)
    assert (probabilities[:, 1] > 1 - 1e-11).all()
    assert (probabilities[:, [0, 2]] < 1e-12).all()


def test_a_label_without_rows_takes_nothing_from_the_others() -> None:
    rows, labels = clusters(40, 12, 3, seed=15)
    with_more = fit_linear_head(rows, one_hot(labels, 5)).probabilities(rows)
    np.testing.assert_allclose(with_more[:, :3], fit_linear_head(rows, one_hot(labels, 3)).probabilities(rows))
    assert (with_more[:, 3:] < 1e-12).all()


@pytest.mark.parametrize("n", [0, 5])
def test_without_a_row_that_counts_all_labels_are_alike(n: int) -> None:
    head = fit_linear_head(np.ones((n, 4)), np.full((n, 3), 1 / 3), weights=np.zeros(n))
    np.testing.assert_array_equal(head.probabilities(np.ones((2, 4))), np.full((2, 3), 1 / 3))


def test_one_row_in_five_hundred_is_learned() -> None:
    rows, labels = clusters(501, 32, 2, seed=17, spread=0.3)
    rare = np.flatnonzero(labels == 1)[:1]
    common = np.flatnonzero(labels == 0)
    shown = np.concatenate([rare, np.resize(common, 500)])
    head = fit_linear_head(rows[shown], one_hot(labels[shown], 2))
    assert head.probabilities(rows[rare])[0, 1] > head.probabilities(rows[common])[:, 1].max()


@pytest.mark.parametrize("rows", [np.zeros((6, 5)), np.ones((6, 5)) / 5**0.5])
def test_rows_that_say_nothing_leave_the_labels_shares(rows: Floats) -> None:
    targets = one_hot(np.array([0, 0, 0, 1, 1, 2]), 3)
    probabilities = fit_linear_head(rows, targets).probabilities(rows)
    np.testing.assert_allclose(probabilities, np.tile([3 / 6, 2 / 6, 1 / 6], (6, 1)), atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6), st.integers(1, 5), st.floats(0.01, 100))
def test_no_step_away_from_the_optimum_is_better(seed: int, n: int, d: int, n_labels: int, c: float) -> None:
    rng = np.random.default_rng(seed)
    rows, targets = rng.standard_normal((n, d)), rng.dirichlet(np.ones(n_labels), n)
    weights = rng.uniform(0.1, 2, n)
    head = fit_linear_head(rows, targets, weights=weights, c=c)
    least = loss(head, rows, targets, weights, c)
    for size in (1e-1, 1e-3):
        aside = LinearHead(
            weight=head.weight + size * rng.standard_normal(head.weight.shape),
            bias=head.bias + size * rng.standard_normal(n_labels),
        )
        assert loss(aside, rows, targets, weights, c) >= least - 1e-6 * max(1.0, least)
