"""Observation: which tokens of an accepted answer all of the teacher's samples agree on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

MAX_COMPARED = 1 << 22  # tokens times tokens (32 MB, 20 ms); beyond it only the common beginning and end are aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One accepted answer as token ids with its end token; `agreed[i]` of `n_samples` samples have token i at the
    place that alignment gives it, after the same token. `prompt`: what it answers; () where that is not known."""

    tokens: tuple[int, ...]
    agreed: tuple[int, ...]
    n_samples: int
    prompt: tuple[int, ...] = ()


def observe(output: Sequence[int], samples: Sequence[Sequence[int]], *, prompt: Sequence[int] = ()) -> Observed:
    """`samples` are the valid samples (the accepted one among them) in the same tokens; none at all: the output is
    its only sample.

    >>> observe([5, 6, 7, 0], [[5, 6, 7, 0], [5, 9, 7, 0]]).agreed
    (2, 1, 1, 2)
    """
    tokens = tuple(output)
    compared = [tuple(sample) for sample in samples] or [tokens]
    agreed = [0] * len(tokens)
    for sample in compared:
        for i in _agreeing(tokens, sample):
            agreed[i] += 1
    return Observed(tokens=tokens, agreed=tuple(agreed), n_samples=len(compared), prompt=tuple(prompt))


def agreed_runs(observed: Observed) -> list[tuple[int, int]]:
    """(begin, end) of the maximal runs on which all samples agree."""
    runs = []
    begin = 0
    for i, n in enumerate((*observed.agreed, -1)):
        if n != observed.n_samples:
            if begin < i:
                runs.append((begin, i))
            begin = i + 1
    return runs


def _agreeing(output: tuple[int, ...], sample: tuple[int, ...]) -> list[int]:
    """Places of the output whose token the sample has too, right after the same token (or at the beginning)."""
    places = [(-1, -1), *_align(output, sample)]
    return [i for (before, there), (i, j) in pairwise(places) if before == i - 1 and there == j - 1]


def _align(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[int, int]]:
    """Places that hold equal tokens, rising in both: a longest common subsequence between the common beginning and the
    common end."""
    head = _n_common(a, b)
    tail = _n_common(a[head:][::-1], b[head:][::-1])
    middle = _common_subsequence(a[head : len(a) - tail], b[head : len(b) - tail])
    return [
        *((i, i) for i in range(head)),
        *((head + i, head + j) for i, j in middle),
        *((len(a) - n, len(b) - n) for n in range(tail, 0, -1)),
    ]


def _common_subsequence(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[int, int]]:
    if not a or not b or len(a) * len(b) > MAX_COMPARED:
        return []
    right = np.array(b, dtype=np.int64)
    lengths = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int32)
    for i, token in enumerate(a):
        longer = np.maximum(lengths[i, 1:], lengths[i, :-1] + (right == token))
        lengths[i + 1, 1:] = np.maximum.accumulate(longer)
    places: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            places.append((i, j))
        elif lengths[i - 1, j] >= lengths[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return places[::-1]


def _n_common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
