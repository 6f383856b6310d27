"""Verification by typicality: is a draft about as likely under the new prompt as what the teacher writes for it?

A conformal test against fresh candidates of the slice: the teacher's own answers pass with probability at least
1 - alpha. It is no sampling rule: drafts that pass are not distributed as the teacher's answers, and say so (TYPICAL).
It needs no old prompt and no alternatives, one score a text.
"""

import math
import random
from collections.abc import Sequence

from backend.domain.draft_costs import Quote, score_quote
from backend.domain.draft_rules_sequences import typicality
from backend.domain.drafts import Certificate, Cost, DraftVerdict, StoredDraft, Strategy, Verification
from backend.domain.pricing import TeacherPrice
from workers.teachers.answers import estimate_tokens, likely_input_tokens
from workers.teachers.draft_scores import score_request
from workers.teachers.draft_verifiers import Answer, Asked, Conversation, SamplingPolicy
from workers.teachers.protocol import Choice, TeacherCaps


class TypicalVerifier:
    """Accepts a draft whose p-value among the fresh candidates is above `alpha`. That takes 1/alpha - 1 of them: with
    fewer no p-value could be small enough to refuse, and nothing is asked or accepted."""

    def __init__(self, *, alpha: float = 0.1) -> None:
        self._alpha = alpha

    @property
    def strategy(self) -> Strategy:
        return Strategy.LOGPROBS

    def capable(self, caps: TeacherCaps, policy: SamplingPolicy) -> bool:
        """Any score will do that is the same for drafts and fresh candidates; at temperature 0 there is but one
        answer."""
        return caps.prompt_logprobs and policy.temperature > 0

    def quote(self, asked: Asked, drafts: Sequence[StoredDraft], price: TeacherPrice) -> Quote:
        """The fresh candidates are scored once for all drafts."""
        prompt = likely_input_tokens(asked.request)
        fresh = score_quote(
            prompt_tokens=prompt, draft_tokens=[estimate_tokens(text) for text in asked.fresh], price=price
        )
        scored = score_quote(prompt_tokens=prompt, draft_tokens=[draft.n_tokens for draft in drafts], price=price)
        return Quote(overhead_microusd=fresh.whole_microusd, per_draft_microusd=scored.per_draft_microusd)

    def verify(self, asked: Asked, drafts: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        if not drafts or len(asked.fresh) + 1 < round(1 / self._alpha):
            return Verification(verdicts=tuple(_refused(draft, 0) for draft in drafts))
        texts = [*asked.fresh, *(draft.text for draft in drafts)]
        # the policy of the answers is not needed: raw log-probs rank as well, and every teacher tells those
        raw = SamplingPolicy(temperature=1.0)
        answers = yield [score_request(asked.request.messages, text, raw, 0) for text in texts]
        told = [_score(answer) for answer in answers]
        fresh = [score for score in told[: len(asked.fresh)] if score is not None]
        verdicts = [
            self._verdict(draft, score, fresh, answer)
            for draft, score, answer in zip(drafts, told[len(asked.fresh) :], answers[len(asked.fresh) :], strict=True)
        ]
        return Verification(
            verdicts=tuple(verdicts),
            cost=sum((answer.cost for answer in answers), start=Cost()),
            kept_tokens={Certificate.TYPICAL: sum(verdict.kept_tokens for verdict in verdicts)},
        )

    def _verdict(self, draft: StoredDraft, score: float | None, fresh: Sequence[float], answer: Answer) -> DraftVerdict:
        cost_microusd = answer.cost.amount_microusd
        if score is None or not draft.text or len(fresh) + 1 < round(1 / self._alpha):
            return _refused(draft, cost_microusd)
        p_value = typicality(score, fresh)
        if p_value <= self._alpha:
            return _refused(draft, cost_microusd, p_value)
        return DraftVerdict(
            draft_id=draft.draft_id,
            is_accepted=True,
            text=draft.text,
            n_tokens=draft.n_tokens,
            kept_tokens=draft.n_tokens,
            certificate=Certificate.TYPICAL,
            p_value=p_value,
            cost_microusd=cost_microusd,
        )

    def audit(self, asked: Asked, accepted: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        """Nothing: the test's own rate of errors is stated, and a bad draft is not what it looks for."""
        yield from ()
        return Verification(verdicts=())


def _refused(draft: StoredDraft, cost_microusd: int, p_value: float | None = None) -> DraftVerdict:
    return DraftVerdict(draft_id=draft.draft_id, is_accepted=False, p_value=p_value, cost_microusd=cost_microusd)


def _score(answer: Answer) -> float | None:
    """Mean log-prob a token; None where the answer is not one."""
    rows = _rows(answer.choices[0]) if answer.choices else ()
    return math.fsum(rows) / len(rows) if rows and all(math.isfinite(p) and p <= 0 for p in rows) else None


def _rows(choice: Choice) -> tuple[float, ...]:
    return choice.token_logprobs or ()
