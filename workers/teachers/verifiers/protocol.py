"""The verification of a draft: a conversation with the teacher, written down as requests and answers.

A verifier asks nothing itself. `verify` yields batches of requests and is sent their answers, in order; what it returns
at the end is all it has to say. So the pipeline journals every call, a crash replays the conversation from the journal,
and a test runs the same code straight against a teacher (`run_dialogue`).
"""

import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar
from uuid import UUID

from backend.domain.drafts.costs import Quote
from backend.domain.drafts.vocabulary import Cost, StoredDraft, Strategy, Verification
from backend.domain.money.pricing import TeacherPrice
from workers.teachers.protocol import (
    Choice,
    Completion,
    CompletionRequest,
    Message,
    ScoreRequest,
    Teacher,
    TeacherCaps,
    Usage,
)

TeacherRequest = CompletionRequest | ScoreRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one request; `revision` is what the teacher says it is, "" where it says nothing."""

    choices: tuple[Choice, ...]
    cost: Cost
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPolicy:
    """The sampling of the teacher's answers: part of what a draft's distribution is."""

    temperature: float
    top_p: float = 1.0
    top_k: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationContext:
    """The slice at hand. `request` is what a fresh candidate is asked with, `old_messages` what the teacher was sent
    when a source's drafts were written."""

    request: CompletionRequest
    policy: SamplingPolicy
    old_messages: Mapping[UUID, tuple[Message, ...]] = field(default_factory=lambda: MappingProxyType({}))


Outcome = TypeVar("Outcome")
Dialogue = Generator[list[TeacherRequest], list[Answer], Outcome]
Conversation = Dialogue[Verification]


class DraftVerifier(Protocol):
    """One way to verify. Equal arguments (the rng's seed among them) make equal requests."""

    @property
    def strategy(self) -> Strategy: ...

    def capable(self, caps: TeacherCaps, policy: SamplingPolicy) -> bool:
        """Say whether this teacher can be asked in this way, under this policy."""
        ...

    def quote(self, asked: VerificationContext, drafts: Sequence[StoredDraft], price: TeacherPrice) -> Quote:
        """Estimate what showing these drafts would cost, before anything is spent."""
        ...

    def verify(self, asked: VerificationContext, drafts: Sequence[StoredDraft], rng: random.Random) -> Conversation:
        """One verdict a draft, in the drafts' order."""
        ...


def run_dialogue(
    teacher: Teacher, price: TeacherPrice, conversation: Conversation, *, deadline_s: float = 60.0
) -> Verification:
    """Hold the conversation with a teacher at once, without a journal."""
    try:
        requests = next(conversation)
        while True:
            requests = conversation.send([_ask(teacher, price, request, deadline_s) for request in requests])
    except StopIteration as ended:
        verification: Verification = ended.value
        return verification


def cost_of(price: TeacherPrice, usage: Usage) -> Cost:
    """The cost of one answered call."""
    return Cost(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        n_requests=1,
        amount_microusd=price.cost_microusd(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        price_version=price.version,
    )


def _ask(teacher: Teacher, price: TeacherPrice, request: TeacherRequest, deadline_s: float) -> Answer:
    done: Completion
    if isinstance(request, ScoreRequest):
        done = teacher.score(request, deadline_s=deadline_s)
    else:
        done = teacher.complete(request, deadline_s=deadline_s)
    return Answer(choices=done.choices, cost=cost_of(price, done.usage), revision=done.revision)
