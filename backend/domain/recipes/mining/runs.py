"""The continuation of a group of places: the run of tokens that holds often enough, and how far it does at each
place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.recipes.mining.corpus import PPM, Corpus, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of one kind of context. By group: `support` (its places), `first` (one of them), `lengths` of its run,
    `runs` (n, max_draft) with -1 after the run, `agreed` (n, max_draft) how many of the places went along so far, in
    millionths. By place: `of_place` (-1: none), `accepted` tokens of the group's run that come there."""

    support: Ints
    first: Ints
    lengths: Ints
    runs: Ints
    agreed: Ints
    of_place: Ints
    accepted: Ints


def runs_of(
    corpus: Corpus,
    of_place: Ints,
    token_texts: Sequence[bytes],
    *,
    max_draft: int,
    min_support: int,
    min_agreement_ppm: int,
    end_ids: Sequence[int],
) -> Groups:
    """A run goes on as long as its next token keeps `min_agreement_ppm` of the group's places with it; a place counts
    by the smallest share of samples that agreed on any of the run's tokens there. Nothing comes after an end token."""
    n = int(of_place.max(initial=-1)) + 1
    places = np.flatnonzero(of_place >= 0)
    support = np.bincount(of_place[places], minlength=n).astype(np.int64)
    first = np.zeros(n, dtype=np.int64)
    first[of_place[places[::-1]]] = places[::-1]
    runs = np.full((n, max_draft), -1, dtype=np.int64)
    agreed = np.zeros((n, max_draft), dtype=np.int64)
    accepted = np.zeros(len(of_place), dtype=np.int64)
    alive = places[support[of_place[places]] >= min_support]
    sure = np.full(len(alive), PPM, dtype=np.int64)
    for depth in range(max_draft):
        tokens = corpus.tokens[alive + depth]
        alive, sure, tokens = alive[tokens >= 0], sure[tokens >= 0], tokens[tokens >= 0]
        if not len(alive):
            break
        sure = np.minimum(sure, corpus.sure[alive + depth])
        chosen, weight = _commonest(of_place[alive], tokens, sure, n)
        holds = (chosen >= 0) & (weight >= min_agreement_ppm * support)
        runs[holds, depth], agreed[holds, depth] = chosen[holds], weight[holds]
        goes_on = holds[of_place[alive]] & (chosen[of_place[alive]] == tokens)
        alive, sure, tokens = alive[goes_on], sure[goes_on], tokens[goes_on]
        accepted[alive] = depth + 1
        is_end = np.isin(tokens, np.array(end_ids, dtype=np.int64))
        alive, sure = alive[~is_end], sure[~is_end]
    lengths = _whole_lengths(runs, token_texts)
    accepted = np.where(of_place >= 0, np.minimum(accepted, lengths[of_place]), 0) if n else accepted
    return Groups(
        support=support,
        first=first,
        lengths=lengths,
        runs=runs,
        agreed=agreed,
        of_place=of_place,
        accepted=accepted,
    )


def _commonest(groups: Ints, tokens: Ints, weights: Ints, n: int) -> tuple[Ints, Ints]:
    """Find by group the token with most weight (of equals the smallest; -1 for none) and its weight."""
    span = int(tokens.max()) + 1
    keys, inverse = np.unique(groups * span + tokens, return_inverse=True)
    total = np.bincount(inverse, weights=weights).astype(np.int64)  # exact: below 2^53
    order = np.lexsort((keys, -total, keys // span))
    group = keys[order] // span
    is_best = np.concatenate(([True], group[1:] != group[:-1]))
    best = order[is_best]
    chosen, weight = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    chosen[keys[best] // span], weight[keys[best] // span] = keys[best] % span, total[best]
    return chosen, weight


def _whole_lengths(runs: Ints, token_texts: Sequence[bytes]) -> Ints:
    """Return how long each run is when it ends with a whole character."""
    lengths: Ints = (runs >= 0).sum(axis=1).astype(np.int64)
    is_plain = np.array([text.isascii() for text in token_texts] + [True], dtype=np.bool_)
    for i in np.flatnonzero(np.any(~is_plain[runs], axis=1)):
        lengths[i] = whole_length([token_texts[token] for token in runs[i, : lengths[i]]])
    return lengths


def whole_length(texts: Sequence[bytes]) -> int:
    """Return how many of the tokens make whole characters; 0 where they are no UTF-8.

    >>> whole_length(["a".encode(), "\\u20ac".encode()[:2]])
    1
    """
    whole, rest = 0, b""
    for i, text in enumerate(texts):
        rest += text
        try:
            rest.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return whole
            rest = rest[error.start :]
        else:
            whole, rest = i + 1, b""
    return whole
