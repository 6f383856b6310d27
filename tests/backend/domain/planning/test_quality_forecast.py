"""The accuracy that is said before a compile: within its interval, along the plan's cost, beside what the gate asks."""

import pytest

from backend.domain.evaluation.classification import wilson_interval
from backend.domain.labeling.learning_curves import CurvePoint
from backend.domain.planning.estimates import Estimate, estimate
from backend.domain.planning.own_curves import OwnCurve
from backend.domain.planning.quality_forecast import (
    accuracy_needed,
    cost_without_teacher,
    curve_from,
    curve_json,
    expected_at,
    forecast_of,
    forecast_plan,
)
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import small_spec


def curve(*, n_labels: int = 4, n: int = 400, sizes: tuple[int, ...] = (80, 160, 240, 320)) -> OwnCurve:
    points = tuple(
        CurvePoint(n=size, n_rows=n, accuracy=1 - 0.05 - 2 * size**-0.6, loss=0.1 + 4 * size**-0.6) for size in sizes
    )
    return OwnCurve(points=points, n_train=n, n_measured=n, n_labels=n_labels)


def planned() -> Estimate:
    return estimate(parse_spec(small_spec()), n_gold_train=200, n_heldout=200)


def test_a_curve_is_read_as_it_was_written() -> None:
    once = curve_from(curve_json(curve()))
    assert curve_json(once) == curve_json(curve())


def test_more_rows_of_ones_own_are_worth_more_and_what_is_expected_lies_in_its_interval() -> None:
    forecast = forecast_of(curve())
    said = [forecast.own, *forecast.more]
    assert [one.n for one in said] == [400, 800, 1_600]
    assert said[0].expected < said[1].expected < said[2].expected
    for one in said:
        assert 0 <= one.low < one.expected < one.high <= 1
    assert said[0].expected == pytest.approx(1 - 0.05 - 2 * 400**-0.6, abs=0.005)


def test_fewer_measured_rows_mean_a_wider_interval() -> None:
    few, many = (OwnCurve(points=curve().points, n_train=400, n_measured=n, n_labels=4) for n in (60, 1_000))
    assert expected_at(few, 400).low < expected_at(many, 400).low
    assert expected_at(few, 400).high > expected_at(many, 400).high


@pytest.mark.parametrize("own", [curve(n_labels=81), curve(sizes=(320,))], ids=["few a label", "one point"])
def test_nothing_is_said_of_more_rows_where_the_curve_cannot_know(own: OwnCurve) -> None:
    assert forecast_of(own).more == ()
    plan = forecast_plan(own, planned(), accuracy_lower=0.8, confidence=0.95)
    assert plan.planned is None
    assert plan.places == ()
    assert plan.own.n == 200


def test_a_plan_goes_from_the_training_alone_to_the_whole_estimate() -> None:
    spent = planned()
    plan = forecast_plan(curve(), spent, accuracy_lower=0.8, confidence=0.95)
    costs = [cost for cost, _ in plan.places]
    reached = [one.expected for _, one in plan.places]
    assert costs[0] == cost_without_teacher(spent) < costs[-1] == spent.total.expected
    assert costs == sorted(costs)
    assert reached == sorted(reached)
    assert plan.places[0][1] == plan.own
    assert plan.planned is not None
    assert plan.planned.n == 200 + spent.n_written


@pytest.mark.parametrize(("lower", "n"), [(0.8, 50), (0.8, 200), (0.5, 20), (0.95, 400)])
def test_the_accuracy_needed_is_the_least_whose_interval_begins_at_the_floor(lower: float, n: int) -> None:
    needed = accuracy_needed(lower, n, 0.95)
    assert needed is not None
    assert wilson_interval(needed * n, n)[0] == pytest.approx(lower, abs=1e-6)


def test_a_floor_that_no_answers_can_show_is_none() -> None:
    assert accuracy_needed(0.8, 5, 0.95) is None
    assert accuracy_needed(0.8, 0, 0.95) is None
