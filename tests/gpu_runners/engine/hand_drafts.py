"""Drafts by hand for the engine: those that are always right, and every kind of wrong one."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.domain.recipes.feedback import PackFeedback
from gpu_runners.engine.sequences import TokenSequence, n_agreed
from gpu_runners.models.protocol import (
    Delta,
    Drafting,
    DraftKind,
    Engine,
    FinishReason,
    GenerationRequest,
    SourceCount,
    TokenLogprob,
)

Making = Callable[[TokenSequence], Sequence[int]]


@dataclass(slots=True)
class HandDrafter:
    drafted: int = 0
    accepted: int = 0

    @property
    def counts(self) -> tuple[SourceCount, ...]:
        return (SourceCount(kind=DraftKind.PACK, drafted=self.drafted, accepted=self.accepted),)


@dataclass(slots=True)
class HandDrafts:
    """`make` gives a row's draft. What the engine said is kept: `settled` by request, `n_open` rows."""

    make: Making
    settled: dict[str, list[list[int]]] = field(default_factory=dict)
    steps: list[tuple[int, int, float]] = field(default_factory=list)
    n_open: int = 0

    def opens_at_once(self, request: GenerationRequest) -> bool:
        return False

    def open(self, sequence: TokenSequence) -> None:
        sequence.drafter = HandDrafter()
        self.n_open += 1

    def propose(self, sequences: Sequence[TokenSequence]) -> list[list[int]]:
        return [list(self.make(sequence)) for sequence in sequences]

    def observe_accepted(self, sequence: TokenSequence, kept: Sequence[int]) -> None:
        assert sequence.drafter is not None
        sequence.drafter.drafted += len(sequence.draft)
        sequence.drafter.accepted += n_agreed(kept, sequence.draft)
        self.settled.setdefault(sequence.request.id, []).append(list(kept))

    def note_step(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        self.steps.append((n_rows, n_drafted, seconds))

    def close(self, sequence: TokenSequence) -> None:
        self.n_open -= 1

    def feedback(self) -> list[tuple[str, PackFeedback]]:
        return []


def nothing(sequence: TokenSequence) -> Sequence[int]:
    return []


def right(answers: Mapping[str, Sequence[int]], n: int = 16) -> Making:
    """The next `n` tokens of the answer that is known for a request's id."""

    def make(sequence: TokenSequence) -> Sequence[int]:
        return answers[sequence.request.id][sequence.n_new : sequence.n_new + n]

    return make


def wrong(answers: Mapping[str, Sequence[int]], n: int = 16, *, after: int = 0, vocab_size: int = 256) -> Making:
    """`after` right tokens, then none that is right."""

    def make(sequence: TokenSequence) -> Sequence[int]:
        known = list(answers[sequence.request.id][sequence.n_new :])
        known += [0] * (n - len(known))
        return [*known[:after], *[(token + 1) % vocab_size for token in known[after:n]]]

    return make


def ragged(answers: Mapping[str, Sequence[int]], *, seed: int = 0, vocab_size: int = 256) -> Making:
    """All there is: nothing, right, too long, wrong after some, random, past the end, ids that no base has."""
    rng = random.Random(seed)

    def make(sequence: TokenSequence) -> Sequence[int]:
        known = answers[sequence.request.id][sequence.n_new :]
        noise = [rng.randrange(vocab_size) for _ in range(rng.randrange(12))]
        kind = rng.randrange(7)
        if kind == 0:
            return []
        if kind == 1:
            return known[: rng.randrange(1, 20)]
        if kind == 2:
            return [*known, *noise]
        if kind == 3:
            return [*known[: rng.randrange(8)], *noise]
        if kind == 4:
            return noise
        if kind == 5:
            return [*known[: rng.randrange(3)], 10**9, *known]
        return [*known[: rng.randrange(3)], -1, *known]

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    text: str
    ids: list[int]
    finish: FinishReason | None
    logprobs: list[TokenLogprob]
    last: Delta


def drafting(request: GenerationRequest, *, is_gated: bool = False) -> GenerationRequest:
    return replace(request, drafting=Drafting(kinds=(DraftKind.PACK,), is_gated=is_gated))


def answers_of(engine: Engine, requests: Sequence[GenerationRequest]) -> list[Answer]:
    """All at once, whole, with their tokens."""

    async def one(request: GenerationRequest) -> Answer:
        deltas = [delta async for delta in engine.generate(request)]
        return Answer(
            text="".join(delta.text for delta in deltas),
            ids=[token for delta in deltas for token in delta.token_ids],
            finish=deltas[-1].finish_reason,
            logprobs=[one for delta in deltas for one in delta.logprobs],
            last=deltas[-1],
        )

    async def every() -> list[Answer]:
        return list(await asyncio.gather(*[one(request) for request in requests]))

    return asyncio.run(every())
