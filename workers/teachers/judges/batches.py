"""The batches that a judge is shown: drafts under random ids among planted controls, and what an answer says of them.

An answer counts only if it is exactly what was asked for and refuses every negative control; else the batch is void.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from backend.domain.drafts.vocabulary import Certificate, Cost, DraftVerdict, StoredDraft, VerdictKind
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.prompts.judge import judge_messages, read_verdicts
from workers.teachers.protocol import CompletionRequest
from workers.teachers.verifiers.protocol import Answer, VerificationContext

MAX_BATCH_CHARS = 32_000  # of drafts, some 8,000 tokens beside the prompt
ID_ROOM = 8  # tokens of `"kx",` with line breaks and indentation
NO_DRAFT = UUID(int=0)  # of a control that is no stored draft
_CONSONANTS = "bcdfghjklmnpqrstvwxz"  # no vowels: an id spells no word
IDS = tuple(one + other for one in _CONSONANTS for other in _CONSONANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a batch: a draft asked about (`place` in the list of them), or a planted control."""

    text: str
    draft_id: UUID
    kind: VerdictKind
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`accepted` is {place: whether}, empty for a void batch; controls are reported whenever they were answered."""

    accepted: dict[int, bool] = field(default_factory=dict)
    controls: tuple[DraftVerdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The entries of one request by the ids they are shown under, in their order."""

    items: dict[str, Item]

    @property
    def places(self) -> list[int]:
        return sorted(item.place for item in self.items.values() if item.place is not None)

    def request(self, asked: VerificationContext) -> CompletionRequest:
        shown = {id_: item.text for id_, item in self.items.items()}
        return CompletionRequest(
            messages=judge_messages(asked.head, asked.slice_lines, shown),
            n=1,
            temperature=0.0,
            max_tokens=ID_ROOM * (len(shown) + 1),
            seed=asked.request.seed,
            cache_salt=asked.request.cache_salt,
        )

    def read(self, answer: Answer) -> Reading:
        verdicts = read_verdicts(answer.choices[0].text, list(self.items)) if answer.choices else None
        if verdicts is None:
            return Reading()
        rows = [(item, verdicts[id_]) for id_, item in self.items.items()]
        controls = tuple(
            DraftVerdict(draft_id=item.draft_id, is_accepted=is_accepted, kind=item.kind)
            for item, is_accepted in rows
            if item.place is None
        )
        if any(c.is_accepted for c in controls if c.kind is VerdictKind.NEGATIVE):
            return Reading(controls=controls)
        accepted = {item.place: is_accepted for item, is_accepted in rows if item.place is not None}
        return Reading(accepted=accepted, controls=controls)


class Plants:
    """Controls for the batches of one conversation. Every far draft is used before one is used again, so that a batch
    that is asked again meets another one."""

    def __init__(self, asked: VerificationContext, drafts: Sequence[StoredDraft], rng: random.Random) -> None:
        own = {draft.text for draft in drafts} | set(asked.fresh)
        far = {d.text: d.draft_id for d in asked.far if d.text not in own and len(d.text) <= MAX_BATCH_CHARS}
        generic = {text: NO_DRAFT for text in OFF_TOPIC if text not in own}
        negatives = list((far or generic).items())
        self._negatives = itertools.cycle(rng.sample(negatives, len(negatives)))
        self._fresh = [text for text in asked.fresh if len(text) <= MAX_BATCH_CHARS]
        self._rng = rng

    def some(self, n_negative: int, positive_share: float) -> Iterator[Item]:
        for text, draft_id in itertools.islice(self._negatives, n_negative):
            yield Item(text=text, draft_id=draft_id, kind=VerdictKind.NEGATIVE)
        if self._fresh and self._rng.random() < positive_share:
            yield Item(text=self._rng.choice(self._fresh), draft_id=NO_DRAFT, kind=VerdictKind.POSITIVE)


class Tally:
    """The verdict on each draft, and the cost of asking."""

    def __init__(self, drafts: Sequence[StoredDraft]) -> None:
        self._drafts = drafts
        self._microusd = [0] * len(drafts)
        self.accepted: dict[int, bool] = {}
        self.controls: list[DraftVerdict] = []
        self.cost = Cost()

    def book(self, batch: Batch, answer: Answer) -> dict[int, bool]:
        """Count the controls and the cost, in equal parts of whole micro-USD that sum to the amount; returns the
        verdicts on the drafts."""
        reading = batch.read(answer)
        self.controls += reading.controls
        self.cost += answer.cost
        places, amount = batch.places, answer.cost.amount_microusd
        for i, place in enumerate(places):
            self._microusd[place] += amount * (i + 1) // len(places) - amount * i // len(places)
        return reading.accepted

    def verdict(self, place: int, kind: VerdictKind) -> DraftVerdict:
        """VOID where the judge gave no verdict. Only an accepted draft that was offered has a text and certificate."""
        draft, cost = self._drafts[place], self._microusd[place]
        is_accepted = self.accepted.get(place, False)
        if place not in self.accepted:
            kind = VerdictKind.VOID
        if not is_accepted or kind is VerdictKind.AUDIT:
            return DraftVerdict(draft_id=draft.draft_id, is_accepted=is_accepted, kind=kind, cost_microusd=cost)
        return DraftVerdict(
            draft_id=draft.draft_id,
            is_accepted=True,
            text=draft.text,
            n_tokens=draft.n_tokens,
            kept_tokens=draft.n_tokens,
            certificate=Certificate.JUDGED,
            kind=kind,
            cost_microusd=cost,
        )


def batch_of(items: Sequence[Item], rng: random.Random) -> Batch:
    """The items in random order under random ids: a draft's author could know neither."""
    shuffled = rng.sample(items, len(items))
    return Batch(items=dict(zip(rng.sample(IDS, len(items)), shuffled, strict=True)))


def groups_of(drafts: Sequence[StoredDraft], places: Sequence[int], size: int) -> list[list[int]]:
    """Consecutive places, at most `size` of them and MAX_BATCH_CHARS in each group; a draft longer than that is in
    none."""
    groups: list[list[int]] = []
    room = 0
    for place in places:
        n_chars = len(drafts[place].text)
        if n_chars > MAX_BATCH_CHARS:
            continue
        if not groups or n_chars > room or len(groups[-1]) == size:
            groups.append([])
            room = MAX_BATCH_CHARS
        groups[-1].append(place)
        room -= n_chars
    return groups
