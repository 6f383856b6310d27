"""Labelled pairs: read strictly, batched by length. All orders follow from (seed, epoch)
alone, so that a resumed run walks the same batches as an uninterrupted one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_runners.errors import JobFailed
from gpu_runners.models.tensor_files import Array

PPM = 1_000_000
_KEYS = {"input", "label", "weight", "targets"}
BUCKET = 8  # batches' worth of examples that are sorted by length together: less padding, still well mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """`targets`: (index of a label, parts of a million), all of them together a million; empty where the label is
    sure."""

    text: str
    label: int  # index into the job's labels
    weight: float
    targets: tuple[tuple[int, int], ...] = ()


def targets_of(pairs: Sequence[Pair], n_labels: int) -> Array:
    """(n, n_labels) float32: the probability of each label, rows sum to 1."""
    out = np.zeros((len(pairs), n_labels), dtype=np.float32)
    for row, pair in zip(out, pairs, strict=True):
        for label, ppm in pair.targets or ((pair.label, PPM),):
            row[label] = ppm / PPM
    return out


def read_pairs(data: bytes, labels: Sequence[str]) -> list[Pair]:
    """Parse the dataset blob. Raises JobFailed(invalid_dataset) naming the line."""
    index = {label: i for i, label in enumerate(labels)}
    if len(index) != len(labels) or len(labels) < 2:
        raise _invalid("a label task needs at least two labels, all different")
    pairs = []
    for n, row in _rows(data):
        if not {"input", "label", "weight"} <= set(row) <= _KEYS or row["label"] not in index:
            raise _invalid(f"line {n} is not {{input, label, weight}} with one of the job's labels")
        if not isinstance(row["input"], str):
            raise _invalid(f"line {n} has an input that is not a text")
        if isinstance(row["weight"], bool) or not isinstance(row["weight"], int | float) or not 0 < row["weight"] < 1e6:
            raise _invalid(f"line {n} has a weight outside (0, 1e6)")
        targets = _targets(row, index, n) if "targets" in row else ()
        pairs.append(Pair(text=row["input"], label=index[row["label"]], weight=float(row["weight"]), targets=targets))
    missing = sorted(set(range(len(labels))) - {pair.label for pair in pairs})
    if missing:
        raise _invalid(f"there is no pair for {', '.join(repr(labels[i]) for i in missing[:5])}")
    return pairs


def _targets(row: Mapping[str, Any], index: Mapping[str, int], n: int) -> tuple[tuple[int, int], ...]:
    """The label's must be the greatest: it stands for the pair wherever one label is asked for."""
    targets = row["targets"]
    is_fine = isinstance(targets, dict) and all(
        label in index and type(ppm) is int and 0 <= ppm <= PPM for label, ppm in targets.items()
    )
    if not is_fine or sum(targets.values()) != PPM:
        raise _invalid(f"line {n} has targets that are not parts of {PPM:,} for some of the job's labels")
    if targets.get(row["label"]) != max(targets.values()):
        raise _invalid(f"line {n} has a label that is not the greatest of its targets")
    return tuple(sorted((index[label], ppm) for label, ppm in targets.items() if ppm))


def labels_in(data: bytes) -> set[str]:
    """The labels that a dataset blob's pairs have. Raises JobFailed(invalid_dataset)."""
    labels = (row.get("label") for _, row in _rows(data))
    return {label for label in labels if isinstance(label, str)}


def read_inputs(data: bytes) -> list[str]:
    texts = []
    for n, row in _rows(data):
        if set(row) != {"input"} or not isinstance(row["input"], str):
            raise _invalid(f"line {n} is not {{input}}")
        texts.append(row["input"])
    return texts


def batches(lengths: Sequence[int], *, size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """One epoch's batches of indices: a seeded permutation, sorted by length inside buckets of 8 batches, batches
    shuffled again."""
    rng = np.random.default_rng([seed % 2**32, epoch])
    order = rng.permutation(len(lengths))
    tokens = np.asarray(lengths)
    out: list[NDArray[np.int64]] = []
    for start in range(0, len(order), size * BUCKET):
        bucket = order[start : start + size * BUCKET]
        bucket = bucket[np.argsort(tokens[bucket], kind="stable")]
        out.extend(bucket[i : i + size] for i in range(0, len(bucket), size))
    return [out[i] for i in rng.permutation(len(out))]


def _rows(data: bytes) -> list[tuple[int, dict[str, object]]]:
    rows = []
    try:
        for n, line in enumerate(data.decode("utf-8").split("\n"), start=1):
            if line.strip():
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise _invalid(f"line {n} is not a JSON object")
                rows.append((n, row))
    except ValueError as error:
        raise _invalid(f"it is not JSON lines in UTF-8 ({error})") from error
    if not rows:
        raise _invalid("it is empty")
    return rows


def _invalid(why: str) -> JobFailed:
    return JobFailed(f"The job's dataset cannot be used: {why}.", code="invalid_dataset")
