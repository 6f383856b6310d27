"""A value with its interval against what it costs: what is up and to the left is better."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString

from backend.console.charts.frame import Write, figure, join, nothing, numbers_table, svg, text
from backend.console.charts.scales import compact, percent, share, written_ticks

TOP, FOOT = 14, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One point: `name` is its short mark on the plane, `label` what the table and the tip call it."""

    name: str
    label: str
    cost: float
    low: float
    value: float
    high: float


def trade_offs(
    outcomes: Sequence[Outcome],
    *,
    title: str,
    write: Write = compact,
    write_cost: Write = compact,
    height: int = 280,
) -> SafeString:
    """The cost runs to the right from zero; the value's axis holds every interval."""
    if not outcomes:
        return nothing(title)
    low, high = min(one.low for one in outcomes), max(one.high for one in outcomes)
    if low == high:
        low, high = min(0.0, low), max(1.0, high)
    dearest = max(one.cost for one in outcomes) or 1.0
    floor = height - FOOT

    def y_of(value: float) -> float:
        return round(floor - share(value, low, high) / 100 * (floor - TOP), 1)

    parts = [_level(y_of(tick), words, is_axis=False) for tick, words in written_ticks(low, high, write)]
    parts.append(_level(floor, "", is_axis=True))
    for tick, words in written_ticks(0, dearest, write_cost):
        parts.append(text(percent(_x_of(tick, dearest)), floor + 16, words, anchor="middle"))
    parts += [
        _mark(one, _x_of(one.cost, dearest), [y_of(v) for v in (one.low, one.value, one.high)]) for one in outcomes
    ]
    described = [f"{one.label} {write(one.value)} for {write_cost(one.cost)}" for one in outcomes]
    picture = svg(title=title, desc=", ".join(described), height=height, body=join(parts), kind="plotted")
    rows = [(f"{one.name} · {one.label}", [write_cost(one.cost), *map(write, (one.low, one.value, one.high))])
            for one in outcomes]  # fmt: skip
    return figure(picture, numbers_table(title, ["", "Cost", "Low", "Estimate", "High"], rows))


def _x_of(cost: float, dearest: float) -> float:
    return 3 + share(cost, 0, dearest) * 0.92


def _level(y: float, words: str, *, is_axis: bool) -> SafeString:
    rule = format_html(
        '<svg y="{}" width="100%" height="1" overflow="visible">'
        '<line class="{}" x1="0" x2="100%" y1="0.5" y2="0.5"/></svg>',
        y,
        "axis" if is_axis else "grid",
    )
    return join([text("-8", y + 4, words, anchor="end"), rule])


def _mark(one: Outcome, x: float, places: Sequence[float]) -> SafeString:
    low, value, high = places
    at = percent(x)
    return format_html(
        '<g><title>{}</title><line class="whisker" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<circle class="s1" cx="{}" cy="{}" r="4"/><svg x="{}" y="{}" overflow="visible">'
        '<text class="name" x="8" y="4">{}</text></svg></g>',
        one.label,
        at,
        at,
        low,
        high,
        at,
        value,
        at,
        value,
        one.name,
    )
