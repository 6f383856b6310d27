"""The acceptance curve: exact Bayes on its grid, falling with the distance, the same again from the same verdicts."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.calibration import (
    CEILINGS,
    DECAY,
    FLOOR,
    N_PARTICLES,
    SOURCE_CORRELATION,
    THRESHOLDS,
    WIDTHS,
    Curve,
    Curves,
    SourceCount,
    acceptance_after,
    curves_from_bytes,
    curves_to_bytes,
    distance_at,
    flat_curve,
    flat_curves,
    interval,
    learn_from,
    predict,
    predict_each,
    prior_curves,
    update,
)
from backend.domain.drafts.vocabulary import Kinship


def count(distance: float, n_shown: int, n_accepted: int, kinship: Kinship = Kinship.OTHER) -> SourceCount:
    return SourceCount(distance=distance, n_shown=n_shown, n_accepted=n_accepted, kinship=kinship)


@st.composite
def counts(draw: st.DrawFn) -> SourceCount:
    n_shown = draw(st.integers(0, 12))
    kinship = draw(st.sampled_from(Kinship))
    return count(draw(st.floats(0, 2)), n_shown, draw(st.integers(0, n_shown)), kinship)


slices = st.lists(st.lists(counts(), max_size=4), max_size=12)


def learnt(verdicts: Sequence[Sequence[SourceCount]]) -> Curve:
    curve = flat_curve()
    for each in verdicts:
        curve = update(curve, each)
    return curve


def learnt_curves(verdicts: Sequence[Sequence[SourceCount]]) -> Curves:
    curves = prior_curves()
    for each in verdicts:
        curves = learn_from(curves, each, prior_curves())
    return curves


def reference(verdicts: Sequence[Sequence[SourceCount]], distance: float) -> float:
    """Bayes by the book: every particle in turn, in plain floats."""
    particles = [(t, w, c) for t in THRESHOLDS for w in WIDTHS for c in CEILINGS]

    def acceptance(particle: tuple[float, float, float], d: float) -> float:
        threshold, width, ceiling = particle
        return float(FLOOR + (ceiling - FLOOR) / (1 + math.exp((d - threshold) / width)))

    logs = []
    for particle in particles:
        total = 0.0
        for age, each in enumerate(reversed(verdicts)):
            for c in each:
                a = acceptance(particle, c.distance)
                weight = 1 / (1 + (c.n_shown - 1) * SOURCE_CORRELATION) if c.n_shown else 0.0
                likelihood = c.n_accepted * math.log(a) + (c.n_shown - c.n_accepted) * math.log(1 - a)
                total += (1 - DECAY) ** age * weight * likelihood
        logs.append(total)
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    means = [acceptance(particle, distance) for particle in particles]
    return math.fsum(w * m for w, m in zip(weights, means, strict=True)) / math.fsum(weights)


@given(verdicts=slices, distance=st.floats(0, 2))
def test_the_estimate_is_bayes_with_each_slice_weighing_less_by_its_age_alone(
    verdicts: list[list[SourceCount]], distance: float
) -> None:
    """So the order of slices matters only through decay."""
    assert predict(learnt(verdicts), [distance])[0] == pytest.approx(reference(verdicts, distance), abs=1e-4)


@given(verdicts=slices, distances=st.lists(st.floats(0, 2), min_size=2, max_size=20))
def test_the_estimate_never_rises_with_the_distance(verdicts: list[list[SourceCount]], distances: list[float]) -> None:
    found = predict(learnt(verdicts), sorted(distances))
    assert (np.diff(found) <= 1e-12).all()
    assert (found > 0).all()
    assert (found < 1).all()


@given(verdicts=slices)
def test_curves_come_back_from_their_bytes_exactly(verdicts: list[list[SourceCount]]) -> None:
    curves = learnt_curves(verdicts)
    data = curves_to_bytes(curves)
    again = curves_from_bytes(data)
    assert len(data) == 13_334
    assert curves_to_bytes(again) == data
    for kinship in Kinship:
        assert np.array_equal(again.of(kinship).log_posterior, curves.of(kinship).log_posterior)
        n_verdicts = sum(c.n_shown for each in verdicts for c in each if c.kinship is kinship)
        assert again.of(kinship).n_observations == n_verdicts
    assert again.n_observations == sum(c.n_shown for each in verdicts for c in each)


@given(verdicts=slices)
def test_the_same_verdicts_replayed_make_the_same_bytes_also_by_way_of_storage(
    verdicts: list[list[SourceCount]],
) -> None:
    stored = prior_curves()
    for each in verdicts:
        stored = curves_from_bytes(curves_to_bytes(learn_from(stored, each, prior_curves())))
    assert curves_to_bytes(learnt_curves(verdicts)) == curves_to_bytes(stored)


@given(verdicts=slices, kinship=st.sampled_from(Kinship))
def test_a_curve_learns_from_its_own_kin_alone(verdicts: list[list[SourceCount]], kinship: Kinship) -> None:
    own = [kin for each in verdicts if (kin := [c for c in each if c.kinship is kinship])]
    alone, among = learnt_curves(own).of(kinship), learnt_curves(verdicts).of(kinship)
    assert np.array_equal(alone.log_posterior, among.log_posterior)


def test_what_a_curve_forgets_leads_back_to_its_prior() -> None:
    prior = prior_curves().slice
    curve = prior
    for _ in range(30):
        curve = update(curve, [count(0.2, 8, 0)], prior)
    low = predict(curve, [0.2])[0]
    for _ in range(3000):
        curve = update(curve, [], prior)
    assert low < 0.1
    assert predict(curve, [0.2])[0] == pytest.approx(predict(prior, [0.2])[0], abs=0.01)


def test_kin_is_expected_to_be_accepted_until_two_slices_refuse() -> None:
    """At the distances of slices that share a task: closer kin more, and never more than what one slice can undo."""
    start = prior_curves()
    for distance in (0.05, 0.2, 0.35):
        same, label, other = predict_each(start, [(kinship, distance) for kinship in Kinship])
        assert same > label > other
        assert same > 0.6 > 2 * other
        refused = start
        for _ in range(2):
            refused = learn_from(refused, [count(distance, 8, 0, Kinship.SLICE)], start)
        assert predict(refused.slice, [distance])[0] < 0.45


def test_there_are_1110_particles_and_a_flat_curve_weighs_them_alike() -> None:
    assert N_PARTICLES == 1110
    assert np.exp(flat_curve().log_posterior.astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)
    assert flat_curve().n_observations == 0


FLAT = curves_to_bytes(flat_curves())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        FLAT[:-1],
        FLAT + b"\0",
        b"\x01\x00" + FLAT[2:],
        FLAT[:-4] + np.array([np.nan], dtype="<f4").tobytes(),
        FLAT[:-4] + np.array([3.0], dtype="<f4").tobytes(),
        FLAT[: 14 + 4 * N_PARTICLES] + bytes(4 * N_PARTICLES) + FLAT[14 + 8 * N_PARTICLES :],
    ],
)
def test_bytes_that_are_no_curves_of_this_grid_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="curve"):
        curves_from_bytes(data)


@pytest.mark.parametrize(("distance", "n_shown", "n_accepted"), [(math.nan, 1, 1), (0.1, 1, 2), (0.1, 2, -1)])
def test_a_count_that_cannot_be_never_reaches_a_curve(distance: float, n_shown: int, n_accepted: int) -> None:
    with pytest.raises(ValueError, match="not a count"):
        count(distance, n_shown, n_accepted)


def test_drafts_of_one_source_are_nearly_one_observation() -> None:
    of_one = predict(learnt([[count(0.3, 8, 8)]]), [0.3])[0]
    of_eight = predict(learnt([[count(0.3, 1, 1)] * 8]), [0.3])[0]
    of_a_single = predict(learnt([[count(0.3, 1, 1)]]), [0.3])[0]
    assert of_a_single < of_one < of_eight


def test_the_curve_finds_the_law_that_its_verdicts_follow() -> None:
    """1,000 slices, one source each, a sigmoid at .35 with ceiling .9; mean absolute error of the estimate."""
    rng = random.Random(5)

    def law(d: float) -> float:
        return 0.02 + 0.88 / (1 + math.exp((d - 0.35) / 0.05))

    verdicts = []
    for _ in range(1000):
        distance = rng.uniform(0, 0.8)
        verdicts.append([count(distance, 1, int(rng.random() < law(distance)))])
    grid = [i / 50 for i in range(40)]
    errors = [abs(p - law(d)) for p, d in zip(predict(learnt(verdicts), grid), grid, strict=True)]
    assert sum(errors) / len(errors) < 0.03


def test_a_curve_follows_a_teacher_that_changed_because_it_forgets() -> None:
    curve = learnt([[count(0.2, 4, 4)]] * 300)
    assert predict(curve, [0.2])[0] > 0.9
    for _ in range(40):
        curve = update(curve, [count(0.2, 4, 0)])
    assert predict(curve, [0.2])[0] < 0.9
    for _ in range(260):
        curve = update(curve, [count(0.2, 4, 0)])
    assert predict(curve, [0.2])[0] < 0.3, "all verdicts alike would say one half"


@given(acceptance=st.floats(0.01, 0.99), n_shown=st.integers(0, 12), data=st.data())
def test_what_a_source_just_said_moves_its_next_draft_towards_it(
    acceptance: float, n_shown: int, data: st.DataObject
) -> None:
    n_accepted = data.draw(st.integers(0, n_shown))
    after = acceptance_after(acceptance, n_shown, n_accepted)
    said = n_accepted / n_shown if n_shown else acceptance
    assert min(acceptance, said) - 1e-12 <= after <= max(acceptance, said) + 1e-12


@given(verdicts=slices, acceptance=st.floats(0.01, 0.9))
def test_the_threshold_in_force_is_where_the_estimate_crosses(
    verdicts: list[list[SourceCount]], acceptance: float
) -> None:
    curve = learnt(verdicts)
    at = distance_at(curve, acceptance)
    if at is None:
        assert predict(curve, [0.0])[0] < acceptance
    else:
        assert predict(curve, [at])[0] >= acceptance
        assert at == 2.0 or predict(curve, [at + 1e-5])[0] < acceptance


@given(verdicts=slices, distance=st.floats(0, 1))
def test_an_interval_is_within_zero_and_one_and_widens_with_its_level(
    verdicts: list[list[SourceCount]], distance: float
) -> None:
    curve = learnt(verdicts)
    narrow, wide = interval(curve, distance, 0.5), interval(curve, distance, 0.95)
    assert 0 < wide[0] <= narrow[0] <= narrow[1] <= wide[1] < 1


def test_the_interval_narrows_around_the_truth_with_verdicts() -> None:
    low, high = interval(flat_curve(), 0.2, 0.95)
    assert high - low > 0.8
    low, high = interval(learnt([[count(0.2, 10, 7)] for _ in range(100)]), 0.2, 0.95)
    assert low <= 0.7 <= high
    assert high - low < 0.25
