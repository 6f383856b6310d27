"""A small stroke alphabet for pictures that are drawn without a graphics library: printable ASCII as lines and arcs.

Units: baseline 0, x-height 5, capitals 7, descenders -2. `L x y x y ...` is a polyline, `A cx cy rx ry from to` an arc
in degrees, counter-clockwise. A character that is not here is drawn as an empty box.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

CAP_HEIGHT = 7.0
GAP = 1.5  # between two characters
SPACE = 2.2
_ARC_STEP = 15.0

Segments = NDArray[np.float64]

_STROKES = {
    "a": "A 2 2.5 2 2.5 0 360; L 4 5 4 0",
    "b": "L 0 7 0 0; A 2 2.5 2 2.5 0 360",
    "c": "A 2.2 2.5 2.2 2.5 45 315",
    "d": "A 2 2.5 2 2.5 0 360; L 4 7 4 0",
    "e": "L 0 2.5 4.1 2.5; A 2.05 2.5 2.05 2.5 0 315",
    "f": "L 1.1 0 1.1 5.7; A 2.4 5.7 1.3 1.3 80 180; L 0 4.8 2.6 4.8",
    "g": "A 2 2.5 2 2.5 0 360; L 4 5 4 -0.4; A 2 -0.4 2 1.6 215 360",
    "h": "L 0 7 0 0; A 1.95 3 1.95 2 0 180; L 3.9 3 3.9 0",
    "i": "L 0.3 5 0.3 0; L 0.3 6.7 0.3 6.9",
    "j": "L 1.3 5 1.3 -0.7; A 0 -0.7 1.3 1.3 270 360; L 1.3 6.7 1.3 6.9",
    "k": "L 0 7 0 0; L 3.5 5 0 1.8; L 1.3 3 3.7 0",
    "l": "L 0.3 7 0.3 0",
    "m": "L 0 5 0 0; A 1.6 3.3 1.6 1.7 0 180; L 3.2 3.3 3.2 0; A 4.8 3.3 1.6 1.7 0 180; L 6.4 3.3 6.4 0",
    "n": "L 0 5 0 0; A 1.95 3 1.95 2 0 180; L 3.9 3 3.9 0",
    "o": "A 2.2 2.5 2.2 2.5 0 360",
    "p": "L 0 5 0 -2; A 2 2.5 2 2.5 0 360",
    "q": "L 4 5 4 -2; A 2 2.5 2 2.5 0 360",
    "r": "L 0 5 0 0; A 1.9 3 1.9 2 65 180",
    "s": "A 1.7 3.7 1.6 1.3 25 270; A 1.7 1.2 1.7 1.2 -155 90",
    "t": "L 1 6.6 1 1.2; A 2.2 1.2 1.2 1.2 180 280; L 0 4.9 2.5 4.9",
    "u": "L 0 5 0 2; A 1.95 2 1.95 2 180 360; L 3.9 5 3.9 0",
    "v": "L 0 5 2 0 4 5",
    "w": "L 0 5 1.5 0 3 5 4.5 0 6 5",
    "x": "L 0 5 3.8 0; L 0 0 3.8 5",
    "y": "L 0 5 2 0; L 4 5 1.2 -2",
    "z": "L 0 5 3.8 5 0 0 3.9 0",
    "A": "L 0 0 2.6 7 5.2 0; L 0.95 2.4 4.25 2.4",
    "B": "L 0 3.6 0 7 2.6 7; A 2.6 5.3 1.7 1.7 -90 90; L 0 3.6 2.8 3.6; A 2.8 1.8 1.9 1.8 -90 90; L 0 3.6 0 0 2.8 0",
    "C": "A 2.8 3.5 2.8 3.5 50 310",
    "D": "L 0 0 0 7 1.8 7; A 1.8 3.5 3 3.5 -90 90; L 0 0 1.8 0",
    "E": "L 4 7 0 7 0 0 4.1 0; L 0 3.6 3.5 3.6",
    "F": "L 4 7 0 7 0 0; L 0 3.6 3.3 3.6",
    "G": "A 2.8 3.5 2.8 3.5 50 360; L 5.6 3.5 3.2 3.5",
    "H": "L 0 7 0 0; L 4.8 7 4.8 0; L 0 3.6 4.8 3.6",
    "I": "L 0.3 7 0.3 0",
    "J": "L 3 7 3 2; A 1.5 2 1.5 2 180 360",
    "K": "L 0 7 0 0; L 4.4 7 0 2.6; L 1.6 4.2 4.6 0",
    "L": "L 0 7 0 0 3.8 0",
    "M": "L 0 0 0 7 2.9 1.5 5.8 7 5.8 0",
    "N": "L 0 0 0 7 4.8 0 4.8 7",
    "O": "A 2.9 3.5 2.9 3.5 0 360",
    "P": "L 0 0 0 7 2.4 7; A 2.4 5.1 1.9 1.9 -90 90; L 0 3.2 2.4 3.2",
    "Q": "A 2.9 3.5 2.9 3.5 0 360; L 3.6 1.6 5.6 -0.6",
    "R": "L 0 0 0 7 2.4 7; A 2.4 5.1 1.9 1.9 -90 90; L 0 3.2 2.4 3.2 4.5 0",
    "S": "A 2.2 5.25 2 1.75 25 270; A 2.2 1.75 2.2 1.75 -155 90",
    "T": "L 0 7 4.8 7; L 2.4 7 2.4 0",
    "U": "L 0 7 0 2.2; A 2.3 2.2 2.3 2.2 180 360; L 4.6 7 4.6 2.2",
    "V": "L 0 7 2.5 0 5 7",
    "W": "L 0 7 1.8 0 3.6 7 5.4 0 7.2 7",
    "X": "L 0 7 4.6 0; L 0 0 4.6 7",
    "Y": "L 0 7 2.4 3.4 4.8 7; L 2.4 3.4 2.4 0",
    "Z": "L 0 7 4.4 7 0 0 4.6 0",
    "0": "A 2.2 3.5 2.2 3.5 0 360",
    "1": "L 0.4 5.7 2 7 2 0",
    "2": "A 2.1 4.9 2.1 2.1 -30 165; L 3.92 3.85 0 0 4.3 0",
    "3": "A 2 5.3 1.9 1.7 -90 140; A 2 1.8 2.1 1.8 -140 90",
    "4": "L 3.2 0 3.2 7 0 2 4.4 2",
    "5": "L 4 7 0.7 7 0.55 3.9; A 2 2.2 2.2 2.2 -140 131",
    "6": "A 2.2 2.2 2.2 2.2 0 360; A 4.2 2.2 4.2 4.8 110 180",
    "7": "L 0 7 4.2 7 1.4 0",
    "8": "A 2.2 5.3 1.8 1.7 0 360; A 2.2 1.8 2.2 1.8 0 360",
    "9": "A 2.2 4.8 2.2 2.2 0 360; A 0.2 4.8 4.2 4.8 -70 0",
    ".": "L 0.3 0 0.3 0.2",
    ",": "L 0.5 0.3 0 -1.2",
    ":": "L 0.3 0 0.3 0.2; L 0.3 4.2 0.3 4.4",
    ";": "L 0.5 0.3 0 -1.2; L 0.5 4.2 0.5 4.4",
    "-": "L 0 2.6 2.6 2.6",
    "_": "L 0 -1 4.2 -1",
    "+": "L 0 2.8 3.8 2.8; L 1.9 0.9 1.9 4.7",
    "=": "L 0 1.9 3.8 1.9; L 0 3.7 3.8 3.7",
    "%": "A 1.2 5.6 1.2 1.4 0 360; A 4.6 1.4 1.2 1.4 0 360; L 5 7 0.8 0",
    "(": "A 2.6 3 2.6 5 130 230",
    ")": "A -1 3 2.6 5 -50 50",
    "[": "L 1.4 8 0 8 0 -1.5 1.4 -1.5",
    "]": "L 0 8 1.4 8 1.4 -1.5 0 -1.5",
    "/": "L 0 -1 3 8",
    "\\": "L 0 8 3 -1",
    "|": "L 0.3 8 0.3 -2",
    "'": "L 0.3 7 0.3 5.2",
    '"': "L 0.3 7 0.3 5.2; L 1.7 7 1.7 5.2",
    "<": "L 3.6 5.2 0 2.8 3.6 0.4",
    ">": "L 0 5.2 3.6 2.8 0 0.4",
    "#": "L 1 0 1.8 7; L 3.2 0 4 7; L 0 2.2 4.6 2.2; L 0.4 4.8 5 4.8",
    "*": "L 1.6 7.2 1.6 4; L 0.2 6.4 3 4.8; L 0.2 4.8 3 6.4",
    "!": "L 0.3 7 0.3 2; L 0.3 0 0.3 0.2",
    "?": "A 1.8 5.2 1.8 1.8 -60 170; L 2.7 3.65 1.8 2.6 1.8 1.9; L 1.8 0 1.8 0.2",
    "&": "L 4.8 0 1 5; A 2 5.7 1.2 1.3 0 215; L 3.2 5.7 1 3.2; A 1.9 1.7 1.9 1.7 125 330; L 3.5 0.9 4.6 3",
    "@": "A 3.2 2.6 3.2 3.9 -50 300; A 3.1 2.6 1.3 1.6 0 360",
    "$": "A 2.2 4.9 2 1.4 25 270; A 2.2 2.1 2.2 1.4 -155 90; L 2.2 7.4 2.2 -0.4",
    "~": "A 1.1 2.6 1.1 0.9 20 180; A 3.1 2.9 1.1 0.9 180 340",
    "^": "L 0 4.6 1.7 7 3.4 4.6",
    "`": "L 0 7 1 5.8",
    "{": "L 1.8 8 1 7.4 1 4.2 0 3.2 1 2.2 1 -0.9 1.8 -1.5",
    "}": "L 0 8 0.8 7.4 0.8 4.2 1.8 3.2 0.8 2.2 0.8 -0.9 0 -1.5",
}
_BOX = "L 0 0 0 7 4 7 4 0 0 0"


def text_width(text: str) -> float:
    """In units, from the first stroke's left end to the last one's right end."""
    return max(0.0, sum(_advance(character) for character in text) - GAP)


def text_strokes(text: str) -> Segments:
    """(m, 4): the line segments x0, y0, x1, y1 of a text that begins at the origin."""
    out, at = [np.empty((0, 4))], 0.0
    for character in text:
        if character != " ":
            out.append(_glyph(character) + np.array([at, 0.0, at, 0.0]))
        at += _advance(character)
    return np.concatenate(out)


def _advance(character: str) -> float:
    return SPACE + GAP if character == " " else float(_glyph(character)[:, [0, 2]].max()) + GAP


@cache
def _glyph(character: str) -> Segments:
    lines = [_points(stroke) for stroke in _STROKES.get(character, _BOX).split(";")]
    return np.concatenate([np.hstack([line[:-1], line[1:]]) for line in lines])


def _points(stroke: str) -> Segments:
    kind, *numbers = stroke.split()
    values = np.array(numbers, dtype=np.float64)
    if kind == "L":
        return values.reshape(-1, 2)
    x, y, rx, ry, start, end = values.tolist()
    angles = np.radians(np.linspace(start, end, max(2, round((end - start) / _ARC_STEP) + 1)))
    return np.column_stack([x + rx * np.cos(angles), y + ry * np.sin(angles)])
