"""A map: points in the plane, told apart by group, by shape as well as by colour."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from backend.console.charts.frame import (
    EMPTY,
    N_SERIES,
    figure,
    join,
    nothing,
    numbers_table,
    series_class,
    shorten,
    svg,
)
from backend.console.charts.scales import finite, finites, percent, share

MOST_POINTS = 2_000  # of the map as it is drawn

# within a box of 12 around the point
SHAPES = (
    '<circle r="3.6"/>',
    '<rect x="-3.2" y="-3.2" width="6.4" height="6.4"/>',
    '<path d="M0 -4.4L4 3L-4 3Z"/>',
    '<path d="M0 -4.6L4.6 0L0 4.6L-4.6 0Z"/>',
    '<circle r="2.2"/>',
    '<path d="M-4 -1H-1V-4H1V-1H4V1H1V4H-1V1H-4Z"/>',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`group` is an index into the map's groups; `label` is shown when the mouse rests on it."""

    x: float
    y: float
    group: int = 0
    label: str = ""
    is_ringed: bool = False


def scatter(
    points: Sequence[Point], groups: Sequence[str], *, title: str, desc: str = "", height: int = 320
) -> SafeString:
    """Later groups are drawn first: what matters most is group 0 and lies on top. Axes have no scale: only nearness
    means something on such a map."""
    drawn = [point for point in points if finite(point.x) is not None and finite(point.y) is not None]
    if not drawn:
        return nothing(title)
    xs, ys = finites(p.x for p in drawn), finites(p.y for p in drawn)
    spans = (min(xs), max(xs), min(ys), max(ys))
    ordered = sorted(_sample(drawn), key=lambda point: -point.group)
    body = join([_frame(height), *(_mark(point, spans, height) for point in ordered)])
    counts = Counter(point.group for point in drawn)
    spoken = desc or ", ".join(f"{counts[i]} {name}" for i, name in enumerate(groups) if counts[i])
    picture = svg(title=title, desc=spoken, height=height, body=body, kind="map")
    table = numbers_table(title, ["Group", "Points"], [(name, [f"{counts[i]:,}"]) for i, name in enumerate(groups)])
    return figure(picture, table, _legend(groups))


def _sample(points: Sequence[Point]) -> Sequence[Point]:
    """Every n-th point where all would be too many for a page; those with a ring go first."""
    if len(points) <= MOST_POINTS:
        return points
    ringed, others = ([p for p in points if p.is_ringed is each] for each in (True, False))
    room = max(MOST_POINTS // 2, MOST_POINTS - len(ringed))
    return [*others[:: -(-len(others) // room) or 1], *ringed[: MOST_POINTS // 2]]


def _mark(point: Point, spans: tuple[float, float, float, float], height: int) -> SafeString:
    left, right, low, high = spans
    x = 2 + share(point.x, left, right) * 0.96
    y = 10 + (100 - share(point.y, low, high)) / 100 * (height - 20)
    shape = SafeString(SHAPES[point.group % N_SERIES])
    ring = SafeString('<circle class="ring" r="6"/>') if point.is_ringed else EMPTY
    tip = format_html("<title>{}</title>", shorten(point.label, 160)) if point.label else EMPTY
    return format_html(
        '<svg x="{}" y="{}" class="point {}" overflow="visible">{}{}{}</svg>',
        percent(x),
        f"{y:.1f}",
        series_class(point.group),
        tip,
        shape,
        ring,
    )


def _frame(height: int) -> SafeString:
    return SafeString(f'<rect class="plane" x="0" y="0" width="100%" height="{height}"/>')


def _legend(groups: Sequence[str]) -> SafeString:
    items = format_html_join(
        "",
        '<li><svg class="chart key" width="12" height="12" viewBox="-6 -6 12 12"><g class="{}">{}</g></svg>{}</li>',
        ((series_class(i), SafeString(SHAPES[i % N_SERIES]), name) for i, name in enumerate(groups)),
    )
    return format_html('<ul class="legend" aria-hidden="true">{}</ul>', items)
