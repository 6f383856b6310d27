"""The accuracy to expect of a compile before it runs, by the learning curve of the customer's own examples, and what it
costs to go along that curve.

An interval has three parts, put together as independent: the curves that the points allow as well (`Curve.draws`), the
chance in which rows were there to be measured on, and a point for that a model of this form is not the truth. The first
two are widened by a factor that was chosen on two sets; docs/benchmarks/curves.md counts the truths within, on these
and on three others. Rows that a teacher writes are not the customer's own: they teach at most as much, so that what is
said of them is an upper end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from backend.domain.evaluation.classification import upper_place
from backend.domain.labeling.learning_curves import HIGH, LOW, PPM, Curve, CurvePoint, fit_curve, point_facts
from backend.domain.lifecycle import StepName
from backend.domain.planning.estimates import Estimate
from backend.domain.planning.own_curves import OwnCurve

LEAST_PER_LABEL = 5  # rows of a label, below which a power law says too little of more rows (docs/benchmarks/curves.md)
WIDER, FORM = 1.5, 0.01
TIMES = (1, 2, 4)  # as many rows as there are, and more
N_PLACES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Accuracy in [0, 1] of a model that learned from `n` rows: the expectation within a 90 % interval."""

    n: int
    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityForecast:
    """`own` is what the customer's training rows are worth alone, `more` as many again and four times as many of them;
    empty where there are too few rows a label to say. `planned` is what the compile reaches if each row that the
    teacher writes is worth one of those, along `places` from $0 to the plan's cost, in micro-USD. `needed` is the
    accuracy on the held-out rows that the gate asks for."""

    own: Expected
    more: tuple[Expected, ...]
    planned: Expected | None = None
    places: tuple[tuple[int, Expected], ...] = ()
    needed: float | None = None


def forecast_of(own: OwnCurve) -> QualityForecast:
    """The forecast without a plan."""
    here, *more = (expected_at(own, times * own.n_train) for times in TIMES)
    return QualityForecast(own=here, more=tuple(more) if says_more(own) else ())


def forecast_plan(own: OwnCurve, estimate: Estimate, *, accuracy_lower: float, confidence: float) -> QualityForecast:
    """The forecast of a compile with this estimate."""
    n_own, n_written = estimate.n_gold_train, estimate.n_written
    alone = QualityForecast(
        own=expected_at(own, n_own),
        more=tuple(expected_at(own, times * n_own) for times in TIMES[1:]) if says_more(own) else (),
        needed=accuracy_needed(accuracy_lower, estimate.n_heldout, confidence),
    )
    if not says_more(own) or not n_written or not n_own:
        return alone
    first, whole = cost_without_teacher(estimate), estimate.total.expected
    places = tuple(
        (round(first + share * (whole - first)), expected_at(own, round(n_own + share * n_written)))
        for share in np.linspace(0, 1, N_PLACES).tolist()
    )
    return QualityForecast(own=alone.own, more=alone.more, needed=alone.needed, planned=places[-1][1], places=places)


def says_more(own: OwnCurve) -> bool:
    """Say whether there are rows enough for a word on more of them."""
    return own.n_measured >= LEAST_PER_LABEL * own.n_labels and len({point.n for point in own.points}) > 1


def expected_at(own: OwnCurve, n: int) -> Expected:
    """The accuracy after n rows."""
    curve = fit_curve(own.points)
    expected = 1 - curve.error(n)
    low, high = _interval_of(curve, n)
    chance = NormalDist().inv_cdf(HIGH) * math.sqrt(max(expected * (1 - expected), 0.0) / own.n_measured)
    return Expected(
        n=n,
        low=max(0.0, expected - math.hypot(WIDER * (expected - low), WIDER * chance, FORM)),
        expected=max(0.0, expected),
        high=min(1.0, expected + math.hypot(WIDER * (high - expected), WIDER * chance, FORM)),
    )


def _interval_of(curve: Curve, n: int) -> tuple[float, float]:
    """The interval of the curves that the points allow, with the expectation in it."""
    a, b, c = np.vstack([curve.fit, curve.draws]).T
    accuracies = 1 - (a + b * float(max(n, 1)) ** -c)
    low, high = np.quantile(accuracies[1:], [LOW, HIGH]).tolist()
    return min(low, float(accuracies[0])), max(high, float(accuracies[0]))


def accuracy_needed(lower: float, n_heldout: int, confidence: float) -> float | None:
    """The accuracy on `n_heldout` rows whose Wilson interval begins at `lower`; None where not even 1 does."""
    if not n_heldout:
        return None
    z = NormalDist().inv_cdf(upper_place(confidence))
    needed = lower + z * math.sqrt(lower * (1 - lower) / n_heldout)
    return needed if needed <= 1 else None


def cost_without_teacher(estimate: Estimate) -> int:
    """The expected cost of training on the customer's own rows alone and of the evaluation, micro-USD."""
    n = estimate.n_gold_train + estimate.n_written
    share = estimate.n_gold_train / n if n else 0.0
    return round(estimate.steps[StepName.EVALUATION].expected + share * estimate.steps[StepName.DISTILLATION].expected)


def curve_json(own: OwnCurve) -> dict[str, Any]:
    """A curve as an upload keeps it."""
    return {
        "points": point_facts(own.points),
        "n_train": own.n_train,
        "n_measured": own.n_measured,
        "n_labels": own.n_labels,
    }


def curve_from(value: Mapping[str, Any]) -> OwnCurve:
    """The curve that `curve_json` wrote."""
    return OwnCurve(
        points=_points(value["points"]),
        n_train=value["n_train"],
        n_measured=value["n_measured"],
        n_labels=value["n_labels"],
    )


def _points(rows: Sequence[Mapping[str, int]]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(n=row["n"], n_rows=row["n_rows"], accuracy=row["accuracy_ppm"] / PPM, loss=row["loss_ppm"] / PPM)
        for row in rows
    )
