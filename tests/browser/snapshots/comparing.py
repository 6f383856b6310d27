"""Two pictures of a page, compared as an eye from three steps away does: in squares of 4 x 4 pixels, so that the edge
of a letter or a line that is drawn half a pixel beside does not count.

    changed   share of squares whose colour differs by more than MOST_STEPS of 255 in any channel

MOST_CHANGED is ten times what two runs on one machine differ by, and a fraction of what each of the faults changes that
`test_snapshots` makes on purpose.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SQUARE_PX = 4
MOST_STEPS = 20
MOST_CHANGED = 0.002
N_COLOURS = 200
Pixels = NDArray[np.uint8]  # (height, width, 3)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`marked` is the new picture in grey with what differs in red."""

    changed: float
    marked: Image.Image

    @property
    def is_same(self) -> bool:
        return self.changed <= MOST_CHANGED


def compare(actual: Image.Image, expected: Image.Image) -> Comparison:
    """What one has and the other has not, because it is larger, differs."""
    size = (max(actual.width, expected.width), max(actual.height, expected.height))
    new, old = (_squares(image, size) for image in (actual, expected))
    differs = (np.abs(new - old) > MOST_STEPS).any(axis=2)
    outside = _outside(actual, size) != _outside(expected, size)
    differs |= outside[: differs.shape[0], : differs.shape[1]]
    return Comparison(changed=float(differs.mean()), marked=_marked(actual, differs, size))


def save(image: Image.Image, file: Path) -> None:
    """Write a palette PNG: a page has few colours, and a set of pictures weighs a sixth of what it would in full."""
    image.convert("RGB").quantize(N_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


def _squares(image: Image.Image, size: tuple[int, int]) -> NDArray[np.float32]:
    """Mean colours, (rows, columns, 3) float32; what does not fill a square is left out."""
    whole = Image.new("RGB", size)
    whole.paste(image.convert("RGB"))
    rows, columns = size[1] // SQUARE_PX, size[0] // SQUARE_PX
    pixels = np.asarray(whole, dtype=np.float32)[: rows * SQUARE_PX, : columns * SQUARE_PX]
    return pixels.reshape(rows, SQUARE_PX, columns, SQUARE_PX, 3).mean(axis=(1, 3))


def _outside(image: Image.Image, size: tuple[int, int]) -> NDArray[np.bool_]:
    rows, columns = np.indices((size[1] // SQUARE_PX, size[0] // SQUARE_PX))
    outside: NDArray[np.bool_] = (rows * SQUARE_PX >= image.height) | (columns * SQUARE_PX >= image.width)
    return outside


def _marked(actual: Image.Image, differs: NDArray[np.bool_], size: tuple[int, int]) -> Image.Image:
    grey = Image.new("RGB", size, "white")
    grey.paste(actual.convert("L").convert("RGB"))
    mask = Image.fromarray(np.where(differs, 190, 0).astype(np.uint8)).resize(
        (differs.shape[1] * SQUARE_PX, differs.shape[0] * SQUARE_PX), Image.Resampling.NEAREST
    )
    grey.paste(Image.new("RGB", mask.size, (220, 0, 40)), (0, 0), mask)
    return grey
