"""The pool: candidates checked once, and the order in which they are looked at."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from backend.domain.errors import InvalidInput, Problem
from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.clustering import Dendrogram, Floats, Ints, Rows

FLOAT64_ROWS = 3_000  # float64 costs nothing there; above, float32 halves the memory
_BLOCK = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Checked candidates as the caller gave them: `scores` (n,) float64, `rows` (n, d) unit or zero, float64 up to
    3,000 rows and float32 above."""

    rows: Rows
    scores: Floats
    keys: Sequence[str]
    labels: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Candidates that are not selected from: their labels, with those of the pool, tell `auto` which labels the others
    contradict."""

    embeddings: ArrayLike
    scores: Sequence[float]
    keys: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One stratum after its selection; `name` is its label, None where the whole pool is one. `order` (m,) leads from
    the clustered rows, in canonical order and above the floor, to the caller's indices; `labels` (m,) are the forced
    split's clusters, `picks` rows that were kept. `n` is the stratum's size before the floor."""

    name: str | None
    n: int
    order: Ints
    dendrogram: Dendrogram
    labels: Ints
    picks: Ints
    k_requested: int


def checked_pool(
    embeddings: ArrayLike, scores: Sequence[float], keys: Sequence[str] | None, labels: Sequence[str] | None
) -> Pool:
    """The candidates as arrays, rows brought to length 1 (zero rows stay zero). Raises InvalidInput."""
    try:
        values = np.array(scores, dtype=np.float64).reshape(len(scores))
        raw = np.asarray(embeddings)
        raw = raw if raw.dtype in (np.float32, np.float64) else raw.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"Embeddings must be n rows of one width and scores n numbers: {error}") from error
    if len(values) == 0 and raw.size == 0:
        raw = raw.reshape(0, 0)
    n = len(values)
    columns = [part for part in (keys, labels) if part is not None]
    if raw.ndim != 2 or len(raw) != n or any(len(column) != n for column in columns):
        shapes = f"embeddings {raw.shape}, {n} scores, " + ", ".join(f"{len(c)} keys or labels" for c in columns)
        raise InvalidInput(f"Each candidate needs one embedding row, one score and one key; got {shapes}.")
    if n > clustering.MAX_ROWS:
        raise InvalidInput(
            f"{n:,} candidates are more than the {clustering.MAX_ROWS:,} that can be selected from at once.",
            code="too_many_candidates",
        )
    _refuse_rows("scores", np.logical_not(np.isfinite(values)))
    rows = _unit_rows(raw)
    return Pool(rows=rows, scores=values, keys=_row_keys(rows) if keys is None else keys, labels=labels)


def join_pools(pool: Pool, beside: Beside) -> Pool:
    """Put the candidates beside the pool behind its own, which are labelled. Raises InvalidInput."""
    other = checked_pool(beside.embeddings, beside.scores, beside.keys, beside.labels)
    return Pool(
        rows=np.concatenate((pool.rows, other.rows)),
        scores=np.concatenate((pool.scores, other.scores)),
        keys=[*pool.keys, *other.keys],
        labels=[*(pool.labels or ()), *(other.labels or ())],
    )


def _unit_rows(raw: Rows) -> Rows:
    """Normalise in blocks, so that no second float64 copy of 100,000 rows is made."""
    rows = np.empty(raw.shape, dtype=np.float64 if len(raw) <= FLOAT64_ROWS else np.float32)
    bad = np.zeros(len(raw), dtype=bool)
    for start in range(0, len(raw), _BLOCK):
        block = np.array(raw[start : start + _BLOCK], dtype=np.float64)
        bad[start : start + _BLOCK] = np.logical_not(np.isfinite(block)).any(axis=1)
        block[~np.isfinite(block)] = 0.0  # refused below, with all the others
        largest = np.abs(block).max(axis=1, keepdims=True, initial=0.0)
        block /= np.where(largest > 0, largest, 1.0)  # first, so that squaring neither overflows nor vanishes
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
        rows[start : start + _BLOCK] = block / np.where(lengths > 0, lengths, 1.0)
    _refuse_rows("embeddings", bad)
    return rows


def _row_keys(rows: Rows) -> list[str]:
    return [hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows.astype(np.float32)]


def _refuse_rows(name: str, bad: NDArray[np.bool_]) -> None:
    where = np.flatnonzero(bad).tolist()
    if where:
        listed = ", ".join(map(str, where[:10])) + (f" and {len(where) - 10} more" if len(where) > 10 else "")
        message = "This row is not finite."
        problems = tuple(Problem(pointer=f"/{name}/{i}", message=message, code="not_finite") for i in where[:100])
        raise InvalidInput(f"Rows of {name} that are not finite: {listed}.", code="not_finite", problems=problems)


def canonical_order(ranks: Floats, pool: Pool, members: Ints) -> Ints:
    """`members`, best score first, then key; candidates equal in both are told apart by their embedding, and are the
    same if it is equal too."""
    where = members.tolist()
    names: list[tuple[Any, ...]] = [
        (-rank, pool.keys[i]) for rank, i in zip(ranks[members].tolist(), where, strict=True)
    ]
    if len(set(names)) < len(names):
        names = [(*name, pool.rows[i].tobytes()) for name, i in zip(names, where, strict=True)]
    return members[np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)]


def rescale(values: Floats) -> Floats:
    """Scores on [0, 1] over the pool; all zeros where they are all equal. Halved first: the range may exceed the
    largest float."""
    if len(values) == 0:
        return values
    low, high = values.min() / 2, values.max() / 2
    return (values / 2 - low) / (high - low) if high > low else np.zeros_like(values)
