import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.cuts import STUDENT_C, WITHOUT, Cut, CutResult, Pairs, compare_cuts, cut_weights
from backend.domain.labeling.folds import cross_predict
from backend.domain.labeling.linear_head import Flags, Floats, Ints, fit_linear_head
from tests.backend.domain.labeling.test_linear_head import clusters, one_hot


def pairs_of(
    rows: Floats, labels: Ints, n_labels: int, *, is_gold: Flags | None = None, weights: Floats | None = None
) -> Pairs:
    n = len(rows)
    return Pairs(
        rows=rows,
        targets=one_hot(labels, n_labels),
        folds=np.arange(n) % 4,
        weights=np.ones(n) if weights is None else weights,
        is_gold=np.zeros(n, dtype=bool) if is_gold is None else is_gold,
    )


def mislabelled(n: int, share: float, seed: int) -> tuple[Floats, Ints, Ints]:
    """Rows, the labels that were given, and the true ones: easy clusters of four labels, a share of them wrong."""
    rows, truth = clusters(n, 16, 4, seed, spread=0.5)
    rng = np.random.default_rng(seed)
    is_wrong = rng.random(n) < share
    return rows, np.where(is_wrong, (truth + rng.integers(1, 4, n)) % 4, truth), truth


def chosen(results: tuple[CutResult, ...]) -> Cut:
    (result,) = [result for result in results if result.is_chosen]
    return result.cut


def test_clean_pairs_are_all_kept() -> None:
    rows, labels, _ = mislabelled(160, 0.0, seed=1)
    results = compare_cuts(pairs_of(rows, labels, 4))
    assert [result.cut for result in results] == list(Cut)
    assert chosen(results) in {Cut.ALL, Cut.CLASS_WEIGHTS}
    assert (results[0].gain, results[0].standard_error, results[0].n_kept) == (0.0, 0.0, 160)


def test_wrong_labels_are_cut_and_the_cut_is_chosen() -> None:
    rows, labels, truth = mislabelled(180, 0.25, seed=2)
    pairs = pairs_of(rows, labels, 4)
    is_kept = cut_weights(pairs)[Cut.WITHOUT_20] > 0
    assert (labels != truth)[~is_kept].mean() > 0.85
    results = compare_cuts(pairs)
    assert chosen(results) in {Cut.WITHOUT_10, Cut.WITHOUT_20}
    best = max(results, key=lambda result: result.gain)
    assert best.is_chosen
    assert best.gain > best.standard_error > 0


def test_what_all_pairs_reach_is_the_cross_validated_accuracy() -> None:
    rows, labels, _ = mislabelled(120, 0.2, seed=3)
    pairs = pairs_of(rows, labels, 4)
    answers = cross_predict(rows, pairs.targets, pairs.folds, c=STUDENT_C).argmax(axis=1)
    assert compare_cuts(pairs)[0].accuracy == pytest.approx((answers == labels).mean())


def test_a_fold_has_no_say_in_what_it_is_measured_by() -> None:
    rows, labels, _ = mislabelled(80, 0.2, seed=4)
    pairs = pairs_of(rows, labels, 4)
    n_right = 0
    for fold in range(4):
        side, is_out = pairs.part(pairs.folds != fold), pairs.folds == fold
        kept = cut_weights(side)[Cut.WITHOUT_20] > 0
        head = fit_linear_head(side.rows[kept], side.targets[kept], c=STUDENT_C)
        n_right += int((head.logits(rows[is_out]).argmax(axis=1) == labels[is_out]).sum())
    (measured,) = [result.accuracy for result in compare_cuts(pairs) if result.cut is Cut.WITHOUT_20]
    assert measured == pytest.approx(n_right / 80)


def test_gold_stays_and_no_label_loses_more_than_half() -> None:
    rows, truth = clusters(100, 16, 4, seed=5, spread=0.5)
    labels = truth.copy()
    rare = np.arange(100) < 4
    labels[rare] = (truth[rare] + 1) % 4  # contradicts everything
    kept = cut_weights(pairs_of(rows, labels, 4, is_gold=rare))
    for cut in WITHOUT:
        assert (kept[cut][rare] > 0).all()
    assert (kept[Cut.HALF][rare] > 0).all()
    few = truth.copy()
    few[:] = 0
    few[:6] = 1
    kept = cut_weights(pairs_of(rows, few, 2))
    assert (kept[Cut.WITHOUT_20][:6] > 0).sum() >= 3


def test_each_cut_leaves_out_its_share() -> None:
    rows, labels, _ = mislabelled(101, 0.3, seed=6)
    kept = {cut: int((weights > 0).sum()) for cut, weights in cut_weights(pairs_of(rows, labels, 4)).items()}
    assert kept == {
        Cut.ALL: 101,
        Cut.WITHOUT_5: 96,
        Cut.WITHOUT_10: 91,
        Cut.WITHOUT_20: 81,
        Cut.CLASS_WEIGHTS: 101,
        Cut.HALF: 51,
    }


def test_rare_labels_weigh_more_up_to_four_times() -> None:
    rows, _ = clusters(100, 8, 2, seed=7)
    labels = (np.arange(100) < 30).astype(np.int64)
    weights = cut_weights(pairs_of(rows, labels, 2))[Cut.CLASS_WEIGHTS]
    np.testing.assert_allclose(weights[labels == 1], 50 / 30)
    np.testing.assert_allclose(weights[labels == 0], 50 / 70)
    one = cut_weights(pairs_of(rows, (np.arange(100) < 1).astype(np.int64), 2))[Cut.CLASS_WEIGHTS]
    assert one.max() == 4.0
    pairs = pairs_of(rows, labels, 2)
    shared = Pairs(
        rows=rows,
        targets=pairs.targets,
        folds=pairs.folds,
        weights=pairs.weights,
        is_gold=pairs.is_gold,
        shares=np.array([0.7, 0.3]),
    )
    np.testing.assert_allclose(cut_weights(shared)[Cut.CLASS_WEIGHTS], 1)


def test_no_order_of_the_pairs_changes_a_cut() -> None:
    rows, labels, _ = mislabelled(90, 0.2, seed=8)
    pairs, order = pairs_of(rows, labels, 4), np.random.default_rng(0).permutation(90)
    here, there = cut_weights(pairs), cut_weights(pairs.part(order))
    for cut in WITHOUT:
        np.testing.assert_array_equal(here[cut][order], there[cut])


@given(st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 3), st.booleans())
def test_any_pairs_have_one_cut(seed: int, n: int, n_labels: int, is_one_fold: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 3))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    rows[: n // 3] = 0.0
    pairs = Pairs(
        rows=rows,
        targets=rng.dirichlet(np.ones(n_labels), n),
        folds=np.zeros(n, dtype=np.int64) if is_one_fold else np.arange(n) % 3,
        weights=rng.integers(0, 2, n).astype(np.float64),
        is_gold=rng.random(n) < 0.2,
    )
    results = compare_cuts(pairs)
    assert [result.cut for result in results] == list(Cut)
    assert sum(result.is_chosen for result in results) == 1
    assert all(0 <= result.accuracy <= 1 and np.isfinite(result.gain) for result in results)
