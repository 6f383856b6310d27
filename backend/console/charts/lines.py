"""Courses: a sparkline without a scale, and lines over one. The curves are drawn in a box that is stretched; strokes
and letters are not."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from backend.console.charts.frame import (
    MOST_ROWS,
    N_SERIES,
    Write,
    figure,
    join,
    legend,
    nothing,
    numbers_table,
    series_class,
    svg,
    text,
)
from backend.console.charts.points import SHAPES
from backend.console.charts.scales import Number, compact, finite, finites, percent, share, thin, written_ticks

Series = tuple[str, Sequence[tuple[Number, Number | None]]]
MOST_POINTS = 800  # of a course as it is drawn


def sparkline(values: Sequence[Number | None], *, title: str, desc: str = "", write: Write = compact) -> SafeString:
    """A small course from zero up, as wide as its place. Gaps are left where there is no value."""
    known = finites(values)
    if not known:
        return nothing(title)
    low, high = min(0.0, *known), max(0.0, *known)
    points = [
        (share(i, 0, len(values) - 1), None if finite(v) is None else 100 - share(v, low, high))
        for i, v in enumerate(values)
    ]
    if high == low:
        points = [(x, None if y is None else 100.0) for x, y in points]
    spoken = (
        desc or f"From {write(known[0])} to {write(known[-1])}, between {write(min(known))} and {write(max(known))}"
    )
    area = SafeString(f'<path class="area" d="{_area(points)}"/>')
    body = _inset(join([area, _path(points, "l1")]), 4, 36, is_stretched=True)
    last_x, last_y = next((x, y) for x, y in reversed(points) if y is not None)
    dot = SafeString(f'<circle class="s1" cx="{percent(last_x)}" cy="{round(4 + last_y * 0.36, 1)}" r="2.5"/>')
    return svg(title=title, desc=spoken, height=44, body=join([body, dot]), kind="spark")


def line(
    series: Sequence[Series],
    *,
    title: str,
    desc: str = "",
    write: Write = compact,
    write_x: Write = compact,
    height: int = 220,
    from_zero: bool = False,
    span: tuple[Number, Number] | None = None,
    marks: Sequence[Series] = (),
) -> SafeString:
    """`marks` are drawn as points, in the colours that follow; the table of numbers is of `series` alone. `span` is the
    axis where it is longer than what is known; a value without neighbours is a point."""
    known_x = finites(x for _, points in (*series, *marks) for x, y in points if finite(y) is not None)
    known_y = finites(y for _, points in (*series, *marks) for _, y in points)
    if not known_x or not known_y:
        return nothing(title)
    low, high = min(known_y), max(known_y)
    if from_zero or low == high:
        low, high = min(0.0, low), max(0.0, high)
    left, right = (float(end) for end in span) if span else (min(known_x), max(known_x))
    top, floor = 8, height - 22
    parts = [_scale_line(tick, low, high, top, floor, words) for tick, words in written_ticks(low, high, write)]
    curves = [
        _path(
            [(share(x, left, right), None if finite(y) is None else 100 - share(y, low, high)) for x, y in points],
            f"l{i % N_SERIES + 1}",
        )
        for i, (_, points) in enumerate(series)
    ]
    parts.append(_inset(join(curves), top, floor - top, is_stretched=True))
    places = [text(percent(share(x, left, right)), 15, words, anchor="middle")
        for x, words in written_ticks(left, right, write_x)]  # fmt: skip
    parts.append(_inset(join(places), floor, 20))
    alone = [(name, _without_neighbours(points)) for name, points in series]
    for i, (_, points) in enumerate([*alone, *marks]):
        drawn = [(share(x, left, right), share(y, low, high)) for x, y in points if finite(y) is not None]
        shown = [(x, y) for x, y in thin(drawn, MOST_POINTS) if y is not None]
        parts += [_mark(x, floor - y / 100 * (floor - top), i) for x, y in shown]
    spoken = desc or "; ".join(f"{name}: {_describe(points, write)}" for name, points in series)
    picture = svg(title=title, desc=spoken, height=height, body=join(parts), kind="plotted")
    names = [name for name, _ in (*series, *marks)]
    return figure(picture, _table(title, series, write, write_x), legend(names))


def _without_neighbours(points: Sequence[tuple[Number, Number | None]]) -> list[tuple[Number, Number | None]]:
    """The points that no line leads to or from."""
    is_known = [False, *(finite(y) is not None for _, y in points), False]
    return [point for i, point in enumerate(points) if is_known[i + 1] and not is_known[i] and not is_known[i + 2]]


def _describe(points: Sequence[tuple[Number, Number | None]], write: Write) -> str:
    known = finites(y for _, y in points)
    if not known:
        return "nothing"
    return f"from {write(known[0])} to {write(known[-1])}" if len(known) > 1 else write(known[0])


def _table(title: str, series: Sequence[Series], write: Write, write_x: Write) -> SafeString:
    values = [dict(points) for _, points in series]
    places = sorted({x for points in values for x in points if finite(x) is not None})
    every = -(-len(places) // MOST_ROWS) or 1
    rows = [(write_x(x), [write(points[x]) if x in points else "" for points in values]) for x in places[::every]]
    return numbers_table(title, ["", *(name for name, _ in series)], rows)


def _path(points: Sequence[tuple[float, float | None]], kind: str) -> SafeString:
    drawn, is_down = [], False
    for x, y in thin(points, MOST_POINTS):
        if y is None:
            is_down = False
            continue
        drawn.append(f"{'L' if is_down else 'M'}{x:.2f} {y:.2f}")
        is_down = True
    return SafeString(f'<path class="{kind}" vector-effect="non-scaling-stroke" d="{"".join(drawn)}"/>')


def _mark(x: float, y: float, index: int) -> SafeString:
    opening = f'<svg x="{percent(x)}" y="{y:.1f}" class="point {series_class(index)}" overflow="visible">'
    return SafeString(f"{opening}{SHAPES[index % N_SERIES]}</svg>")


def _area(points: Sequence[tuple[float, float | None]]) -> str:
    known = [(x, y) for x, y in thin(points, MOST_POINTS) if y is not None]
    return f"M{known[0][0]:.2f} 100" + "".join(f"L{x:.2f} {y:.2f}" for x, y in known) + f"L{known[-1][0]:.2f} 100Z"


def _inset(body: SafeString, y: float, height: float, *, is_stretched: bool = False) -> SafeString:
    box = ' viewBox="0 0 100 100" preserveAspectRatio="none"' if is_stretched else ""
    opening = f'<svg y="{y}" width="100%" height="{height}"{box} overflow="visible">'
    return join([SafeString(opening), body, SafeString("</svg>")])


def _scale_line(tick: float, low: float, high: float, top: float, floor: float, words: str) -> SafeString:
    y = round(floor - share(tick, low, high) / 100 * (floor - top), 1)
    rule = format_html('<line class="{}" x1="0" x2="100%" y1="0.5" y2="0.5"/>', "axis" if tick == low else "grid")
    return join([text("-8", y + 4, words, anchor="end"), _inset(rule, y, 1)])
