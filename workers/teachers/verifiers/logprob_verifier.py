"""Verification by log-probs over the API: the draft is scored, its first tokens are kept by an exact rule, one token is
drawn from the residual and the teacher writes the rest. What enters the pool is distributed as the teacher's own
answer, whole draft or not.

What makes it so, beside the rules' own conditions (backend.domain.drafts.acceptance_rules):
- the draft is a sample of the teacher's answers to the old prompt, under this policy and revision, and was not picked
  by its text or score. `selection_tv` says how far the stored drafts are from a sample (K/N where only the N - K
  rejected ones are stored, and the share that a deterministic verifier refused); the certificate is BOUNDED by it then.
  Point mass and argmax need none of this.
- log-probs are of the sampled distribution, temperature and top-k included. Where scores are reproducible, stored ones
  that differ from the old prompt's show that the draft is of another temperature or revision, and it is refused.
- a kept beginning is tokenised, when the teacher goes on from it, into the tokens that were kept.
A draft that does not fit (other tokens than the teacher's, broken numbers, longer than an answer may be, hence perhaps
than the context) is refused: nothing enters.

It pays only where drafts are close. With an input token at the price of r output tokens and a total variation of
epsilon a token, about min(L, 1/epsilon) tokens are kept and r L is spent on scoring: epsilon has to be at most 1/(rL),
1 % at 500 tokens and 8 % at 60 for r = 1/5. Scoring goes by chunks, so that what lies behind a stop is not paid for;
every chunk sends the prompt and the tokens before it again, hence small chunks are for short or cached prompts.

Exact means up to the engine's own repeatability: two plain runs of one score need not tell the same. How far they lie
apart is measured, by one score a question that is asked for twice.

A quote is an expectation. Under the rules that accept by a ratio of two probabilities it assumes that nine drafts in
ten are kept whole (KEPT_WHOLE): near enough to where showing them begins to pay, and what is less close is not shown
for want of acceptance, whatever its quote. So a draft is scored under the new prompt, and with a chance of one in ten,
somewhere in its middle, it stops: then the old prompt is asked for the residual and the teacher goes on. A point mass
stops nearly always, and is quoted so.
"""

import random
from collections.abc import Sequence

from backend.domain.drafts.costs import Quote, score_quote
from backend.domain.drafts.vocabulary import (
    Certificate,
    Cost,
    DraftVerdict,
    Repeatability,
    StoredDraft,
    Strategy,
    Verification,
)
from backend.domain.money.pricing import TeacherPrice
from workers.teachers.protocol import Message, TeacherCaps
from workers.teachers.token_estimates import estimate_tokens, likely_input_tokens
from workers.teachers.verifiers.acceptance_rules import Rule
from workers.teachers.verifiers.conversations import Billed, Part, together, with_cost
from workers.teachers.verifiers.logprob_verification import DraftCase, verify_one
from workers.teachers.verifiers.protocol import Conversation, SamplingPolicy, VerificationContext
from workers.teachers.verifiers.token_scores import stored_tokens

KEPT_WHOLE = {Rule.ARGMAX: 0.9, Rule.STORED: 0.9, Rule.TOKEN: 0.9, Rule.BLOCK: 0.9, Rule.POINT: 0.0}


class LogprobVerifier:
    """`rule` is what is wanted: STORED scores under the new prompt, and under the old one where a draft stops; BLOCK
    and TOKEN score under both; POINT under the new one alone. BLOCK keeps the most tokens and POINT by far the fewest.
    `rule_for` says what a rule becomes where the teacher or the store tells less than it needs."""

    def __init__(
        self, caps: TeacherCaps, *, rule: Rule = Rule.STORED, chunk_tokens: int = 128, selection_tv: float = 0.0
    ) -> None:
        self._caps = caps
        self._rule = rule
        self._chunk_tokens = chunk_tokens
        self._selection_tv = selection_tv

    @property
    def strategy(self) -> Strategy:
        return Strategy.LOGPROBS

    def capable(self, caps: TeacherCaps, policy: SamplingPolicy) -> bool:
        """A nucleus is not: its log-probs are told before it is cut. Nor is a temperature whose distribution cannot be
        worked out from the raw log-probs of a part of the vocabulary."""
        knows_p = caps.processed_scores or policy.temperature in (0.0, 1.0) or _is_covered(caps, policy)
        return caps.prompt_logprobs and caps.prefix and policy.top_p == 1.0 and knows_p

    def rule_for(self, policy: SamplingPolicy, *, has_old: bool, has_end: bool, has_logprobs: bool) -> Rule:
        """The rule that a draft is verified by; it must not hang on what the draft says. STORED needs the promise that
        the alternatives are all of the support, for what it misses shows only at the stop; without it, BLOCK."""
        if policy.temperature == 0:
            return Rule.ARGMAX
        if not has_old or not has_end or self._rule in (Rule.POINT, Rule.ARGMAX):
            return Rule.POINT
        is_storable = has_logprobs and self._caps.processed_scores and _is_covered(self._caps, policy)
        return Rule.BLOCK if self._rule is Rule.STORED and not is_storable else self._rule

    def quote(self, asked: VerificationContext, drafts: Sequence[StoredDraft], price: TeacherPrice) -> Quote:
        """The expected input of each draft's own requests, not the output that comes in place of a fresh candidate's
        (see the module). One score is asked for twice."""
        prompt = likely_input_tokens(asked.request)
        n_first = min(self._chunk_tokens, max((draft.n_tokens for draft in drafts), default=0))
        again = score_quote(prompt_tokens=prompt, draft_tokens=[n_first], price=price)
        return Quote(
            overhead_microusd=again.whole_microusd,
            per_draft_microusd=tuple(self._quote(asked, draft, prompt, price) for draft in drafts),
        )

    def _quote(self, asked: VerificationContext, draft: StoredDraft, prompt_tokens: int, price: TeacherPrice) -> float:
        old = asked.old_messages.get(draft.source_id, ())
        old_tokens = sum(estimate_tokens(m.content) for m in old)
        has_logprobs = draft.token_logprobs is not None
        rule = self.rule_for(asked.policy, has_old=bool(old), has_end=True, has_logprobs=has_logprobs)
        kept_whole = KEPT_WHOLE[rule]

        def score_cost(prompt: int) -> float:
            return score_quote(
                prompt_tokens=prompt,
                draft_tokens=[draft.n_tokens],
                price=price,
                tv_per_token=1 - kept_whole ** (1 / max(1, draft.n_tokens)),
                chunk_tokens=self._chunk_tokens,
            ).whole_microusd

        def stop_cost(prompt: int) -> float:
            n_kept = draft.n_tokens // 2 if kept_whole else 0
            return score_quote(prompt_tokens=prompt + n_kept, draft_tokens=[1], price=price).whole_microusd

        walk = score_cost(prompt_tokens) + (score_cost(old_tokens) if rule in (Rule.TOKEN, Rule.BLOCK) else 0.0)
        mend = stop_cost(prompt_tokens) + (stop_cost(old_tokens) if rule is Rule.STORED else 0.0)
        return walk + (1 - kept_whole) * mend

    def verify(self, asked: VerificationContext, drafts: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        seeds = [rng.getrandbits(64) for _ in drafts]
        repeats: list[Repeatability] = []
        parts = [
            with_cost(draft, self._part(asked, draft, random.Random(seed), repeats if nth == 0 else None))
            for nth, (draft, seed) in enumerate(zip(drafts, seeds, strict=True))
        ]
        results: list[Billed] = yield from together(parts)
        kept: dict[Certificate, int] = {}
        for one in results:
            if one.verdict.certificate is not None:
                kept[one.verdict.certificate] = kept.get(one.verdict.certificate, 0) + one.verdict.kept_tokens
        return Verification(
            verdicts=tuple(one.verdict for one in results),
            cost=sum((one.cost for one in results), start=Cost()),
            kept_tokens=kept,
            repeatability=sum(repeats, Repeatability()),
        )

    def _part(
        self, asked: VerificationContext, draft: StoredDraft, rng: random.Random, repeats: list[Repeatability] | None
    ) -> Part[DraftVerdict]:
        tokens = stored_tokens(draft, max_tokens=asked.request.max_tokens)
        old: tuple[Message, ...] | None = asked.old_messages.get(draft.source_id)
        rule = self.rule_for(
            asked.policy,
            has_old=old is not None,
            has_end=tokens.has_end,
            has_logprobs=tokens.logprobs is not None,
        )
        case = DraftCase(
            draft=draft,
            asked=asked,
            old=old,
            rule=rule,
            n_top=self._caps.max_top_logprobs,
            chunk_tokens=self._chunk_tokens,
            selection_tv=self._selection_tv,
            is_reproducible=self._caps.processed_scores,
            rng=rng,
            repeats=repeats,
        )
        return (yield from verify_one(case, tokens))


def _is_covered(caps: TeacherCaps, policy: SamplingPolicy) -> bool:
    return policy.top_k is not None and policy.top_k <= caps.max_top_logprobs
