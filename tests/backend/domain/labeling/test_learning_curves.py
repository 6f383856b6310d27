import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.folds import cross_predict
from backend.domain.labeling.learning_curves import CURVE_C, CurvePoint, curve_points, fit_curve
from tests.backend.domain.labeling.test_linear_head import clusters, one_hot

SIZES = (50, 100, 200, 400)


def power_law(
    a: float, b: float, c: float, *, n_rows: int = 400, noise: float = 0.0, seed: int = 0
) -> list[CurvePoint]:
    rng = np.random.default_rng(seed)
    errors = [a + b * n**-c + noise * rng.standard_normal() for n in SIZES]
    return [
        CurvePoint(n=n, loss=2 * error, accuracy=1 - error, n_rows=n_rows)
        for n, error in zip(SIZES, errors, strict=True)
    ]


@pytest.mark.parametrize(("a", "b", "c"), [(0.1, 2.0, 0.6), (0.0, 1.0, 0.3), (0.05, 20.0, 1.2)])
def test_a_power_law_is_continued(a: float, b: float, c: float) -> None:
    curve = fit_curve(power_law(a, b, c))
    for more in (100, 400, 1_600):
        expected = 100 * b * (400**-c - (400 + more) ** -c)
        low, gain, high = curve.gain(400, more)
        assert gain == pytest.approx(expected, rel=0.02, abs=0.02)
        assert low <= gain <= high
    assert curve.error(400) == pytest.approx(a + b * 400**-c, abs=1e-3)


def test_four_of_five_gains_lie_between_low_and_high() -> None:
    """Errors with the noise that the draws assume: half of a share's variance on 400 rows."""
    true = 100 * 2.0 * (400**-0.6 - 800**-0.6)
    n_inside = 0
    for seed in range(40):
        curve = fit_curve(power_law(0.1, 2.0, 0.6, noise=(0.5 * 0.2 * 0.8 / 400) ** 0.5, seed=seed))
        low, _, high = curve.gain(400, 400)
        n_inside += low <= true <= high
    assert n_inside >= 28


def test_what_does_not_improve_is_flat() -> None:
    low, expected, high = fit_curve(power_law(0.2, 0.0, 0.5, n_rows=5_000)).gain(400, 400)
    assert low == expected == pytest.approx(0, abs=1e-9)
    assert high < 1.5
    worse = [CurvePoint(n=n, loss=0.5 + n / 1e4, accuracy=0.8 - n / 1e4, n_rows=500) for n in SIZES]
    assert fit_curve(worse).gain(400, 400)[1] == pytest.approx(0, abs=1e-9)


def test_more_rows_make_a_narrower_gain() -> None:
    few, many = fit_curve(power_law(0.1, 2.0, 0.6, n_rows=20)), fit_curve(power_law(0.1, 2.0, 0.6, n_rows=5_000))
    widths = [high - low for low, _, high in (few.gain(400, 400), many.gain(400, 400))]
    assert widths[0] > 2 * widths[1]


@pytest.mark.parametrize("points", [[], [CurvePoint(n=40, loss=1.0, accuracy=0.5, n_rows=40)] * 2])
def test_one_place_says_no_more_than_that_there_is_something_to_gain(points: list[CurvePoint]) -> None:
    curve = fit_curve(points)
    low, expected, high = curve.gain(40, 40)
    assert 0 < low < expected < high
    assert curve.error(40) == pytest.approx(0.5 if points else 40**-0.5)


def test_a_point_is_what_cross_prediction_says() -> None:
    rows, labels = clusters(90, 16, 3, seed=1)
    targets, folds = one_hot(labels, 3), np.arange(90) % 5
    point = curve_points(rows, targets, folds)[-1]
    predicted = cross_predict(rows, targets, folds, c=CURVE_C)
    assert (point.n, point.n_rows) == (72, 90)
    assert point.accuracy == pytest.approx((predicted.argmax(axis=1) == labels).mean())
    assert point.loss == pytest.approx(-np.log(predicted[np.arange(90), labels]).mean())


def test_points_grow_with_their_share_and_keep_under_any_order() -> None:
    rows, labels = clusters(200, 24, 4, seed=2)
    targets, folds = one_hot(labels, 4), np.arange(200) % 5
    points = curve_points(rows, targets, folds)
    sizes = [point.n for point in points]
    assert sizes == sorted(sizes)
    assert [abs(n - share * 160) < 30 for n, share in zip(sizes, (0.25, 0.5, 0.75, 1.0), strict=True)] == [True] * 4
    assert points[-1].accuracy > points[0].accuracy
    order = np.random.default_rng(0).permutation(200)
    for here, there in zip(points, curve_points(rows[order], targets[order], folds[order]), strict=True):
        assert (here.n, here.n_rows) == (there.n, there.n_rows)
        assert here.accuracy == pytest.approx(there.accuracy, abs=0.006)
        assert here.loss == pytest.approx(there.loss, abs=1e-3)


def test_weights_say_which_rows_are_learned_from_and_measured() -> None:
    rows, labels = clusters(80, 12, 2, seed=3)
    weights = np.repeat([1.0, 0.0], 40)
    folds = np.arange(80) % 4
    weighted = curve_points(rows, one_hot(labels, 2), folds, weights=weights)
    alone = curve_points(rows[:40], one_hot(labels[:40], 2), folds[:40])
    assert [point.n_rows for point in weighted] == [40] * len(alone)
    assert [point.loss for point in weighted] == pytest.approx([point.loss for point in alone], abs=1e-3)


def test_no_rows_give_no_points() -> None:
    assert curve_points(np.zeros((0, 4)), np.zeros((0, 2)), np.zeros(0, dtype=np.int64)) == []
    one = curve_points(np.ones((3, 4)), np.eye(2)[[0, 0, 1]], np.zeros(3, dtype=np.int64))
    assert one == []


@given(
    st.lists(
        st.builds(
            CurvePoint,
            n=st.integers(0, 1_000),
            loss=st.floats(0, 10),
            accuracy=st.floats(0, 1),
            n_rows=st.integers(0, 1_000),
        ),
        max_size=6,
    ),
    st.integers(0, 1_000),
    st.integers(0, 1_000),
)
def test_any_points_have_a_gain(points: list[CurvePoint], n: int, more: int) -> None:
    curve = fit_curve(points)
    low, expected, high = curve.gain(n, more)
    assert 0 <= low <= expected <= high < np.inf
    assert curve.gain(n, more + 10)[1] >= expected - 1e-9
    assert np.array_equal(fit_curve(points).draws, curve.draws)
