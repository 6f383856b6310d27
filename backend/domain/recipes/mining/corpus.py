"""All observed answers as one row of tokens, and which of their places look alike: the counting behind a pack.

A place is where a token stands; its contexts are the last m tokens before it, the shape of the text before it, and the
keyed shape. Places with one context are a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.recipes.observing import Observed
from backend.domain.recipes.pack import BEGIN
from backend.domain.recipes.shapes import ShapeTable

Ints = NDArray[np.int64]
PPM = 1_000_000
END = -2  # stands after an answer's last token


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """`tokens`: per answer BEGIN, its tokens, END, one after the other. `sure`: the share of samples that agree on the
    token, in ppm. `states`: of `shapes`, before each token. `is_place`: a token stands there, and the text before it
    ends with a whole character."""

    tokens: Ints
    sure: Ints
    states: Ints
    is_place: NDArray[np.bool_]
    shapes: ShapeTable


def corpus_of(observed: Sequence[Observed], token_texts: Sequence[bytes]) -> Corpus:
    """The order of `observed` does not matter."""
    shapes = ShapeTable(token_texts)
    ordered = sorted(observed, key=lambda one: (one.tokens, one.agreed, one.n_samples))
    tokens: list[int] = []
    sure: list[int] = []
    states: list[int] = []
    for one in ordered:
        state = shapes.start
        tokens += (BEGIN, *one.tokens, END)
        sure += (0, *(PPM * n // one.n_samples for n in one.agreed), 0)
        states.append(-1)
        for token in one.tokens:
            states.append(state)
            state = shapes.advance(state, token)
        states.append(-1)
    row = np.array(tokens, dtype=np.int64)
    begins_whole = np.array([not text or not 0x80 <= text[0] < 0xC0 for text in token_texts] + [False], dtype=np.bool_)
    is_known = (row >= 0) & (row < len(token_texts))
    return Corpus(
        tokens=row,
        sure=np.array(sure, dtype=np.int64),
        states=np.array(states, dtype=np.int64),
        is_place=is_known & begins_whole[np.where(is_known, row, -1)],
        shapes=shapes,
    )


def grouped_by_literal(corpus: Corpus, lengths: Sequence[int], min_support: int) -> dict[int, Ints]:
    """Group places by context length m: each place's group, -1 where fewer than `min_support` places have the last m
    tokens. What is rare at one length is rare at all longer ones, so that the counting shrinks as it goes on."""
    tokens = corpus.tokens
    groups = np.zeros(len(tokens), dtype=np.int64)
    by_length: dict[int, Ints] = {}
    for m in range(1, max(lengths, default=0) + 1):
        before = np.concatenate(([-1], groups[:-1]))
        before[tokens == BEGIN] = -1
        previous = np.concatenate(([0], tokens[:-1]))
        groups = _number(before * (tokens.max(initial=0) + 3) + previous + 2, before >= 0, min_support)
        if m in lengths:
            by_length[m] = np.where(corpus.is_place, groups, -1)
    return by_length


def grouped_by_shape(corpus: Corpus, min_support: int, *, keyed: bool) -> Ints:
    written = [corpus.shapes.keyed_text(s) if keyed else corpus.shapes.text(s) for s in range(corpus.shapes.n_states)]
    numbers = {text: i for i, text in enumerate(sorted(set(written)))}
    of_state = np.array([numbers[text] if text else -1 for text in written], dtype=np.int64)
    groups = np.where(corpus.is_place, of_state[corpus.states], -1)
    return _number(groups, groups >= 0, min_support)


def _number(keys: Ints, counts: NDArray[np.bool_], min_support: int) -> Ints:
    """0, 1, ... for the keys that occur often enough where `counts`; -1 for all else."""
    numbers = np.full(len(keys), -1, dtype=np.int64)
    _, inverse, n_places = np.unique(keys[counts], return_inverse=True, return_counts=True)
    is_large = n_places >= min_support
    dense = np.where(is_large, np.cumsum(is_large) - 1, -1)
    numbers[counts] = dense[inverse]
    return numbers
