"""The selection map as SVG: no script, nothing fetched, light and dark by the reader's setting.

Ids, texts and labels come from whoever wrote the rows: all are escaped, and characters that XML forbids are replaced.
"""

import re
from html import escape

import numpy as np

from gpu_runners.selecting.map import (
    BOTTOM,
    HEIGHT,
    KINDS,
    LEFT,
    NEUTRAL,
    RIGHT,
    WIDTH,
    Fate,
    Kind,
    Layer,
    Picture,
    Words,
    ring_width,
)

# Okabe and Ito's palette without black and yellow: colour-blind readers tell the colours apart, and they show on white
# and on dark paper (https://jfly.uni-koeln.de/color/)
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
FATE_COLOURS = {Fate.KEPT: "#0072b2", Fate.DROPPED: "#8a6d3b", Fate.FLOOR: "#a8a8a8"}
DARK_FATE_COLOURS = {Fate.KEPT: "#4aa8e0", Fate.DROPPED: "#c9a86a", Fate.FLOOR: "#6f747c"}
PAPER, INK, FRAME = "#ffffff", "#1c1e21", "#d4d7dc"
DARK_PAPER, DARK_INK, DARK_FRAME = "#15171b", "#e7e9ec", "#3a3f47"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GRID = 2  # dots of a large map are put on half pixels, one dot to a place: the file stays under 2 MB
_SAMPLE_RADIUS = 5.0


def svg_of(picture: Picture) -> str:
    legend = "; ".join(words.text for words in picture.words)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title desc">',
        f'<title id="title">{safe_text(picture.title)}</title>',
        f'<desc id="desc">{safe_text(legend)}</desc>',
        f"<style>{_style()}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT:g}" y="34">{safe_text(picture.title)}</text>',
        f'<rect class="frame" x="{LEFT:g}" y="{picture.top:g}" width="{RIGHT - LEFT:g}" '
        f'height="{BOTTOM - picture.top:g}"/>',
        f'<path class="link" d="{_links(picture)}"/>',
        *(_layer(layer, detailed=picture.is_detailed) for layer in picture.layers),
        '<g id="legend">',
        *(_words(words, detailed=picture.is_detailed) for words in picture.words),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style() -> str:
    def fates(colours: dict[Fate, str]) -> str:
        return "".join(f".{fate}{{--c:{colour}}}" for fate, colour in colours.items())

    palette = "".join(f".c{at}{{--c:{colour}}}" for at, colour in enumerate(PALETTE))
    return (
        f":root{{--paper:{PAPER};--ink:{INK};--line:{FRAME}}}"
        f"{fates(FATE_COLOURS)}"
        f"@media(prefers-color-scheme:dark){{:root{{--paper:{DARK_PAPER};--ink:{DARK_INK};--line:{DARK_FRAME}}}"
        f"{fates(DARK_FATE_COLOURS)}}}{palette}"
        "text{font:13px system-ui,sans-serif;fill:var(--ink)}.title{font-size:18px;font-weight:600}"
        ".paper{fill:var(--paper)}.frame{fill:none;stroke:var(--line)}"
        ".link{fill:none;stroke:var(--line);stroke-width:.9}"
        ".disc{fill:var(--c);stroke:var(--paper);stroke-width:.8}"
        ".ring{fill:var(--paper);fill-opacity:.01;stroke:var(--c)}.neutral{--c:var(--ink)}"
        ".cross{fill:none;stroke:var(--c);stroke-width:1.2}"
        ".dots{fill:none;stroke:var(--c);stroke-linecap:round}"
    )


def _links(picture: Picture) -> str:
    return "".join(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" for x0, y0, x1, y1 in picture.links.tolist())


def _layer(layer: Layer, *, detailed: bool) -> str:
    inside = _marks(layer) if detailed else _dots(layer)
    return f'<g id="{layer.fate}" opacity="{layer.opacity:.2f}">\n{inside}\n</g>'


def _marks(layer: Layer) -> str:
    columns = zip(layer.x, layer.y, layer.radius, layer.colour.tolist(), layer.tips, strict=True)
    return "\n".join(_mark(layer.kind, layer.fate, x, y, r, colour, tip) for x, y, r, colour, tip in columns)


def _mark(kind: Kind, fate: Fate, x: float, y: float, radius: float, colour: int, tip: str) -> str:
    classes = f"{kind} {_colour_class(fate, colour)}"
    title = f"<title>{safe_text(tip)}</title>" if tip else ""
    if kind is Kind.CROSS:
        arm = radius * 2
        shape = f"M{x - radius:.1f} {y - radius:.1f}l{arm:.1f} {arm:.1f}m0-{arm:.1f}l-{arm:.1f} {arm:.1f}"
        return f'<path class="{classes}" d="{shape}">{title}</path>'
    width = f' stroke-width="{ring_width(radius):.1f}"' if kind is Kind.RING else ""
    return f'<circle class="{classes}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"{width}>{title}</circle>'


def _colour_class(fate: Fate, colour: int) -> str:
    return f"c{colour}" if colour >= 0 else "neutral" if colour == NEUTRAL else str(fate)


def _dots(layer: Layer) -> str:
    """One path for each colour: a dot is a line of no length with round ends."""
    out = []
    for colour in np.unique(layer.colour).tolist():
        members = layer.colour == colour
        places = np.unique(np.rint(np.column_stack([layer.x[members], layer.y[members]]) * _GRID), axis=0) / _GRID
        path = "".join(f"M{x:g} {y:g}h0" for x, y in places.tolist())
        width = 2 * float(layer.radius[members][0])
        classes = f"dots {_colour_class(layer.fate, colour)}"
        out.append(f'<path class="{classes}" stroke-width="{width:.2f}" d="{path}"/>')
    return "\n".join(out)


def _words(words: Words, *, detailed: bool) -> str:
    x, mark = words.x, ""
    if words.fate is not None:
        kind = KINDS[words.fate] if detailed else Kind.DISC
        mark = _mark(kind, words.fate, x + 6, words.y - 4.5, _SAMPLE_RADIUS, words.colour, "")
        x += 18
    return f'{mark}<text x="{x:.1f}" y="{words.y:g}">{safe_text(words.text)}</text>'


def safe_text(text: str) -> str:
    """Escaped, without the characters that XML forbids."""
    return escape(_FORBIDDEN.sub("\ufffd", text), quote=True)
