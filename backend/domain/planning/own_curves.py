"""The learning curve of examples that a customer has, before a compile: which rows are embedded, and what five folds of
them say. A logistic regression on frozen embeddings stands for the student, which is not trained yet."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.domain.errors import InvalidInput
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.learning_curves import CurvePoint, curve_points
from backend.domain.labeling.linear_head import Floats
from backend.domain.spec.gold import SIDES, normalise

MOST_ROWS = 1_000
MOST_CHARS = 200_000  # of all rows together: half a minute of one core
MOST_READ_CHARS = 1_000  # of a row: about what the embedder reads of it
LEAST_ROWS = 40
MOST_LABELS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRows:
    """`n_train` rows may train; of them `texts` (n,) are embedded, with the `labels` (n,) as numbers below `n_labels`
    and the `groups` (n,) of rows that must stay together."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    groups: tuple[int, ...]
    n_labels: int
    n_train: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCurve:
    """The points of five folds of `n_measured` of `n_train` rows, smallest share first."""

    points: tuple[CurvePoint, ...]
    n_train: int
    n_measured: int
    n_labels: int


def rows_for_curve(rows: Sequence[Mapping[str, Any]]) -> CurveRows:
    """The rows of an upload of examples that the curve is measured on: none that is held out, all or an even sample.
    Raises InvalidInput, with a sentence for the customer, where they say nothing of a curve."""
    usable = [row for row in rows if SIDES.get(str(row.get("split"))) != "heldout"]
    names = Counter(str(row["output"]) for row in usable)
    if len(usable) < LEAST_ROWS:
        raise InvalidInput(f"A learning curve takes {LEAST_ROWS} examples that may train; here are {len(usable)}.")
    if not 2 <= len(names) <= MOST_LABELS or 2 * len(names) > len(usable):
        message = f"A learning curve is measured for a label task with 2 to {MOST_LABELS} labels of two rows or more."
        raise InvalidInput(message)
    chosen = _within_bounds(sorted(usable, key=_draw))
    numbers = {name: number for number, name in enumerate(sorted({str(row["output"]) for row in chosen}))}
    groups: dict[str, int] = {}
    return CurveRows(
        texts=tuple(row["input"][:MOST_READ_CHARS] for row in chosen),
        labels=tuple(numbers[str(row["output"])] for row in chosen),
        groups=tuple(groups.setdefault(_group_of(row), len(groups)) for row in chosen),
        n_labels=len(numbers),
        n_train=len(usable),
    )


def measure_curve(rows: CurveRows, vectors: Floats) -> OwnCurve:
    """The curve by `vectors` (n, d), the embeddings of the rows' texts."""
    targets = np.zeros((len(rows.texts), rows.n_labels))
    targets[np.arange(len(rows.texts)), rows.labels] = 1
    folds = fold_of(rows.texts, np.array(rows.groups, dtype=np.int64))
    points = curve_points(vectors, targets, folds)
    return OwnCurve(points=tuple(points), n_train=rows.n_train, n_measured=len(rows.texts), n_labels=rows.n_labels)


def _draw(row: Mapping[str, Any]) -> bytes:
    """The row's place in an order that its content decides."""
    return hashlib.blake2b(f"{row['input']}\0{row['output']}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _within_bounds(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = []
    n_chars = 0
    for row in rows[:MOST_ROWS]:
        n_chars += min(len(row["input"]), MOST_READ_CHARS)
        if n_chars > MOST_CHARS and len(chosen) >= LEAST_ROWS:
            break
        chosen.append(row)
    return chosen


def _group_of(row: Mapping[str, Any]) -> str:
    return f"group {row['group']}" if row.get("group") else f"text {normalise(row['input'])}"
