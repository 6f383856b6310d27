"""Acceptance by distance as SVG: what was accepted of what was shown, with its intervals, and the curve that decides
about the next look-up. No script, nothing fetched, light and dark by the reader's setting."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_runners.selecting.colours import DARK_FRAME, DARK_INK, DARK_PAPER, FRAME, INK, PALETTE, PAPER
from gpu_runners.selecting.svg import safe_text

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 70.0, 930.0, 60.0, 480.0
LEGEND_STEP = 20.0
TICKS = 5
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One strategy of one teacher. `curve` is (distance, acceptance) in ppm; `bands` (distance, rate, low, high, n)."""

    name: str
    curve: tuple[tuple[int, int], ...]
    bands: tuple[tuple[int, int, int, int, int], ...]


def lines_of(families: Sequence[Row]) -> list[Line]:
    """From the answer of GET /v1/drafts/stats; strategies without a verdict are left out."""
    return [
        Line(
            name=f"{family['family']}, {part['strategy']}, {scope['teacher']}",
            curve=tuple((point["distance_ppm"], point["acceptance_ppm"]) for point in part["curve"] or ()),
            bands=tuple(
                (band["distance_ppm"], band["rate_ppm"], band["low_ppm"], band["high_ppm"], band["n"])
                for band in part["by_distance"]
            ),
        )
        for family in families
        for scope in family["scopes"]
        for part in scope["strategies"]
        if part["curve"] or part["by_distance"]
    ]


def svg_of_acceptance(lines: Sequence[Line]) -> str:
    height = HEIGHT + LEGEND_STEP * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="title">',
        '<title id="title">Acceptance of drafts by distance</title>',
        f"<style>{_style()}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height:g}"/>',
        f'<text class="head" x="{LEFT:g}" y="34">Acceptance of drafts by cosine distance of their slice</text>',
        *_axes(),
        *(part for at, line in enumerate(lines) for part in _line(at, line)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    palette = "".join(f".c{at}{{--c:{colour}}}" for at, colour in enumerate(PALETTE))
    return (
        f":root{{--paper:{PAPER};--ink:{INK};--line:{FRAME}}}"
        f"@media(prefers-color-scheme:dark){{:root{{--paper:{DARK_PAPER};--ink:{DARK_INK};--line:{DARK_FRAME}}}}}"
        f"{palette}text{{font:13px system-ui,sans-serif;fill:var(--ink)}}.head{{font-size:18px;font-weight:600}}"
        ".paper{fill:var(--paper)}.grid{stroke:var(--line);fill:none}.curve{fill:none;stroke:var(--c);stroke-width:2}"
        ".bar{stroke:var(--c);stroke-width:1}.dot{fill:var(--c)}"
    )


def _axes() -> Iterator[str]:
    for i in range(TICKS + 1):
        x, y = _x(i * 1_000_000 // TICKS), _y(i * 1_000_000 // TICKS)
        yield f'<path class="grid" d="M{x:.1f} {TOP:g}V{BOTTOM:g}M{LEFT:g} {y:.1f}H{RIGHT:g}"/>'
        yield f'<text x="{x:.1f}" y="{BOTTOM + 20:g}" text-anchor="middle">{i / TICKS:.1f}</text>'
        yield f'<text x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{100 * i // TICKS} %</text>'


def _line(at: int, line: Line) -> Iterator[str]:
    colour = f"c{at % len(PALETTE)}"
    if line.curve:
        path = "L".join(f"{_x(distance):.1f} {_y(rate):.1f}" for distance, rate in line.curve)
        yield f'<path class="curve {colour}" d="M{path}"/>'
    for distance, rate, low, high, n in line.bands:
        x = _x(distance + 25_000)  # the middle of the band
        tip = f"{rate / 1e4:.1f} % of {n} ({low / 1e4:.1f} to {high / 1e4:.1f})"
        yield f'<path class="bar {colour}" d="M{x:.1f} {_y(low):.1f}V{_y(high):.1f}"/>'
        yield f'<circle class="dot {colour}" cx="{x:.1f}" cy="{_y(rate):.1f}" r="4"><title>{tip}</title></circle>'
    y = BOTTOM + 50 + LEGEND_STEP * at
    yield f'<circle class="dot {colour}" cx="{LEFT + 6:g}" cy="{y - 4.5:g}" r="4"/>'
    yield f'<text x="{LEFT + 18:g}" y="{y:g}">{safe_text(line.name)}</text>'


def _x(distance_ppm: int) -> float:
    return LEFT + (RIGHT - LEFT) * min(1.0, distance_ppm / 1_000_000)


def _y(share_ppm: int) -> float:
    return BOTTOM - (BOTTOM - TOP) * share_ppm / 1_000_000
