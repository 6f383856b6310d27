"""The selection map as PNG, drawn with numpy alone: anti-aliased discs, rings, crosses and a stroke alphabet, twice the
size of the SVG. Text outside ASCII shows as boxes; for it, and for tooltips, there is the SVG.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from gpu_runners.selecting.colours import FATE_COLOURS, FRAME, INK, PALETTE, PAPER
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
from gpu_runners.selecting.stroke_font import CAP_HEIGHT, text_strokes

SCALE = 2
_SAMPLE_RADIUS = 5.0

Canvas = NDArray[np.float32]  # (height, width, 3), 0 to 1
Floats = NDArray[np.float64]


def png_of(picture: Picture) -> bytes:
    canvas = np.empty((HEIGHT * SCALE, WIDTH * SCALE, 3), dtype=np.float32)
    canvas[:] = _rgb(PAPER)
    corners = [(LEFT, picture.top), (RIGHT, picture.top), (RIGHT, BOTTOM), (LEFT, BOTTOM)]
    frame = [[*here, *there] for here, there in zip(corners, corners[1:] + corners[:1], strict=True)]
    _paint_segments(canvas, np.array(frame), FRAME, width=1.0)
    _paint_segments(canvas, picture.links, FRAME, width=0.9)
    for layer in picture.layers:
        if picture.is_detailed:
            _paint_marks(canvas, layer)
        else:
            _paint_dots(canvas, layer)
    _paint_text(canvas, picture.title, LEFT, 34, size=17.0, width=2.0)
    for words in picture.words:
        _paint_words(canvas, words, detailed=picture.is_detailed)
    return _encoded((np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8))


def _paint_marks(canvas: Canvas, layer: Layer) -> None:
    """One after the other, so that a later mark covers an earlier one."""
    columns = zip(layer.x.tolist(), layer.y.tolist(), layer.radius.tolist(), layer.colour.tolist(), strict=True)
    for x, y, radius, colour in columns:
        _paint_mark(canvas, layer.kind, _colour(layer.fate, colour), x, y, radius, layer.opacity)


def _paint_mark(canvas: Canvas, kind: Kind, colour: str, x: float, y: float, radius: float, opacity: float) -> None:
    if kind is Kind.CROSS:
        arms = np.array(
            [[x - radius, y - radius, x + radius, y + radius], [x - radius, y + radius, x + radius, y - radius]]
        )
        _paint_segments(canvas, arms, colour, width=1.2, opacity=opacity)
        return
    rows, columns = _patch(canvas, x - radius, y - radius, x + radius, y + radius)
    down, across = np.ogrid[rows, columns]
    distance = np.hypot(across + 0.5 - x * SCALE, down + 0.5 - y * SCALE)
    if kind is Kind.DISC:
        _blend(canvas, rows, columns, np.clip((radius + 0.8) * SCALE - distance + 0.5, 0, 1) * opacity, PAPER)
        _blend(canvas, rows, columns, np.clip(radius * SCALE - distance + 0.5, 0, 1) * opacity, colour)
    else:
        outline = np.clip(ring_width(radius) / 2 * SCALE - np.abs(distance - radius * SCALE) + 0.5, 0, 1)
        _blend(canvas, rows, columns, outline * opacity, colour)


def _paint_dots(canvas: Canvas, layer: Layer) -> None:
    """All dots of one colour at once: where m of them overlap, 1 - (1 - opacity)^m of the paper is covered."""
    for number in np.unique(layer.colour).tolist():
        members = layer.colour == number
        x, y, radius = layer.x[members] * SCALE, layer.y[members] * SCALE, layer.radius[members][0] * SCALE
        column, row = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
        light = np.zeros(canvas.shape[:2])
        reach = int(np.ceil(radius + 0.5))
        for down in range(-reach, reach + 1):
            for across in range(-reach, reach + 1):
                distance = np.hypot(column + across + 0.5 - x, row + down + 0.5 - y)
                cover = np.clip(radius - distance + 0.5, 0, 1) * layer.opacity
                np.add.at(light, (row + down, column + across), np.log1p(-cover))
        everywhere = slice(0, canvas.shape[0]), slice(0, canvas.shape[1])
        _blend(canvas, *everywhere, -np.expm1(light), _colour(layer.fate, number))


def _paint_words(canvas: Canvas, words: Words, *, detailed: bool) -> None:
    x = words.x
    if words.fate is not None:
        kind = KINDS[words.fate] if detailed else Kind.DISC
        _paint_mark(canvas, kind, _colour(words.fate, words.colour), x + 6, words.y - 4.5, _SAMPLE_RADIUS, 1.0)
        x += 18
    _paint_text(canvas, words.text, x, words.y, size=12.5, width=1.25)


def _paint_text(canvas: Canvas, text: str, x: float, baseline: float, *, size: float, width: float) -> None:
    """`size` is that of a font whose capitals are 0.72 of it."""
    unit = 0.72 * size / CAP_HEIGHT
    strokes = text_strokes(text.replace("…", "...")) * unit
    strokes[:, [0, 2]] += x
    strokes[:, [1, 3]] = baseline - strokes[:, [1, 3]]
    _paint_segments(canvas, strokes, INK, width=width)


def _paint_segments(canvas: Canvas, segments: Floats, colour: str, *, width: float, opacity: float = 1.0) -> None:
    """Lines with round ends; where they meet, the darker coverage counts, not the sum."""
    if len(segments) == 0:
        return
    low, high = segments.reshape(-1, 2).min(axis=0), segments.reshape(-1, 2).max(axis=0)
    rows, columns = _patch(canvas, low[0], low[1], high[0], high[1])
    cover = np.zeros((rows.stop - rows.start, columns.stop - columns.start))
    for x0, y0, x1, y1 in segments.tolist():
        own_rows, own_columns = _patch(canvas, min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        down, across = np.ogrid[own_rows, own_columns]
        px, py = (across + 0.5) / SCALE - x0, (down + 0.5) / SCALE - y0
        dx, dy = x1 - x0, y1 - y0
        along = np.clip((px * dx + py * dy) / max(dx * dx + dy * dy, 1e-12), 0, 1)
        distance = np.hypot(px - along * dx, py - along * dy) * SCALE
        part = cover[
            own_rows.start - rows.start : own_rows.stop - rows.start,
            own_columns.start - columns.start : own_columns.stop - columns.start,
        ]
        np.maximum(part, np.clip(width / 2 * SCALE - distance + 0.5, 0, 1), out=part)
    _blend(canvas, rows, columns, cover * opacity, colour)


def _patch(canvas: Canvas, left: float, top: float, right: float, bottom: float) -> tuple[slice, slice]:
    """The pixels that a shape within these bounds may touch."""
    margin = 3
    height, width = canvas.shape[:2]
    rows = slice(max(0, int(top * SCALE) - margin), min(height, int(bottom * SCALE) + margin + 1))
    return rows, slice(max(0, int(left * SCALE) - margin), min(width, int(right * SCALE) + margin + 1))


def _blend(canvas: Canvas, rows: slice, columns: slice, cover: Floats, colour: str) -> None:
    part = canvas[rows, columns]
    part += cover[..., None].astype(np.float32) * (_rgb(colour) - part)


def _colour(fate: Fate, number: int) -> str:
    return PALETTE[number] if number >= 0 else INK if number == NEUTRAL else FATE_COLOURS[fate]


def _rgb(colour: str) -> NDArray[np.float32]:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)], dtype=np.float32)


def _encoded(pixels: NDArray[np.uint8]) -> bytes:
    """8-bit RGB, each line stored as differences to the line above (filter 2): the paper packs to nothing."""
    height, width, _ = pixels.shape
    lines = pixels.reshape(height, width * 3)
    above = np.vstack([np.zeros((1, width * 3), np.uint8), lines[:-1]])
    filtered = np.hstack([np.full((height, 1), 2, np.uint8), lines - above])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
