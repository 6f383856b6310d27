"""The texts that a teacher wrote for one slice, and the number by which such texts are ranked.

Three signals can rank a candidate, in this order of preference (seed 000, "The selection algorithm"): a reward, the
verifiers' score, the teacher's own log-probability. They live on different scales, so a pool is ranked by one of them:
the reward where more than half of the pool has one, else the best that every member has. A candidate without a reward
in a pool that is ranked by it falls to the next signal that all have, and is placed by it on the reward's scale: a
candidate that the verifiers score like the middle of the pool gets the reward of the pool's middle. Which signal gave
a candidate its score is recorded on it.
"""

import hashlib
from bisect import bisect_left, bisect_right
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
    """The signal that ranks the pool: the reward if more than half have one, else the best that all have; NONE for an
    empty pool."""
    if not candidates:
        return Signal.NONE
    if 2 * sum(c.reward is not None for c in candidates) > len(candidates):
        return Signal.REWARD
    return _shared_signal(candidates)


def with_scores(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The same candidates, each with its score and the signal that it is from. Higher is better; NONE gives everybody
    0.

    A log-prob is taken per token: its sum would rank short texts first whatever they say."""
    signal = rank_signal(candidates)
    without = [c for c in candidates if _value(c, signal) is None]
    if not without:
        return tuple(replace(c, score=_value(c, signal), signal=signal) for c in candidates)
    next_signal = _shared_signal(candidates)
    known = [(_number(c, signal), _number(c, next_signal)) for c in candidates if _value(c, signal) is not None]
    scale, steps = sorted(one for one, _ in known), sorted(other for _, other in known)
    return tuple(
        replace(c, score=_value(c, signal), signal=signal)
        if _value(c, signal) is not None
        else replace(c, score=_at_quantile(_number(c, next_signal), steps, scale), signal=next_signal)
        for c in candidates
    )


def _shared_signal(candidates: Sequence[Candidate]) -> Signal:
    return next(signal for signal in Signal if all(_value(c, signal) is not None for c in candidates))


def _at_quantile(value: float, steps: Sequence[float], scale: Sequence[float]) -> float:
    """The number of `scale` at the quantile that `value` has among `steps`; both are sorted and equally long."""
    at = (bisect_left(steps, value) + bisect_right(steps, value)) / (2 * len(steps))
    return scale[min(len(scale) - 1, int(at * len(scale)))]


def _number(candidate: Candidate, signal: Signal) -> float:
    value = _value(candidate, signal)
    if value is None:
        raise ValueError("this candidate lacks the signal")
    return value


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
