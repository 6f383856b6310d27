"""The command line of `kolm select` as a value, and what is refused before the first minute is spent."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from backend.domain.selection.options import DEFAULT_LAMBDA, checked_options

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The command line. `k` None is a third of the rows."""

    file: str
    k: int | None = None
    method: str = "auto"
    linkage: str = "average"
    diversity_lambda: float = DEFAULT_LAMBDA
    penalty: str = "nearest"
    min_distance: float = 0.0
    score_floor: float | None = None
    overcluster: float = 1.0
    seed: int = 0
    stratify: bool = True
    is_traffic: bool = False
    drop_k: bool = False
    text_lines: bool = False
    embeddings: str | None = None
    out: str | None = None
    dropped: str | None = None
    report: str | None = None
    map: str | None = None
    explain: list[str] = field(default_factory=list)
    as_json: bool = False


class Refused(Exception):
    """The command ends here with this message; `exit_code` 2 is bad input, 1 anything else."""

    def __init__(self, message: str, *, exit_code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check(request: Request) -> None:
    """Refuse what can be refused without reading a row. Raises Refused, InvalidInput."""
    checked_options(
        k=request.k or 0,
        method=request.method,
        linkage=request.linkage,
        score_floor=request.score_floor,
        diversity_lambda=request.diversity_lambda,
        penalty=request.penalty,
        min_distance=request.min_distance,
        overcluster=request.overcluster,
        seed=request.seed,
    )
    if request.map is not None and Path(request.map).suffix.lower() != ".svg":
        raise Refused(f"--map writes SVG alone: name a file that ends in .svg, not {request.map!r}.")
    if request.text_lines and request.embeddings:
        raise Refused("--text-lines are embedded here; leave --embeddings out, or give JSON lines with ids.")
    outputs = [request.out, request.dropped, request.report, request.map]
    _check_places([path for path in outputs if path is not None], [request.file, request.embeddings or "-"])


def is_stream(path: str) -> bool:
    """A device, a pipe or a link: written straight into, where a file is replaced whole."""
    place = Path(path)
    return place.is_symlink() or (place.exists() and not place.is_file() and not place.is_dir())


def _check_places(outputs: list[str], inputs: list[str]) -> None:
    taken = {Path(path).resolve() for path in inputs if path != "-"}
    for path in outputs:
        place = Path(path).resolve()
        if is_stream(path):
            continue
        if place in taken:
            raise Refused(f"{path} is named twice; every input and output has a file of its own.")
        taken.add(place)
        if place.is_dir() or not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
            raise Refused(f"{path} cannot be written: name a file in a folder that can be written to.")
