"""Charts as SVG, made on the server: they need no script, print, follow the theme by CSS classes, and say in words and
in a table what they show. No inline style; every label is escaped.

    bars(rows, title=...)                     rows: (label, value)
    stacked_bars(rows, names, title=...)      rows: (label, [a value for each name])
    columns(rows, names, title=...)           the same, upright: time runs to the right
    funnel(stages, title=...)                 stages: (label, n) or (label, n, note)
    sparkline(values, title=...)
    line(series, title=...)                   series: (name, [(x, y), ...])
    scatter(points, groups, title=...)        points: Point(x, y, group, label)
    intervals(rows, title=...)                rows: (label, low, value, high)
    heat(matrix, rows, columns, title=...)
    card_figure(card, title=...)              a quality card's JSON
    trade_offs(outcomes, title=...)           outcomes: Outcome(name, label, cost, low, value, high)

`write` turns a number into text (`usd`, `pct`, ...). Coordinates are in per cent, so that a chart is as wide as its
place and its letters keep their size.
"""

from backend.console.charts.bars import bars, columns, funnel, intervals, stacked_bars
from backend.console.charts.cards import card_figure
from backend.console.charts.heat import heat
from backend.console.charts.lines import line, sparkline
from backend.console.charts.points import Point, scatter
from backend.console.charts.trade_offs import Outcome, trade_offs

__all__ = [
    "Outcome",
    "Point",
    "bars",
    "card_figure",
    "columns",
    "funnel",
    "heat",
    "intervals",
    "line",
    "scatter",
    "sparkline",
    "stacked_bars",
    "trade_offs",
]
