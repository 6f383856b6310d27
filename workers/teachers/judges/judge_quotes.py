"""The expected cost of a judge's question about the drafts of a compile: once a request, and for each draft.

A draft costs its tokens and four more as input, and what the ranges cost that name it. Where a share a of the drafts is
accepted, a (1 - a) runs a draft are expected; a run of one is a number, a longer one two. Audits, and what is void and
asked about again, are not in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backend.domain.drafts.costs import Quote, judge_quote
from backend.domain.money.pricing import TeacherPrice
from workers.teachers.judges.compile_requests import BATCH, describe_slices
from workers.teachers.judges.judged_slices import JudgeQuestion
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.prompts.judge import slices_judge_messages
from workers.teachers.token_estimates import estimate_tokens

ITEM_TOKENS = 4  # `17 "` and `"` with a line's end; 4.2 by a tokenizer of single digits
SECTION_TOKENS = 12  # of a slice's heading and fence
ANSWER_TOKENS = 8  # of an answer, whatever it names: an object around the ranges
NUMBER_TOKENS = 1.5  # between tokenizers of whole numbers and of single digits
COMMA_TOKENS = 2  # `, `
DASH_TOKENS = 1
CONTROL_EVERY = 16  # drafts: between a chunk of few and one of 24
SLICES_A_REQUEST = 8  # whose drafts share one, where there are too many slices to describe all
MOST_OFF = 2.0  # times that a token every four bytes may be off; a count beyond that holds what no text shows
MIN_CACHED_TOKENS = 1024  # vendors cache no shorter prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTokens:
    """Expected tokens of a request besides its drafts, `cached` those of them that come from a vendor's cache, and of
    one negative control with its number."""

    prompt: int
    cached: int
    control: float

    def as_counted(self, texts: Sequence[str], n_tokens: Sequence[int]) -> "RequestTokens":
        """The same by the teacher's own count: it has said how many tokens it wrote these texts in."""
        estimated = sum(map(estimate_tokens, texts))
        ratio = min(MOST_OFF, max(1 / MOST_OFF, sum(n_tokens) / estimated)) if estimated else 1.0
        return RequestTokens(
            prompt=round(self.prompt * ratio), cached=round(self.cached * ratio), control=self.control * ratio
        )


def request_tokens(question: JudgeQuestion) -> RequestTokens:
    """The tokens of the beginning that all requests of the question share, of one negative and one positive control."""
    lines = describe_slices(question, range(SLICES_A_REQUEST))
    is_shared = len(lines) == len(question.slices)
    system, user = slices_judge_messages(question.head, lines, (), as_json=question.has_schema)
    shared = estimate_tokens(system.content) + estimate_tokens(user.content[: user.n_shared])
    rest = estimate_tokens(user.content[user.n_shared :])
    control = _mean([c.text for one in question.slices for c in one.negatives] or OFF_TOPIC)
    positive = _mean([text for one in question.slices for text in one.positives] or ())
    return RequestTokens(
        prompt=round(shared + rest + control + positive),
        cached=shared if is_shared and shared >= MIN_CACHED_TOKENS else 0,
        control=control,
    )


def _mean(texts: Sequence[str]) -> float:
    """Mean tokens of these texts as numbered items, 0 where there are none."""
    return sum(estimate_tokens(text) for text in texts) / len(texts) + ITEM_TOKENS if texts else 0.0


def verdict_tokens(acceptance: float) -> float:
    """Expected tokens of the answer a draft, where each is accepted with this probability.

    >>> [round(verdict_tokens(share), 2) for share in (0.1, 0.5, 0.9, 1.0)]
    [0.34, 1.19, 0.52, 0.0]
    """
    single = NUMBER_TOKENS + COMMA_TOKENS
    run = 2 * NUMBER_TOKENS + DASH_TOKENS + COMMA_TOKENS
    return acceptance * (1 - acceptance) * ((1 - acceptance) * single + acceptance * run)


def quote_pool(
    tokens: RequestTokens, draft_tokens: Sequence[int], price: TeacherPrice, *, n_slices: int, acceptance: float
) -> Quote:
    """The expected cost of asking about these drafts of one slice, of which a share `acceptance` is accepted, where
    `n_slices` slices of the compile are asked about together. The overhead is the slice's share of one request: a part
    of `n_slices`, or of BATCH drafts where its own are more; a control in CONTROL_EVERY drafts counts as theirs."""
    request = judge_quote(
        prompt_tokens=tokens.prompt,
        draft_tokens=[0],
        price=price,
        cached_tokens=tokens.cached,
        verdict_tokens=ANSWER_TOKENS,
    )
    quote = judge_quote(
        prompt_tokens=SECTION_TOKENS,
        draft_tokens=[n + ITEM_TOKENS + round(tokens.control / CONTROL_EVERY) for n in draft_tokens],
        price=price,
        verdict_tokens=verdict_tokens(acceptance),
    )
    share = max(1 / n_slices, len(draft_tokens) / BATCH)
    return replace(quote, overhead_microusd=quote.overhead_microusd + share * request.whole_microusd)
