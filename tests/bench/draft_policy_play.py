"""Plays a policy on a stream, counts what happened, and prices it.

Each slice needs 12 candidates. A policy may take drafts of up to four nearest sources, unverified or through a judge;
the teacher writes the rest in one call; four of the twelve are kept, and what was written for this slice and not kept
becomes its drafts. A draft that was reused stays where it was written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from backend.domain.drafts.costs import fresh_microusd, judge_quote
from backend.domain.money.pricing import price_book, teacher_price
from backend.domain.spec.parsing import DeclaredPrice
from tests.bench.draft_policy_streams import N_CANDIDATES, N_KEPT, Stream

N_SOURCES = 4
CONTROLS_TOKENS = 200  # the judge's instructions and planted controls


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Micro-USD: one call's prompt, a candidate's own output, what a policy is told that a fresh candidate costs (its
    share of the prompt included), a judge's request without drafts, and one draft in it."""

    name: str
    prompt: float
    output: float
    fresh: float
    overhead: float
    verify: float


def scenario(name: str, *, output_tokens: int, prompt_tokens: int, is_cached: bool) -> Scenario:
    """A teacher at 1 dollar in and 5 out a million tokens, that reads a cached prompt for a tenth."""
    declared = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 5, "cached_input_usd_per_mtok": Decimal("0.1")}
    price = teacher_price(price_book(), "bench", DeclaredPrice.model_validate(declared))
    judged = prompt_tokens + CONTROLS_TOKENS
    quote = judge_quote(
        prompt_tokens=judged, draft_tokens=[output_tokens], price=price, cached_tokens=judged if is_cached else 0
    )
    prompt, output, fresh = (
        fresh_microusd(
            prompt_tokens=n_in,
            n_per_call=n_calls,
            output_tokens=n_out,
            price=price,
            cached_tokens=n_in if is_cached else 0,
        )
        for n_in, n_calls, n_out in (
            (prompt_tokens, 1, 0),
            (0, 1, output_tokens),
            (prompt_tokens, N_CANDIDATES, output_tokens),
        )
    )
    overhead, verify = quote.overhead_microusd, quote.per_draft_microusd[0]
    return Scenario(name=name, prompt=prompt, output=output, fresh=fresh, overhead=overhead, verify=verify)


SCENARIOS = (
    scenario("L=500", output_tokens=500, prompt_tokens=800, is_cached=False),
    scenario("L=500 cached", output_tokens=500, prompt_tokens=2000, is_cached=True),
    scenario("L=60", output_tokens=60, prompt_tokens=800, is_cached=False),
    scenario("L=60 cached", output_tokens=60, prompt_tokens=2000, is_cached=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What a slice finds: its nearest sources, nearest first, and which of their drafts are there."""

    slice: int
    sources: tuple[int, ...]
    drafts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a policy did for a slice: (source, draft) of those that entered the pool, in order, and what it spent."""

    drafts: tuple[tuple[int, int], ...] = ()
    n_shown: int = 0
    n_requests: int = 0


@dataclass(slots=True, kw_only=True)
class Played:
    """Counts by slice of one stream, lists of the same length."""

    n_fresh: list[int] = field(default_factory=list)
    n_taken: list[int] = field(default_factory=list)
    n_bad: list[int] = field(default_factory=list)
    n_wrong_slice: list[int] = field(default_factory=list)
    n_shown: list[int] = field(default_factory=list)
    n_requests: list[int] = field(default_factory=list)

    def saved(self, scenario: Scenario) -> np.ndarray:
        """Micro-USD by slice: what generating all would have cost, less what was spent."""
        n_fresh = np.array(self.n_fresh)
        spent = n_fresh * scenario.output + (n_fresh > 0) * scenario.prompt
        spent = spent + np.array(self.n_requests) * scenario.overhead + np.array(self.n_shown) * scenario.verify
        return whole_cost(scenario) - spent


def whole_cost(scenario: Scenario) -> float:
    """Micro-USD of a slice without drafts."""
    return N_CANDIDATES * scenario.output + scenario.prompt


Policy = Callable[[Stream, Shelf], Taken]


def play(stream: Stream, policy: Policy) -> Played:
    """One policy through the whole stream. The policy learns by keeping what it saw to itself."""
    stock: dict[int, tuple[int, ...]] = {}
    played = Played()
    for now in range(len(stream)):
        taken = policy(stream, _shelf(stream, stock, now))
        used = taken.drafts[:N_CANDIDATES]
        if rejects := rejects_of(stream, now, len(used)):
            stock[now] = rejects
        played.n_fresh.append(N_CANDIDATES - len(used))
        played.n_taken.append(len(used))
        played.n_bad.append(sum(not stream.is_right[now, source, draft] for source, draft in used))
        played.n_wrong_slice.append(sum(not stream.matches[now, source] for source, _ in used))
        played.n_shown.append(taken.n_shown)
        played.n_requests.append(taken.n_requests)
    return played


def rejects_of(stream: Stream, now: int, n_used: int) -> tuple[int, ...]:
    """The drafts that a slice leaves: what was written for it, after `n_used` of others, and is not kept."""
    kept = set(stream.orders[now][:N_KEPT].tolist())
    return tuple(place for place in range(n_used, N_CANDIDATES) if place not in kept)


def _shelf(stream: Stream, stock: dict[int, tuple[int, ...]], now: int) -> Shelf:
    there = np.fromiter(stock, dtype=np.int64, count=len(stock))
    nearest = there[np.argsort(stream.distances[now, there], kind="stable")[:N_SOURCES]]
    sources = tuple(int(source) for source in nearest)
    return Shelf(slice=now, sources=sources, drafts=tuple(stock[source] for source in sources))
