"""Lengths: bars, stacked bars, columns, funnels, intervals. A bar's label stands above it, so that neither a long label
nor a narrow window takes room from the other."""

from collections.abc import Sequence

from django.utils.safestring import SafeString

from backend.console.charts.frame import (
    Write,
    figure,
    join,
    legend,
    nothing,
    numbers_table,
    rect,
    series_class,
    shorten,
    svg,
    text,
)
from backend.console.charts.scales import Number, compact, finite, finites, percent, share, written_ticks
from backend.domain import number_words

ROW, BAR = 36, 8
MOST_BARS = 60  # of a picture; the table has more of them
FEWEST_COLUMNS = 8  # one day alone is a column, not a wall
MOST_COLUMNS = 120  # beyond, neighbours are drawn as one


def bars(
    rows: Sequence[tuple[str, Number | None]],
    *,
    title: str,
    desc: str = "",
    write: Write = compact,
    head: str = "Value",
    tones: Sequence[str] = (),
    most: Number | None = None,
) -> SafeString:
    """One bar a row, from zero; negative values have none. `tones`: a class for each row (good, warn, bad, s2, ...);
    `most` is the value of a whole bar, else the largest value."""
    if not rows:
        return nothing(title)
    top = finite(most) or max([0.0, *finites(value for _, value in rows)])
    parts = []
    for i, (label, value) in enumerate(rows[:MOST_BARS]):
        y = i * ROW
        tone = tones[i] if i < len(tones) else "s1"
        parts += _label_and_value(y, label, write(value))
        parts += [rect("0", y + 20, "100%", BAR, "track")]
        parts += [rect("0", y + 20, percent(share(value, 0, top) if top > 0 else 0), BAR, tone)]
    picture = svg(title=title, desc=desc or _describe(rows, write), height=_tall(rows), body=join(parts))
    return figure(picture, numbers_table(title, ["", head], [(label, [write(value)]) for label, value in rows]))


def stacked_bars(
    rows: Sequence[tuple[str, Sequence[Number | None]]],
    names: Sequence[str],
    *,
    title: str,
    desc: str = "",
    write: Write = compact,
) -> SafeString:
    """Each row's values end to end, on one scale for all rows."""
    if not rows:
        return nothing(title)
    totals = [sum(_amounts(values)) for _, values in rows]
    top = max(totals)
    parts = []
    for i, ((label, values), total) in enumerate(zip(rows[:MOST_BARS], totals, strict=False)):
        y, start = i * ROW, 0.0
        parts += _label_and_value(y, label, write(total))
        parts += [rect("0", y + 20, "100%", BAR, "track")]
        for j, amount in enumerate(_amounts(values)):
            width = share(amount, 0, top) if top > 0 else 0.0
            if width > 0:
                tip = f"{names[j]}: {write(values[j])}"
                parts.append(rect(percent(start), y + 20, percent(width), BAR, series_class(j), tip))
            start += width
    spoken = desc or _describe([(label, total) for (label, _), total in zip(rows, totals, strict=True)], write)
    picture = svg(title=title, desc=spoken, height=_tall(rows), body=join(parts))
    return figure(picture, _stack_table(title, rows, names, write), legend(names))


def columns(
    rows: Sequence[tuple[str, Sequence[Number | None]]],
    names: Sequence[str],
    *,
    title: str,
    desc: str = "",
    write: Write = compact,
    height: int = 180,
) -> SafeString:
    """Upright stacks with a scale on the left: days, months."""
    if not rows:
        return nothing(title)
    in_all = sum(sum(_amounts(values)) for _, values in rows)
    rows = _merge_neighbours(rows, len(names))
    totals = [sum(_amounts(values)) for _, values in rows]
    top = max(totals) or 1.0
    floor, body_top = height - 20, 8
    parts = [_grid_line(tick, words, top, floor, body_top) for tick, words in written_ticks(0, top, write, about=3)]
    step = 100 / max(len(rows), FEWEST_COLUMNS)
    left = (100 - step * len(rows)) / 2
    inside = []
    for i, (label, values) in enumerate(rows):
        y = 100.0
        for j, amount in enumerate(_amounts(values)):
            tall = share(amount, 0, top)
            y -= tall
            if tall > 0:
                tip = f"{label}, {names[j]}: {write(values[j])}"
                x, width = percent(left + i * step + step * 0.12), percent(step * 0.76)
                inside.append(rect(x, percent(y), width, percent(tall), series_class(j), tip))  # type: ignore[arg-type]
    parts.append(_inset(join(inside), body_top, floor - body_top))
    parts.append(_inset(join(_dates([label for label, _ in rows], left, step)), floor, 20))
    spoken = desc or f"{rows[0][0]} to {rows[-1][0]}, at most {write(max(totals))}, {write(in_all)} in all"
    picture = svg(title=title, desc=spoken, height=height, body=join(parts), kind="plotted")
    return figure(picture, _stack_table(title, rows, names, write), legend(names))


def funnel(stages: Sequence[tuple[str, Number] | tuple[str, Number, str]], *, title: str, desc: str = "") -> SafeString:
    """Draw what is left after each stage; the pale part of a bar is what the stage took."""
    if not stages:
        return nothing(title)
    most = max([0.0, *finites(stage[1] for stage in stages)]) or 1.0
    parts, table = [], []
    before: float | None = None
    for i, stage in enumerate(stages[:MOST_BARS]):
        label, n = stage[0], finite(stage[1]) or 0.0
        note = stage[2] if len(stage) > 2 else ""  # type: ignore[misc]
        y = i * ROW
        kept = f"{n:,.0f}" if before in (None, 0) else f"{n:,.0f} · {_of(n, before)}"  # type: ignore[operator]
        parts += _label_and_value(y, f"{label}  {note}" if note else label, kept)
        if before is not None and before > n:
            parts.append(rect("0", y + 20, percent(share(before, 0, most)), BAR, "funnel-link"))
        parts.append(rect("0", y + 20, percent(share(n, 0, most)), BAR, "funnel"))
        table.append((label, [f"{n:,.0f}", "" if before in (None, 0) else _of(n, before), note]))  # type: ignore[operator]
        before = n
    spoken = desc or ", then ".join(f"{stage[0]} {finite(stage[1]) or 0:,.0f}" for stage in stages[:MOST_BARS])
    picture = svg(title=title, desc=spoken, height=_tall(stages), body=join(parts))
    return figure(picture, numbers_table(title, ["Stage", "Left", "Of the previous", ""], table))


def intervals(
    rows: Sequence[tuple[str, Number | None, Number | None, Number | None]],
    *,
    title: str,
    desc: str = "",
    write: Write = compact,
    low: float = 0.0,
    high: float = 1.0,
    floor: Number | None = None,
) -> SafeString:
    """An estimate with its interval on a scale from `low` to `high`; `floor` is the line it has to clear."""
    if not rows:
        return nothing(title)
    parts, table = [], []
    for i, (label, lower, value, upper) in enumerate(rows[:MOST_BARS]):
        y = i * ROW
        parts += _label_and_value(y, label, f"{write(value)}  [{write(lower)}, {write(upper)}]")
        parts.append(rect("0", y + 23, "100%", 2, "track"))
        start, end = share(lower, low, high), share(upper, low, high)
        is_short = floor is not None and lower is not None and lower < floor
        parts.append(rect(percent(start), y + 21, percent(max(0.3, end - start)), 6, "warn" if is_short else "s1"))
        parts.append(_tick(share(value, low, high), y + 18, 12))
        if floor is not None:
            parts.append(_tick(share(floor, low, high), y + 16, 16, "ghost"))
        table.append((label, [write(lower), write(value), write(upper)]))
    spoken = desc or ", ".join(f"{label} {write(value)}" for label, _, value, _ in rows[:MOST_BARS])
    picture = svg(title=title, desc=spoken, height=_tall(rows), body=join(parts))
    return figure(picture, numbers_table(title, ["", "Low", "Estimate", "High"], table))


def _of(n: float, before: float) -> str:
    """Counts are whole, so that 58 of 100 are never 57.9 %."""
    return number_words.percent(round(n) * 1_000_000 // max(1, round(before)))


def _amounts(values: Sequence[Number | None]) -> list[float]:
    return [max(0.0, finite(value) or 0.0) for value in values]


def _tall(rows: Sequence[object]) -> int:
    return min(len(rows), MOST_BARS) * ROW


def _merge_neighbours(
    rows: Sequence[tuple[str, Sequence[Number | None]]], n_names: int
) -> Sequence[tuple[str, Sequence[Number | None]]]:
    """Sum neighbours where there are too many columns: a bounded picture, and nothing missing from it."""
    size = -(-len(rows) // MOST_COLUMNS)
    if size <= 1:
        return rows
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [
        (f"{group[0][0]} – {group[-1][0]}", [sum(_amounts([v[j] for _, v in group])) for j in range(n_names)])
        for group in groups
    ]


def _label_and_value(y: int, label: str, value: str) -> list[SafeString]:
    return [text("0", y + 13, shorten(label, 48), "name"), text("100%", y + 13, value, "value", "end")]


def _describe(rows: Sequence[tuple[str, Number | None]], write: Write) -> str:
    described = ", ".join(f"{shorten(label)} {write(value)}" for label, value in rows[:8])
    return described + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")


def _stack_table(
    title: str, rows: Sequence[tuple[str, Sequence[Number | None]]], names: Sequence[str], write: Write
) -> SafeString:
    cells = [(label, [*map(write, values), write(sum(_amounts(values)))]) for label, values in rows]
    return numbers_table(title, ["", *names, "Sum"], cells)


def _grid_line(tick: float, words: str, top: float, floor: int, body_top: int) -> SafeString:
    y = round(floor - share(tick, 0, top) / 100 * (floor - body_top), 1)
    kind = "axis" if tick == 0 else "grid"
    return join([text("-8", y + 4, words, anchor="end"), _rule(y, kind)])


def _rule(y: float, kind: str) -> SafeString:
    return _inset(
        SafeString(f'<line class="{kind}" x1="0" x2="100%" y1="0.5" y2="0.5" vector-effect="non-scaling-stroke"/>'),
        y,
        1,
    )


def _inset(body: SafeString, y: float, height: float) -> SafeString:
    opening = SafeString(f'<svg y="{y}" width="100%" height="{height}" overflow="visible">')
    return join([opening, body, SafeString("</svg>")])


def _dates(labels: Sequence[str], left: float, step: float) -> list[SafeString]:
    """Return as many of the labels as have room, the first and the last among them."""
    every = max(1, -(-len(labels) // 6))
    shown = {i for i in range(0, len(labels), every) if len(labels) - 1 - i >= every} | {0, len(labels) - 1}
    return [text(percent(left + i * step + step / 2), 14, labels[i], anchor="middle") for i in sorted(shown)]


def _tick(x: float, y: float, height: float, kind: str = "whisker") -> SafeString:
    at = percent(x)
    return SafeString(f'<line class="{kind}" x1="{at}" x2="{at}" y1="{y}" y2="{y + height}"/>')
