"""The cost of a fresh candidate, and of verifying a draft of it. Floats of micro-USD: these are expectations,
used to decide; what is booked comes from billed usage.

Reusing a draft saves one fresh candidate's cost F and costs its verification V, so that a draft which is accepted with
probability a nets a * F - V: it pays above the break-even a = V / F. Verification is never free where the teacher is
an API: its input holds the whole draft.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.money.pricing import Price, TeacherPrice

VERDICT_TOKENS = 2  # what a judge writes for one draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Expected cost of showing some drafts: once for the request, and for each draft in their order."""

    overhead_microusd: float
    per_draft_microusd: tuple[float, ...]

    @property
    def whole_microusd(self) -> float:
        return self.overhead_microusd + math.fsum(self.per_draft_microusd)


def fresh_microusd(
    *, prompt_tokens: int, n_per_call: int, output_tokens: float, price: TeacherPrice, cached_tokens: int = 0
) -> float:
    """F, of one candidate out of a call for `n_per_call`: its own output and its share of the prompt, of which
    `cached_tokens` are expected to come from the vendor's prompt cache.

    With prices 1 in and 5 out: 500 tokens of output and a twelfth of a prompt of 800 are 2500 + 66.7.
    """
    return output_tokens * _microusd(price.output) + _prompt_microusd(prompt_tokens, cached_tokens, price) / n_per_call


def judge_quote(
    *,
    prompt_tokens: int,
    draft_tokens: Sequence[int],
    price: TeacherPrice,
    cached_tokens: int = 0,
    verdict_tokens: float = VERDICT_TOKENS,
) -> Quote:
    """One request that shows all drafts: the prompt (instructions and controls included) once; for each draft its
    tokens as input and its verdict as output."""
    verdict = verdict_tokens * _microusd(price.output)
    return Quote(
        overhead_microusd=_prompt_microusd(prompt_tokens, cached_tokens, price),
        per_draft_microusd=tuple(n * _microusd(price.input) + verdict for n in draft_tokens),
    )


def score_quote(
    *,
    prompt_tokens: int,
    draft_tokens: Sequence[int],
    price: TeacherPrice,
    cached_tokens: int = 0,
    tv_per_token: float = 0.0,
    chunk_tokens: int | None = None,
) -> Quote:
    """Requests of its own for each draft, that score it under the prompt a chunk at a time and stop at the first token
    that is not kept (None: the whole draft at once). Every request sends the prompt and what was kept before again."""
    return Quote(
        overhead_microusd=0.0,
        per_draft_microusd=tuple(
            _scoring_microusd(n, prompt_tokens, cached_tokens, tv_per_token, chunk_tokens or max(n, 1), price)
            for n in draft_tokens
        ),
    )


def break_even(quote: Quote, fresh: float) -> float:
    """The acceptance rate at which showing all the quoted drafts nets nothing, where one that is accepted saves `fresh`
    micro-USD; infinite where nothing is quoted or there is nothing to save."""
    n = len(quote.per_draft_microusd)
    return quote.whole_microusd / (n * fresh) if n and fresh > 0 else math.inf


def _scoring_microusd(
    n_tokens: int, prompt_tokens: int, cached_tokens: int, tv_per_token: float, chunk_tokens: int, price: TeacherPrice
) -> float:
    """Summed over the chunks: the chance that it is reached, times its request."""
    request = _prompt_microusd(prompt_tokens, cached_tokens, price)
    kept = 1 - min(1.0, max(0.0, tv_per_token))
    starts = range(0, n_tokens, chunk_tokens)
    return math.fsum(
        kept**start * (request + min(start + chunk_tokens, n_tokens) * _microusd(price.input)) for start in starts
    )


def _prompt_microusd(prompt_tokens: int, cached_tokens: int, price: TeacherPrice) -> float:
    cached = min(cached_tokens, prompt_tokens)
    return (prompt_tokens - cached) * _microusd(price.input) + cached * _microusd(price.cached_input)


def _microusd(price: Price) -> float:
    """The price of one token."""
    return float(price.usd_per_unit) * 1e6
