"""The map of a compile's candidates: their embeddings on the two directions in which they differ most.

Server-made SVG without a style of its own. At most MAX_POINTS are drawn: every pick there is room for, then others in
the order of their text's hash, which is a fair sample; what was left out is said. Texts that failed a check have no
embedding and no place here.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

import numpy as np
from django.core.cache import cache
from django.db.models import Case, Value, When
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from numpy.typing import NDArray
from redis import RedisError

from backend.compiles.models import Candidate, Compile
from backend.console.compiles.slices import PICKED, Pool
from backend.domain.answers.candidates import Origin

MAX_POINTS = 2_000
MAX_TITLES = 60  # picks that tell their text under the pointer
MAX_NAMES = 12
WIDTH, HEIGHT, MARGIN = 1000, 460, 30
CACHED_S = 3_600
_TITLE_CHARS = 90

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: float
    is_kept: bool
    is_draft: bool
    slice_id: UUID
    cluster: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateMap:
    svg: SafeString
    n_placed: int  # candidates that have a place, drawn or not
    n_kept: int
    n_dropped: int
    n_draft_kept: int
    n_draft_dropped: int
    share_x: int  # percent of the variance
    share_y: int

    @property
    def n_drawn(self) -> int:
        return self.n_kept + self.n_dropped + self.n_draft_kept + self.n_draft_dropped


def candidate_map(row: Compile, pools: Sequence[Pool], *, of_slice: UUID | None = None) -> CandidateMap | None:
    """Return the map of all slices, or of one; None where fewer than three candidates have an embedding."""
    key = f"console-map/{row.tenant_id}/{row.id}/{row.version}/{row.event_seq}/{of_slice}"
    try:
        kept = cache.get(key)
    except RedisError:  # without the cache: drawn again
        return _make(row, pools, of_slice)
    if kept is not None:
        return CandidateMap(**kept | {"svg": mark_safe(kept["svg"])}) if kept else None
    drawn_map = _make(row, pools, of_slice)
    with contextlib.suppress(RedisError):
        cache.set(key, asdict(drawn_map) if drawn_map else {}, CACHED_S)
    return drawn_map


def _make(row: Compile, pools: Sequence[Pool], of_slice: UUID | None) -> CandidateMap | None:
    rows = Candidate.objects.of_tenant(row.tenant_id).filter(compile=row, embedding__isnull=False)
    if of_slice is not None:
        rows = rows.filter(slice_id=of_slice)
    columns = ("embedding", "state", "origin", "slice_id", "cluster", "text")
    is_picked = Case(When(state__in=PICKED, then=Value(0)), default=Value(1))
    drawn = list(rows.order_by(is_picked, "text_key").values_list(*columns)[:MAX_POINTS])
    if len(drawn) < 3 or len({len(bytes(entry[0])) for entry in drawn}) != 1:
        return None
    vectors = np.stack([np.frombuffer(bytes(entry[0]), dtype=np.float32) for entry in drawn])
    places, shares = principal_plane(vectors)
    xs, ys = _fit(places)
    points = [
        Point(
            x=x, y=y, is_kept=state in PICKED, is_draft=origin == Origin.DRAFT, slice_id=slice_id, cluster=c, text=text
        )
        for (_, state, origin, slice_id, c, text), x, y in zip(drawn, xs, ys, strict=True)
    ]
    n_placed = len(drawn) if len(drawn) < MAX_POINTS else rows.count()
    counts = Counter((p.is_kept, p.is_draft) for p in points)
    return CandidateMap(
        svg=_svg(points, pools, is_one=of_slice is not None),
        n_placed=n_placed,
        n_kept=counts[True, False],
        n_dropped=counts[False, False],
        n_draft_kept=counts[True, True],
        n_draft_dropped=counts[False, True],
        share_x=round(100 * shares[0]),
        share_y=round(100 * shares[1]),
    )


def principal_plane(rows: NDArray[np.float32]) -> tuple[Floats, tuple[float, float]]:
    """(n, 2) places on the first two principal components and the shares of the variance they hold. A component points
    to where its largest loading is positive, so that a picture does not flip between two looks."""
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    n, d = centred.shape
    square = centred @ centred.T if n <= d else centred.T @ centred
    values, vectors = np.linalg.eigh(square)
    total = float(np.maximum(values, 0.0).sum())
    if total <= 1e-12 * n:
        return np.zeros((n, 2)), (0.0, 0.0)
    top = vectors[:, ::-1][:, :2]
    loadings = centred.T @ top if n <= d else top
    norms = np.linalg.norm(loadings, axis=0)
    loadings = loadings / np.where(norms > 1e-12, norms, 1.0)
    signs = np.sign(loadings[np.abs(loadings).argmax(axis=0), np.arange(loadings.shape[1])])
    places = centred @ (loadings * signs)
    if places.shape[1] < 2:
        places = np.column_stack([places, np.zeros(n)])
    first, second = (float(max(value, 0.0)) / total for value in (values[-1], values[-2] if len(values) > 1 else 0.0))
    return places, (first, second)


def _fit(places: Floats) -> tuple[list[float], list[float]]:
    """Places on the paper, either axis stretched by itself."""
    axes = []
    for axis, size in ((0, WIDTH), (1, HEIGHT)):
        column = places[:, axis]
        low, high = float(column.min()), float(column.max())
        span = high - low
        unit = (column - low) / span if span > 1e-12 else np.full(len(column), 0.5)
        axes.append(np.round(MARGIN + unit * (size - 2 * MARGIN), 1).tolist())
    return axes[0], axes[1]


# --- drawing ----------------------------------------------------------------------------------------------------------


def _svg(points: Sequence[Point], pools: Sequence[Pool], *, is_one: bool) -> SafeString:
    n_kept = sum(p.is_kept for p in points)
    parts = [
        format_html(
            '<svg class="map" viewBox="0 0 {} {}" role="img" aria-labelledby="map-title map-desc">'
            '<title id="map-title">Map of the candidates</title><desc id="map-desc">{} candidates by similarity '
            "of their texts, {} of them kept. Nearby points are similar.</desc>",
            WIDTH,
            HEIGHT,
            len(points),
            n_kept,
        ),
        *(_gaps(points, pools)),
        *(_clusters(points) if is_one else ()),
        _many("map-dropped", (p for p in points if not p.is_kept and not p.is_draft), "h0"),
        _many("map-dropped-draft", (p for p in points if not p.is_kept and p.is_draft), "m-3.5 3h7l-3.5-6.5z"),
        *_kept_points(points),
        *(() if is_one else _names(points, pools)),
        mark_safe("</svg>"),
    ]
    return mark_safe("".join(parts))  # each part is escaped by format_html


def _many(name: str, points: Iterable[Point], shape: str) -> SafeString:
    """One path for all points of a kind: ten bytes a point."""
    path = "".join(f"M{p.x:g} {p.y:g}{shape}" for p in points)
    return format_html('<path class="{}" d="{}"/>', name, path) if path else mark_safe("")


def _kept_points(points: Sequence[Point]) -> Iterator[SafeString]:
    kept = [p for p in points if p.is_kept]
    for p in kept[:MAX_TITLES]:
        text = p.text if len(p.text) <= _TITLE_CHARS else p.text[:_TITLE_CHARS] + "…"
        if p.is_draft:
            mark = format_html('<path class="map-draft" d="M{} {}l-6 10.5h12z"/>', f"{p.x:g}", f"{p.y - 7:g}")
        else:
            mark = format_html('<circle class="map-kept" cx="{}" cy="{}" r="5"/>', f"{p.x:g}", f"{p.y:g}")
        yield format_html("<g><title>{}</title>{}</g>", text, mark)
    rest = kept[MAX_TITLES:]
    yield _many("map-kept", (p for p in rest if not p.is_draft), "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0")
    yield _many("map-draft", (p for p in rest if p.is_draft), "m0-7l-6 10.5h12z")


def _gaps(points: Sequence[Point], pools: Sequence[Pool]) -> Iterator[SafeString]:
    """A dashed outline around a slice that holds fewer distinct candidates than were asked of it."""
    for pool in pools:
        mine = [(p.x, p.y) for p in points if p.slice_id == pool.row.id]
        if pool.has_gap and mine:
            yield format_html(
                '<path class="map-gap" d="{}"><title>{}</title></path>',
                _outline(hull(mine)),
                f"cluster gap in {pool.row.name}: {pool.forced.get('n_groups')} distinct groups for "
                f"K = {pool.row.k_requested}",
            )


def _clusters(points: Sequence[Point]) -> Iterator[SafeString]:
    """Return the clusters of one slice: those that selection saw."""
    for cluster in sorted({p.cluster for p in points if p.cluster is not None and p.cluster >= 0}):
        mine = [(p.x, p.y) for p in points if p.cluster == cluster]
        if len(mine) > 1:
            yield format_html(
                '<path class="map-cluster" d="{}"><title>cluster {}, {} candidates</title></path>',
                _outline(hull(mine)),
                cluster,
                len(mine),
            )


def _names(points: Sequence[Point], pools: Sequence[Pool]) -> Iterator[SafeString]:
    """Each slice's name where its middle is, moved down where another name stands."""
    taken: list[tuple[float, float]] = []
    for pool in list(pools)[:MAX_NAMES]:
        mine = [p for p in points if p.slice_id == pool.row.id]
        if not mine:
            continue
        x = min(max(float(np.median([p.x for p in mine])), 70.0), WIDTH - 70.0)
        y = float(np.median([p.y for p in mine]))
        while any(abs(x - a) < 130 and abs(y - b) < 16 for a, b in taken):
            y += 16
        y = min(y, HEIGHT - 6.0)
        taken.append((x, y))
        yield format_html(
            '<text class="map-name" x="{}" y="{}" text-anchor="middle">{}</text>',
            f"{x:.0f}",
            f"{y:.0f}",
            pool.row.name[:28],
        )


def hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The convex outline, counter-clockwise (Andrew's monotone chain)."""
    ordered = sorted(set(points))
    if len(ordered) < 3:
        return ordered

    def half(walk: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        outline: list[tuple[float, float]] = []
        for p in walk:
            while len(outline) > 1 and _turn(outline[-2], outline[-1], p) <= 0:
                outline.pop()
            outline.append(p)
        return outline[:-1]

    return half(ordered) + half(reversed(ordered))


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _outline(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in corners) + "z"
