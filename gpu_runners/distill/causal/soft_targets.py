"""A teacher's distributions of an answer's tokens as targets of the base's own tokens.

They are of use where both have one tokenizer, which each row shows for itself: the texts of the teacher's tokens are
those of the base's tokens of the same answer, one by one. A place is learnt by its likeliest tokens, renormalised and
mixed with the token that stands there.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpu_runners.models.causal_base import CausalBase

BROKEN = "\ufffd"  # a part of a character, which many tokens may be
BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token of a byte, for characters that have none of their own
MOST_LOST = 0.05  # of a place's probability that no token of the base stands for, above which it is not learnt

Place = tuple[str, Mapping[str, float]]  # a token and the log-probs of the likeliest in its place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SoftTargets:
    """`ids` (n, k) int64 and `probs` (n, k) float32 of the answer's n tokens, its end among them; what is not used is 0
    at probability 0. They add up to 1 at each token, the one that stands there first; of a student's own answer
    (`token_distributions`) to what the teacher tells, and to 0 where too much of it is unknown."""

    ids: NDArray[np.int64]
    probs: NDArray[np.float32]

    @property
    def n_learnt(self) -> int:
        """The number of tokens that have some target."""
        return int((self.probs > 0).any(axis=1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTexts:
    """`texts` of each id by itself; `ids` of the texts that one token alone has."""

    texts: list[str]
    ids: dict[str, int]

    @classmethod
    def of(cls, base: CausalBase) -> Self:
        """The texts as servers show tokens: each decoded by itself, special ones too. Where a text has a token of its
        own and one of a byte, as in a vocabulary that falls back to bytes, the tokenizer writes the first."""
        backend: Any = base.tokenizer.backend_tokenizer
        texts = backend.decode_batch([[i] for i in range(base.vocab_size)], skip_special_tokens=False)
        n_all = Counter(texts)
        shown = [i for i, text in enumerate(texts) if text and BROKEN not in text]
        own = [i for i in shown if n_all[texts[i]] == 1 or not BYTE.fullmatch(backend.id_to_token(i) or "")]
        n_own = Counter(texts[i] for i in own)
        once = {texts[i]: i for i in own if n_own[texts[i]] == 1}
        return cls(texts=texts, ids=once)

    def soft_targets(self, ids: Sequence[int], places: Sequence[Place], *, weight: float) -> SoftTargets | None:
        """The targets of an answer whose tokens are `ids`, its end the last; None where the teacher's tokens are
        others. A teacher may leave the end out: it is learnt as it is then."""
        likeliest = self._likeliest(ids, places)
        if likeliest is None:
            return None
        return _as_arrays([self._mix(i, one, weight) for i, one in zip(ids, likeliest, strict=True)])

    def token_distributions(self, ids: Sequence[int], places: Sequence[Place]) -> SoftTargets | None:
        """The teacher's own probabilities of the likeliest tokens at each place of a student's answer, not
        renormalised; nothing of a place that is not told, or that is too much unknown. None as in `soft_targets`, and
        where no place is known."""
        known = [[*self._in_base(one).items()] for one in self._likeliest(ids, places) or ()]
        return _as_arrays(known) if any(known) else None

    def _likeliest(self, ids: Sequence[int], places: Sequence[Place]) -> list[Mapping[str, float]] | None:
        """The log-probs at each place of an answer; {} of its end where that is not told."""
        if len(places) not in (len(ids) - 1, len(ids)):
            return None
        shown = [self.texts[i] for i in ids[:-1]]
        if any(not _is_same(own, place[0]) for own, place in zip(shown, places, strict=False)):
            return None
        likeliest = [place[1] for place in places[: len(ids) - 1]]
        ends_alike = len(places) == len(ids) and places[-1][0] == self.texts[ids[-1]]
        return [*likeliest, places[-1][1] if ends_alike else {}]

    def _mix(self, own: int, logprobs: Mapping[str, float], weight: float) -> list[tuple[int, float]]:
        """The token at `1 - weight` and the likeliest at their shares of `weight`; the token alone where too much of
        the place is unknown."""
        known = self._in_base(logprobs)
        if not known:
            return [(own, 1.0)]
        total = sum(known.values())
        soft = {i: weight * p / total for i, p in known.items()}
        first = 1.0 - weight + soft.pop(own, 0.0)
        return [(own, first), *soft.items()]

    def _in_base(self, logprobs: Mapping[str, float]) -> dict[int, float]:
        """The probabilities of the base's tokens; none where too much of the place is of others."""
        known = {self.ids[text]: math.exp(p) for text, p in logprobs.items() if text in self.ids}
        total, mass = sum(known.values()), sum(map(math.exp, logprobs.values()))
        return {} if total <= 0 or mass - total > MOST_LOST * mass else known


def _as_arrays(rows: Sequence[Sequence[tuple[int, float]]]) -> SoftTargets:
    width = max(1, *map(len, rows))
    out = SoftTargets(ids=np.zeros((len(rows), width), np.int64), probs=np.zeros((len(rows), width), np.float32))
    for at, one in enumerate(rows):
        out.ids[at, : len(one)] = [i for i, _ in one]
        out.probs[at, : len(one)] = [p for _, p in one]
    return out


def read_places(value: object) -> tuple[Place, ...] | None:
    """The places of a dataset's line; None where they are no tokens with finite log-probs at or below 0."""
    if not isinstance(value, list):
        return None
    places: list[Place] = []
    for one in value:
        if not isinstance(one, list) or len(one) != 2 or not isinstance(one[0], str) or not isinstance(one[1], dict):
            return None
        if not all(_is_logprob(p) for p in one[1].values()):
            return None
        places.append((one[0], one[1]))
    return tuple(places)


def _is_same(own: str, theirs: str) -> bool:
    """Say whether both show one token; a part of a character shows as BROKEN in either."""
    return own == theirs or (BROKEN in own and BROKEN in theirs)


def _is_logprob(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e6 <= value <= 0
