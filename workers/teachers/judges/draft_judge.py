"""Drafts verified by asking the teacher: would you have written these for this slice?

For teachers that tell no log-probs. What is accepted is JUDGED: the teacher's own word, whose error rates are estimated
from planted controls (`backend.domain.drafts.judge_controls`), not a statement about its distribution.

Every batch holds a draft that cannot belong (a negative control). If that one is accepted, the judge is confused, or a
draft has talked it into something: the whole batch counts for nothing. So does an answer that is not exactly what was
asked for. Such drafts are asked about once more, in parts with other controls, so that one bad draft takes few down
with it; what is void then stays out. The waste is bounded: each draft is shown at most twice.
"""

import math
import random
from collections.abc import Sequence
from types import MappingProxyType

from backend.domain.drafts.costs import Quote, judge_quote
from backend.domain.drafts.judge_controls import audits_of
from backend.domain.drafts.vocabulary import (
    Certificate,
    Cost,
    DraftVerdict,
    StoredDraft,
    Strategy,
    VerdictKind,
    Verification,
)
from backend.domain.money.pricing import TeacherPrice
from workers.teachers.judges.batches import Batch, Item, Plants, Tally, batch_of, groups_of
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.prompts.judge import judge_messages
from workers.teachers.protocol import TeacherCaps
from workers.teachers.token_estimates import estimate_tokens
from workers.teachers.verifiers.protocol import Conversation, SamplingPolicy, VerificationContext

BATCH = 24  # drafts in one request, controls apart
RETRY_PARTS = 4  # a void batch is asked again in as many parts, of two drafts at least
POSITIVE_SHARE = 0.25  # of batches that carry a fresh candidate, where there is one
AUDIT_SHARE = 0.1  # of accepted drafts
MAX_AUDIT_ASKS = 4
VERDICT_TOKENS = 3  # `"kx",`
ITEM_TOKENS = 5  # `["kx",""],`
MIN_CACHED_TOKENS = 1024  # vendors cache no shorter prefix


class JudgeVerifier:
    """Needs no more of a teacher than that it chats."""

    strategy = Strategy.JUDGE

    def __init__(self, *, positive_share: float = POSITIVE_SHARE, audit_share: float = AUDIT_SHARE) -> None:
        self._positive_share = positive_share
        self._audit_share = audit_share

    def capable(self, caps: TeacherCaps, policy: SamplingPolicy) -> bool:
        return True

    def quote(self, asked: VerificationContext, drafts: Sequence[StoredDraft], price: TeacherPrice) -> Quote:
        """The prompt and its controls once a batch, each draft's tokens and its id in the answer, as if all were
        accepted: what is refused is not written. Audits, and what is asked a second time, are not in it."""
        system, user = judge_messages(asked.head, asked.slice_lines, {})
        prefix_tokens = estimate_tokens(system.content) + estimate_tokens("\n".join(asked.head))
        n_batches = math.ceil(len(drafts) / BATCH)
        prompt_tokens = estimate_tokens(system.content) + estimate_tokens(user.content) + self._control_tokens(asked)
        return judge_quote(
            prompt_tokens=round(n_batches * prompt_tokens),
            draft_tokens=[draft.n_tokens + ITEM_TOKENS for draft in drafts],
            price=price,
            cached_tokens=n_batches * prefix_tokens if prefix_tokens >= MIN_CACHED_TOKENS else 0,
            verdict_tokens=VERDICT_TOKENS,
        )

    def verify(self, asked: VerificationContext, drafts: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        """One verdict a draft, in order; VOID for what no sound batch answered, and for a draft too long to show."""
        tally = Tally(drafts)
        plants = Plants(asked, drafts, rng)
        groups = groups_of(drafts, range(len(drafts)), BATCH)
        for _ in range(2):
            batches = [
                _batch(drafts, group, VerdictKind.VERDICT, [*plants.some(1, self._positive_share)], rng)
                for group in groups
            ]
            if not batches:
                break
            for batch, answer in zip(batches, (yield [b.request(asked) for b in batches]), strict=True):
                tally.accepted |= tally.book(batch, answer)
            void = [group for group in groups if group[0] not in tally.accepted]
            groups = [part for group in void for part in groups_of(drafts, group, _part_size(group))]
        verdicts = tuple(tally.verdict(place, VerdictKind.VERDICT) for place in range(len(drafts)))
        kept = sum(verdict.kept_tokens for verdict in verdicts)
        return Verification(
            verdicts=verdicts,
            controls=tuple(tally.controls),
            cost=tally.cost,
            is_void=_is_void(verdicts),
            kept_tokens=MappingProxyType({Certificate.JUDGED: kept} if kept else {}),
        )

    def audit(self, asked: VerificationContext, accepted: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        """Asks about one accepted draft or none, so that `audit_share` of them are audited on the average: one a slice,
        because bad drafts may come together, and a bound on their rate counts independent looks. It stands among
        controls, under a new id each time, until one request accepts it or two refuse it; a verdict for each request,
        VOID for one that no sound answer came to (see `judge_controls.audits_of`)."""
        if not accepted or rng.random() >= self._audit_share * len(accepted):
            return Verification(verdicts=())
        audited = [rng.choice(accepted)]
        plants = Plants(asked, accepted, rng)
        verdicts: list[DraftVerdict] = []
        controls: list[DraftVerdict] = []
        cost = Cost()
        while not audits_of(verdicts).n and len(verdicts) < MAX_AUDIT_ASKS:
            tally = Tally(audited)
            batch = _batch(audited, [0], VerdictKind.AUDIT, [*plants.some(1, 1.0)], rng)
            (answer,) = yield [batch.request(asked)]
            tally.accepted = tally.book(batch, answer)
            verdicts.append(tally.verdict(0, VerdictKind.AUDIT))
            controls += tally.controls
            cost += tally.cost
        return Verification(
            verdicts=tuple(verdicts),
            controls=tuple(controls),
            cost=cost,
            audit_cost=cost,
            is_void=_is_void(verdicts),
        )

    def _control_tokens(self, asked: VerificationContext) -> float:
        """Expected tokens of one batch's controls."""
        negative = [draft.n_tokens for draft in asked.far] or [estimate_tokens(text) for text in OFF_TOPIC]
        expected = sum(negative) / len(negative) + ITEM_TOKENS
        if asked.fresh:
            positive = sum(estimate_tokens(text) for text in asked.fresh) / len(asked.fresh) + ITEM_TOKENS
            expected += self._positive_share * positive
        return expected


def _batch(
    drafts: Sequence[StoredDraft], places: Sequence[int], kind: VerdictKind, controls: list[Item], rng: random.Random
) -> Batch:
    shown = [Item(text=drafts[i].text, draft_id=drafts[i].draft_id, kind=kind, place=i) for i in places]
    return batch_of([*shown, *controls], rng)


def _part_size(group: Sequence[int]) -> int:
    return max(2, math.ceil(len(group) / RETRY_PARTS))


def _is_void(verdicts: Sequence[DraftVerdict]) -> bool:
    return bool(verdicts) and all(verdict.kind is VerdictKind.VOID for verdict in verdicts)
