"""The texts that a teacher wrote for one slice, and the number by which such texts are ranked.

Three signals can rank a candidate, in this order of preference (seed 000, "The selection algorithm"): a reward model's
value, the verifiers' score, the teacher's own log-probability. They live on different scales, so a pool is ranked by
one signal only: the best that every member has. Which one it was is recorded on each candidate.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backend.domain.unicode_forms import unicode_form


class Signal(StrEnum):
    """The source of a score, best first. NONE: nothing tells the candidates apart, so ties are broken by key."""

    REWARD = "reward"
    VERIFIER = "verifier"
    LOGPROB = "logprob"
    NONE = "none"


class Origin(StrEnum):
    FRESH = "fresh"  # the teacher wrote it for this compile
    CAPTURE = "capture"  # the customer's production input
    DRAFT = "draft"  # an earlier compile's reject that the teacher or a verifier accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verifiers' verdict on a text: `score` in [0, 1], and whether every gating verifier let it pass."""

    passed: bool
    score: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`logprob` is the sum over the completion's `n_tokens` tokens; None where the teacher does not expose it.

    `score` and `signal` are None until `with_scores` has ranked the pool."""

    id: str
    slice_name: str
    text: str
    origin: Origin = Origin.FRESH
    logprob: float | None = None
    n_tokens: int = 0
    reward: float | None = None
    verdict: Verdict | None = None
    score: float | None = None
    signal: Signal | None = None


def rank_signal(candidates: Sequence[Candidate]) -> Signal:
    """The best signal that every candidate of the pool has; NONE for an empty pool."""
    if not candidates:
        return Signal.NONE
    return next(signal for signal in Signal if all(_value(c, signal) is not None for c in candidates))


def with_scores(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The same candidates, each with its score by the pool's signal. Higher is better; NONE gives everybody 0.

    A log-prob is taken per token: its sum would rank short texts first whatever they say."""
    signal = rank_signal(candidates)
    return tuple(replace(c, score=_value(c, signal), signal=signal) for c in candidates)


def text_key(text: str) -> str:
    """A stable name for a text: 32 hex characters of BLAKE2b over its NFC form without outer white space.

    It breaks ties in selection, so it depends on nothing but the text: not on the database's ids, not on arrival
    order."""
    normal = unicode_form("NFC", text).strip()
    return hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _value(candidate: Candidate, signal: Signal) -> float | None:
    match signal:
        case Signal.REWARD:
            return candidate.reward
        case Signal.VERIFIER:
            return None if candidate.verdict is None else candidate.verdict.score
        case Signal.LOGPROB:
            return None if candidate.logprob is None else candidate.logprob / max(candidate.n_tokens, 1)
        case Signal.NONE:
            return 0.0
