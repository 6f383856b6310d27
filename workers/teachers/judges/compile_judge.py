"""The drafts of a whole compile verified by one question: which of these would you have written for their slices?

About a hundred drafts share a request, so that what the question costs besides them falls on many, and the answer is
ranges of numbers, so that a verdict costs less than a token. What is accepted is JUDGED: the teacher's own word, whose
error rates are estimated from planted controls (`backend.domain.drafts.judge_controls`); or DELEGATED, where another
model is asked about the teacher.

A draft can claim to answer for its neighbours, or for all. So every chunk of at most 24 drafts has a text of another
label among them that the judge must refuse. Where it does not, the chunk counts for nothing; where that happens to half
of a request, or the answer is not exactly ranges, all of it does. What is void is asked about once more, in smaller
parts with other controls; what is void then stays out. The waste is bounded: each draft is shown at most twice.
"""

import random
from collections.abc import Generator, Sequence
from types import MappingProxyType

from backend.domain.drafts.vocabulary import Certificate, Cost, DraftVerdict, StoredDraft, VerdictKind, Verification
from workers.teachers.judges.compile_requests import (
    RETRY_CHUNK,
    Place,
    Plants,
    Reading,
    SlicesRequest,
    first_requests,
    plant_controls,
)
from workers.teachers.judges.judged_slices import JudgedSlice, JudgeQuestion
from workers.teachers.verifiers.protocol import Answer, TeacherRequest

CompileConversation = Generator[list[TeacherRequest], list[Answer], dict[int, Verification]]


def judge_compile(
    question: JudgeQuestion, rng: random.Random, certificate: Certificate = Certificate.JUDGED
) -> CompileConversation:
    """The verification of each slice that has drafts, by its key: one verdict a draft, in the slice's order, VOID for
    what no sound answer came to and for a draft too long to show. What a request cost is shared among its drafts in
    whole micro-USD (tokens and requests likewise), so that the sums are what was billed."""
    tallies = {at: _Tally(one, certificate) for at, one in enumerate(question.slices) if one.drafts}
    plants = Plants(question.slices, rng)
    requests = first_requests(question, plants, rng)
    for is_last in (False, True):
        if not requests:
            break
        void: list[tuple[Place, ...]] = []
        answers = yield [request.as_asked(question) for request in requests]
        for request, answer in zip(requests, answers, strict=True):
            reading = request.read(answer)
            _book(tallies, request, answer, reading)
            void += reading.void
        again = [] if is_last else [_reshuffle(places, rng) for places in void]
        requests = [plant_controls(question, places, RETRY_CHUNK, plants, rng) for places in again]
    return {question.slices[at].key: tally.verification() for at, tally in tallies.items()}


def _reshuffle(places: Sequence[Place], rng: random.Random) -> list[Place]:
    """Put the drafts in another order within each slice."""
    return sorted(rng.sample(places, len(places)), key=lambda place: place[0])


def _book(tallies: dict[int, "_Tally"], request: SlicesRequest, answer: Answer, reading: Reading) -> None:
    for (at, place), is_accepted in reading.accepted.items():
        tallies[at].accepted[place] = is_accepted
    for at, control in reading.controls:
        tallies[at].controls.append(control)
    for (at, place), share in zip(request.places, shares_of(answer.cost, len(request.places)), strict=True):
        tallies[at].book(place, share)


def shares_of(cost: Cost, n: int) -> list[Cost]:
    """A cost in `n` equal parts of whole numbers, which sum to it."""

    def part(amount: int, i: int) -> int:
        return amount * (i + 1) // n - amount * i // n

    return [
        Cost(
            input_tokens=part(cost.input_tokens, i),
            cached_tokens=part(cost.cached_tokens, i),
            cache_write_tokens=part(cost.cache_write_tokens, i),
            output_tokens=part(cost.output_tokens, i),
            n_requests=part(cost.n_requests, i),
            amount_microusd=part(cost.amount_microusd, i),
            price_version=cost.price_version,
        )
        for i in range(n)
    ]


class _Tally:
    """The verdict on each draft of one slice, and its cost."""

    def __init__(self, one: JudgedSlice, certificate: Certificate) -> None:
        self._drafts = one.drafts
        self._certificate = certificate
        self._microusd = [0] * len(one.drafts)
        self._cost = Cost()
        self.accepted: dict[int, bool] = {}
        self.controls: list[DraftVerdict] = []

    def book(self, place: int, cost: Cost) -> None:
        self._microusd[place] += cost.amount_microusd
        self._cost += cost

    def verification(self) -> Verification:
        verdicts = tuple(
            _verdict(draft, self.accepted.get(place), self._microusd[place], self._certificate)
            for place, draft in enumerate(self._drafts)
        )
        kept = sum(verdict.kept_tokens for verdict in verdicts)
        return Verification(
            verdicts=verdicts,
            controls=tuple(self.controls),
            cost=self._cost,
            is_void=all(verdict.kind is VerdictKind.VOID for verdict in verdicts),
            kept_tokens=MappingProxyType({self._certificate: kept} if kept else {}),
        )


def _verdict(
    draft: StoredDraft, is_accepted: bool | None, cost_microusd: int, certificate: Certificate
) -> DraftVerdict:
    if not is_accepted:
        kind = VerdictKind.VOID if is_accepted is None else VerdictKind.VERDICT
        return DraftVerdict(draft_id=draft.draft_id, is_accepted=False, kind=kind, cost_microusd=cost_microusd)
    return DraftVerdict(
        draft_id=draft.draft_id,
        is_accepted=True,
        text=draft.text,
        n_tokens=draft.n_tokens,
        kept_tokens=draft.n_tokens,
        certificate=certificate,
        cost_microusd=cost_microusd,
    )
