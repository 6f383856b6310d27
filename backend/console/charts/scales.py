"""Numbers to places and to words. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal

Number = int | float | Decimal


def finite(value: Number | None) -> float | None:
    """Return the number, or None for what cannot be drawn (nothing, NaN, an infinity, an integer beyond float)."""
    if value is None:
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def finites(values: Iterable[Number | None]) -> list[float]:
    return [number for value in values if (number := finite(value)) is not None]


def share(value: Number | None, low: float, high: float) -> float:
    """Return where `value` lies between `low` and `high`, in per cent, kept within 0 and 100. An empty span has one
    place: its middle."""
    number = finite(value)
    if number is None:
        return 0.0
    if high <= low:
        return 50.0
    if math.isinf(high - low):  # halves: the difference of two huge numbers may be no float
        number, low, high = number / 2, low / 2, high / 2
    return min(100.0, max(0.0, (number - low) / (high - low) * 100))


def percent(value: float) -> str:
    """Format for attributes: `12.5%`, two places at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"


def ticks(low: float, high: float, *, about: int = 4) -> list[float]:
    """Round numbers within [low, high], steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(3, 3)
    [3.0]
    """
    if not high > low:
        return [float(low)]
    raw = high / about - low / about
    if not raw > 0 or not math.isfinite(raw):
        return [float(low), float(high)]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 5) if m * power >= raw * 0.8), 10 * power)
    if step == 0 or not math.isfinite(step):
        return [float(low), float(high)]
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) if abs(step) > 1e-9 else i * step for i in range(first, min(last, first + 50) + 1)]


def written_ticks(low: float, high: float, write: Callable[[float], str], *, about: int = 4) -> list[tuple[float, str]]:
    """The ticks with their words, so few that no two are written alike: money has no half of a micro-dollar.

    >>> written_ticks(0, 2, "{:.0f}".format)
    [(0.0, '0'), (1.0, '1'), (2.0, '2')]
    """
    for n in range(about, 0, -1):
        written = [(tick, write(tick)) for tick in ticks(low, high, about=n)]
        if len({words for _, words in written}) == len(written):
            return written
    return [(low, write(low))]


def thin(points: Sequence[tuple[float, float | None]], most: int) -> list[tuple[float, float | None]]:
    """About `most` points of a course at most: of each stretch its first, lowest, highest and last, so that no peak,
    no gap of a whole stretch and no end is lost.

    >>> thin([(x, 9.0 if x == 5 else 0.0) for x in range(1000)], 8)
    [(0, 0.0), (5, 9.0), (499, 0.0), (500, 0.0), (999, 0.0)]
    """
    if len(points) <= most:
        return list(points)
    size = -(-len(points) * 4 // most)
    kept: list[tuple[float, float | None]] = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        known = [(y, i) for i, (_, y) in enumerate(stretch) if y is not None]
        places = {0, len(stretch) - 1} | ({min(known)[1], max(known, key=lambda one: one[0])[1]} if known else set())
        kept += [stretch[i] for i in sorted(places)]
    return kept


def compact(value: Number | None) -> str:
    """Three digits at most: 950, 1.2k, 3.4M, 1e+15."""
    number = finite(value)
    if number is None:
        return "–"
    size = abs(number)
    if size >= 1e12 or 0 < size < 1e-4:
        return f"{number:.1e}"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"
