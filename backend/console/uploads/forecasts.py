"""The quality and cost that a compile may be expected to have, as the guided compile and the page of an upload show
them: sentences and a curve, or why there are none yet."""

from dataclasses import dataclass

from django.utils.safestring import SafeString

from backend.compiles.models import Upload
from backend.compiles.uploads.curves import curve_of
from backend.console.charts import line
from backend.console.compiles.editor import Checked
from backend.domain.labeling.learning_curves import PPM
from backend.domain.number_words import interval, percent, points, usd
from backend.domain.planning.quality_forecast import (
    Expected,
    QualityForecast,
    cost_without_teacher,
    forecast_of,
    forecast_plan,
)
from backend.domain.spec.parsing import LabelOutput

TITLE = "Accuracy to expect"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForecast:
    """`is_pending` while a worker measures; else sentences, most important first, with a chart, or a `reason`."""

    is_pending: bool = False
    reason: str = ""
    sentences: tuple[str, ...] = ()
    warning: str = ""
    chart: SafeString | None = None


def forecast_of_upload(upload: Upload) -> ShownForecast:
    """The worth of an upload's rows, without a plan."""
    answer = curve_of(upload)
    if answer.curve is None:
        return ShownForecast(is_pending=answer.is_pending, reason=answer.reason)
    curve = answer.curve
    measured = [(point.n, point.accuracy) for point in curve.points]
    forecast = forecast_of(curve)
    ahead = [(one.n, one.expected) for one in (forecast.own, *forecast.more)] if forecast.more else []
    chart = line(
        [("measured", measured), *([("expected", ahead)] if ahead else [])],
        title="Accuracy over training examples",
        write=_percent,
        write_x=lambda value: f"{value:,.0f}",
    )
    return ShownForecast(sentences=(_alone(forecast.own), *_more(forecast)), chart=chart)


def forecast_of_compile(upload: Upload, checked: Checked | None) -> ShownForecast | None:
    """The accuracy that a checked spec is expected to reach, over its cost; None where its task has no labels."""
    if checked is None or checked.spec is None or checked.estimate is None:
        return None
    if not isinstance(checked.spec.output, LabelOutput):
        return None
    answer = curve_of(upload)
    if answer.curve is None:
        return ShownForecast(is_pending=answer.is_pending, reason=answer.reason)
    gate, estimate = checked.spec.gate, checked.estimate
    forecast = forecast_plan(answer.curve, estimate, accuracy_lower=gate.accuracy_lower, confidence=gate.confidence)
    planned = ()
    if forecast.planned is not None:
        more = f"With the teacher's {estimate.n_written:,} rows, {usd(estimate.total.expected)} in all: up to about "
        planned = (f"{more}{_share(forecast.planned)}, if they teach as much as your own.",)
    return ShownForecast(
        sentences=(_alone(forecast.own), *planned, *_more(forecast)),
        warning=_warning(forecast, estimate.n_heldout, gate.accuracy_lower),
        chart=_cost_chart(forecast, cost_without_teacher(estimate)),
    )


def _cost_chart(forecast: QualityForecast, first: int) -> SafeString | None:
    if not forecast.places:
        return None
    reached = [(microusd / PPM, one.expected) for microusd, one in forecast.places]
    best = [(microusd / PPM, one.high) for microusd, one in forecast.places]
    alone = [(first / PPM, forecast.own.expected), (reached[-1][0], forecast.own.expected)]
    return line(
        [("teacher's rows as good as yours", reached), ("your rows alone", alone), ("upper end, 90 %", best)],
        title="Accuracy to expect over the cost",
        write=_percent,
        write_x=lambda value: usd(round(value * PPM)),
    )


def _alone(own: Expected) -> str:
    return f"Your {own.n:,} training examples alone: about {_share(own)} of answers right."


def _more(forecast: QualityForecast) -> tuple[str, ...]:
    if not forecast.more:
        return ("There are too few examples of each label to say what more would bring: add examples first.",)
    twice = forecast.more[0]
    gain = points(round((twice.expected - forecast.own.expected) * PPM))
    return (f"Twice as many examples of your own: about {_share(twice)} ({gain} points).",)


def _warning(forecast: QualityForecast, n_heldout: int, lower: float) -> str:
    """The sentence about a gate that the compile will hardly pass, or none."""
    asked = f"The gate asks for a lower bound of {_percent(lower)}"
    if forecast.needed is None:
        return f"{asked}, which {n_heldout:,} held-out examples cannot show: hold out more."
    best = forecast.planned or forecast.own
    needed = f"{asked}: with {n_heldout:,} held-out examples that takes {_percent(forecast.needed)} right"
    if best.high < forecast.needed:
        return f"{needed}, more than is to be expected. Add examples or lower gate.accuracy_lower in the YAML."
    if best.expected < forecast.needed:
        return f"{needed}, which is possible but not likely. More examples of your own help most."
    return ""


def _share(one: Expected) -> str:
    return f"{_percent(one.expected)} {interval(round(one.low * PPM), round(one.high * PPM))}"


def _percent(share: float) -> str:
    return percent(round(share * PPM))
