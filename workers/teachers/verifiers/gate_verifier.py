"""Drafts verified by the task's own verifier alone: no request, and nothing said about what the teacher would write.

Opt-in. A draft passes at a score of at least a threshold, and only where that threshold is certified: a judge's answers
about such drafts have shown, by an anytime-valid test, that at most a stated share of them is bad
(`backend.domain.drafts.judge_controls.certified_threshold`). Without a certificate nothing passes.
"""

import random
from collections.abc import Callable, Sequence
from types import MappingProxyType

from backend.domain.drafts.costs import Quote
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft, Strategy, Verification
from backend.domain.money.pricing import TeacherPrice
from workers.teachers.protocol import TeacherCaps
from workers.teachers.verifiers.protocol import Conversation, SamplingPolicy, VerificationContext


class GateVerifier:
    """`scores` are the task's verifier's on the new slice, in [0, 1], one a text, or None where the spec names no
    ranking verifier; `threshold` is the certified one, None while there is none."""

    strategy = Strategy.GATE

    def __init__(self, *, scores: Callable[[Sequence[str]], Sequence[float] | None], threshold: float | None) -> None:
        self._scores = scores
        self._threshold = threshold

    def capable(self, caps: TeacherCaps, policy: SamplingPolicy) -> bool:
        """Say whether a threshold is certified. Any teacher will do: it is not asked."""
        return self._threshold is not None

    def quote(self, asked: VerificationContext, drafts: Sequence[StoredDraft], price: TeacherPrice) -> Quote:
        return Quote(overhead_microusd=0.0, per_draft_microusd=(0.0,) * len(drafts))

    def verify(self, asked: VerificationContext, drafts: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        yield from ()
        threshold, scores = self._threshold, self._scores([draft.text for draft in drafts])
        if threshold is None or scores is None:
            return Verification(verdicts=tuple(_verdict(draft, False) for draft in drafts))
        verdicts = tuple(_verdict(draft, score >= threshold) for draft, score in zip(drafts, scores, strict=True))
        kept = sum(verdict.kept_tokens for verdict in verdicts)
        return Verification(verdicts=verdicts, kept_tokens=MappingProxyType({Certificate.GATED: kept} if kept else {}))


def _verdict(draft: StoredDraft, is_accepted: bool) -> DraftVerdict:
    if not is_accepted:
        return DraftVerdict(draft_id=draft.draft_id, is_accepted=False)
    return DraftVerdict(
        draft_id=draft.draft_id,
        is_accepted=True,
        text=draft.text,
        n_tokens=draft.n_tokens,
        kept_tokens=draft.n_tokens,
        certificate=Certificate.GATED,
    )
