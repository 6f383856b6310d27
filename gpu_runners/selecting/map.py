"""A selection as a picture: every row on the pool's first two principal components, kept ones filled, dropped ones
hollow, those below the score floor as crosses.

Here is what is drawn and where; `svg` writes it. Up to DETAILED rows each mark stands for
itself (its size is its score, its tooltip its id and text); above, marks are dots that grow denser.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_runners.selecting.principal_plane import principal_plane

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[np.floating[Any]]

WIDTH, HEIGHT = 960, 760
LEFT, RIGHT, BOTTOM = 30.0, 930.0, 716.0  # of the plot; the legend lies above it, the note below
TOP, TOP_UNDER_SWATCHES = 78.0, 102.0
PLOT_PADDING = 22.0
DETAILED = 5_000
LINKED = 400  # rows up to which a line joins a dropped row to the pick of its cluster
MAX_COLOURS = 6
TIP_CHARACTERS = 140
OWN, NEUTRAL = -1, -2  # beside the indices into the palette
LEGEND_Y, SWATCH_Y, NOTE_Y = 60.0, 84.0, 740.0
_NAME_CHARACTERS = 22


class Kind(StrEnum):
    """The look of a mark."""

    DISC = "disc"
    RING = "ring"
    CROSS = "cross"


class Fate(StrEnum):
    """The fate of a row; the order in which they are drawn."""

    FLOOR = "floor"
    DROPPED = "dropped"
    KEPT = "kept"


KINDS = {Fate.FLOOR: Kind.CROSS, Fate.DROPPED: Kind.RING, Fate.KEPT: Kind.DISC}
_SIZES = {Fate.FLOOR: 0.75, Fate.DROPPED: 1.0, Fate.KEPT: 1.15}
_WORDS = {Fate.FLOOR: "below the score floor", Fate.DROPPED: "dropped", Fate.KEPT: "kept"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Marks of one fate, in pixels. `colour` (m,) is an index into the palette or OWN; `tips` is empty
    where the marks are too many for tooltips."""

    fate: Fate
    kind: Kind
    x: Floats
    y: Floats
    radius: Floats
    colour: Ints
    opacity: float
    tips: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A piece of the legend or the note at the foot; with `fate` a sample mark stands left of it, in the fate's own
    colour (OWN), in ink (NEUTRAL, where colours mean something else) or in one of the palette."""

    x: float
    y: float
    text: str
    fate: Fate | None = None
    colour: int = OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`top` is the plot's upper edge; `links` (m, 4) are lines x0, y0, x1, y1 under the marks."""

    title: str
    top: float
    words: tuple[Words, ...]
    links: Floats
    layers: tuple[Layer, ...]
    is_detailed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A selection as it is to be drawn: `rows` (n, d) unit rows, `picks` indices, best first, `clusters` (n,) numbers,
    -1 for none, `labels` and `scores` None where there are none. Labels colour the marks; without any, clusters do."""

    rows: Rows
    picks: Sequence[int]
    below_floor: Sequence[int]
    clusters: Sequence[int]
    labels: Sequence[str] | None
    scores: Sequence[float] | None
    ids: Sequence[str]
    texts: Sequence[str]
    method: str
    k: int


def picture_of(mapped: Mapped) -> Picture:
    n = len(mapped.rows)
    fates = np.full(n, Fate.DROPPED, dtype=object)
    fates[list(mapped.below_floor)] = Fate.FLOOR
    fates[list(mapped.picks)] = Fate.KEPT
    names, colour = _colours(mapped, fates)
    top = TOP_UNDER_SWATCHES if names else TOP
    plane, shares = principal_plane(mapped.rows)
    at = _pixels(plane, top)
    layers = [_layer(mapped, fate, np.flatnonzero(fates == fate), at, colour) for fate in Fate]
    links = _links(mapped, fates, at) if n <= LINKED else np.empty((0, 4))
    meanings = ["larger: better score"] if mapped.scores is not None and n <= DETAILED else []
    meanings += ["line: to the row kept from its cluster"] if len(links) else []
    return Picture(
        title=f"{len(mapped.picks):,} of {n:,} rows kept (K = {mapped.k:,}, {mapped.method})",
        top=top,
        words=_words(layers, names, shares, meanings),
        links=links,
        layers=tuple(layers),
        is_detailed=n <= DETAILED,
    )


def _layer(mapped: Mapped, fate: Fate, members: Ints, at: Floats, colour: Ints) -> Layer:
    n = len(mapped.rows)
    own = np.full(len(members), OWN, dtype=np.int64)
    return Layer(
        fate=fate,
        kind=KINDS[fate] if n <= DETAILED else Kind.DISC,
        x=at[members, 0],
        y=at[members, 1],
        radius=_radii(n, mapped.scores)[members] * _SIZES[fate],
        colour=own if fate is Fate.FLOOR else colour[members],
        opacity=_opacity(n, fate),
        tips=tuple(_tip(mapped, i, fate) for i in members.tolist()) if n <= DETAILED else (),
    )


def _links(mapped: Mapped, fates: NDArray[np.object_], at: Floats) -> Floats:
    """The lines from each dropped row to the best pick of its cluster, where there is one."""
    winner: dict[int, int] = {}
    for pick in mapped.picks:
        winner.setdefault(mapped.clusters[pick], pick)
    dropped = [i for i in np.flatnonzero(fates == Fate.DROPPED).tolist() if mapped.clusters[i] in winner]
    return np.hstack([at[dropped], at[[winner[mapped.clusters[i]] for i in dropped]]])


def _pixels(plane: Floats, top: float) -> Floats:
    """(n, 2), one scale for both axes, centred in the plot."""
    low, high = plane.min(axis=0, initial=0.0), plane.max(axis=0, initial=0.0)
    room = np.array([RIGHT - LEFT, BOTTOM - top]) - 2 * PLOT_PADDING
    scale = float((room / np.maximum(high - low, 1e-12)).min()) if (high > low).any() else 0.0
    turned = (plane - (low + high) / 2) * np.array([scale, -scale])
    return np.asarray(turned + np.array([(LEFT + RIGHT) / 2, (top + BOTTOM) / 2]))


def _radii(n: int, scores: Sequence[float] | None) -> Floats:
    """Smaller for more marks; 0.65 to 1.35 of that by score."""
    base = float(np.clip(66.0 / max(n, 1) ** 0.5, 1.0, 7.0))
    if scores is None or n > DETAILED or n == 0:
        return np.full(n, base)
    values = np.asarray(scores, dtype=np.float64) / 2  # halved: the range may exceed the largest float
    low, high = values.min(), values.max()
    share = (values - low) / (high - low) if high > low else np.full(n, 0.5)
    return np.asarray(base * (0.65 + 0.7 * share))


def ring_width(radius: float) -> float:
    """The width of a ring, thinner where marks are small, so that a hollow mark stays hollow."""
    return float(np.clip(0.35 * radius, 0.6, 1.4))


def _opacity(n: int, fate: Fate) -> float:
    full = 0.9 if fate is Fate.KEPT else 0.75
    return float(np.clip(full * (DETAILED / max(n, DETAILED)) ** 0.35, 0.25, 1.0))


def _colours(mapped: Mapped, fates: NDArray[np.object_]) -> tuple[list[str], Ints]:
    """Names and (n,) palette indices where 2 to MAX_COLOURS labels (clusters) are above the floor; no names and OWN
    where colours would not tell them apart."""
    groups = mapped.labels if mapped.labels is not None else [f"cluster {number}" for number in mapped.clusters]
    sizes = Counter(group for group, fate in zip(groups, fates, strict=True) if fate is not Fate.FLOOR)
    if not 2 <= len(sizes) <= MAX_COLOURS:
        return [], np.full(len(groups), OWN, dtype=np.int64)
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    number = {name: at for at, name in enumerate(names)}
    return names, np.array([number.get(group, OWN) for group in groups], dtype=np.int64)


def _words(layers: Sequence[Layer], names: Sequence[str], shares: Floats, meanings: Sequence[str]) -> tuple[Words, ...]:
    """The legend in one line, the colours in a second, the note on the axes at the foot."""
    out, at = [], LEFT
    for layer in reversed(layers):
        text = f"{_WORDS[layer.fate]}: {len(layer.x):,}"
        out.append(Words(x=at, y=LEGEND_Y, text=text, fate=layer.fate, colour=NEUTRAL if names else OWN))
        at += 40 + shown_width(text)
    for text in meanings:
        out.append(Words(x=at, y=LEGEND_Y, text=text))
        at += 24 + shown_width(text)
    at = LEFT
    for colour, name in enumerate(names):
        text = name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
        if at + 40 + shown_width(text) > RIGHT:
            out.append(Words(x=at, y=SWATCH_Y, text="…"))
            break
        out.append(Words(x=at, y=SWATCH_Y, text=text, fate=Fate.KEPT, colour=colour))
        at += 40 + shown_width(text)
    first, second = (100 * shares).tolist()
    note = f"first two principal components: {first:.1f} % and {second:.1f} % of the variance"
    return (*out, Words(x=LEFT, y=NOTE_Y, text=note))


def shown_width(text: str, size: float = 13.0) -> float:
    """An upper estimate in pixels for a sans-serif of this size."""
    return sum(size * (1.0 if unicodedata.east_asian_width(c) in "WF" else 0.56) for c in text)


def _tip(mapped: Mapped, i: int, fate: Fate) -> str:
    text = mapped.texts[i]
    head = text if len(text) <= TIP_CHARACTERS else text[: TIP_CHARACTERS - 1] + "…"
    score = "" if mapped.scores is None else f", score {mapped.scores[i]:g}"
    return f"{mapped.ids[i]} ({_WORDS[fate]}{score})" + (f"\n{head}" if head else "")
