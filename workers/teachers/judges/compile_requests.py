"""The requests of one question about a compile's drafts: which drafts share one, where controls are planted among them,
and what an answer says of them.

Drafts stand under their slices, in random order within each, numbered on from slice to slice. Each chunk of them holds
one negative control, at a random place: what voids a chunk is inside it. A chunk is the drafts of one slice, at most 24
of them, or those of neighbours that have few; a control under each slice would cost such ones more than it protects.
"""

import itertools
import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace

from backend.domain.drafts.vocabulary import DraftVerdict, VerdictKind
from workers.teachers.judges.batches import MAX_BATCH_CHARS, NO_DRAFT, Item
from workers.teachers.judges.judged_slices import Control, JudgedSlice, JudgeQuestion
from workers.teachers.judges.off_topic import OFF_TOPIC
from workers.teachers.prompts.judge import ACCEPTED, ShownSlice, slices_judge_messages
from workers.teachers.prompts.number_ranges import read_choice
from workers.teachers.protocol import CompletionRequest
from workers.teachers.verifiers.protocol import Answer

BATCH = 96  # drafts in one request, controls apart
CHUNK = 24  # drafts beside one negative control, at most
RETRY_CHUNK = 12
FEW_DRAFTS = 8  # of a slice, below which it shares a chunk
RETRY_PARTS = 4  # requests in place of one that is void as a whole
MIN_PART = 6
NEAREST = 12  # negatives of a slice that are drawn from first
FEW_NEGATIVES = 3  # fewer than these are not asked with alone
MAX_SHARED_CHARS = 8_000  # of all slices' lines; a longer list is cut to the slices that a request is about

Place = tuple[int, int]  # which slice of the question, and which of its drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One numbered text under the slice at place `at`; its item's place is in that slice's drafts."""

    at: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`accepted` is {place: whether}, `controls` each verdict on a planted text beside the place of its slice. `void`
    are the drafts without a verdict, in the groups that they are asked about again."""

    accepted: dict[Place, bool] = field(default_factory=dict)
    controls: tuple[tuple[int, DraftVerdict], ...] = ()
    void: tuple[tuple[Place, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesRequest:
    """The entries of one request in their order: entry i has the number i + 1."""

    chunks: tuple[tuple[Entry, ...], ...]

    @property
    def entries(self) -> list[Entry]:
        return list(itertools.chain.from_iterable(self.chunks))

    @property
    def places(self) -> tuple[Place, ...]:
        return _places_of(self.entries)

    def as_asked(self, question: JudgeQuestion) -> CompletionRequest:
        shown: dict[int, dict[int, str]] = {}
        for number, entry in enumerate(self.entries, 1):
            shown.setdefault(entry.at, {})[number] = entry.item.text
        parts = [ShownSlice(at=at, drafts=drafts) for at, drafts in shown.items()]
        lines = describe_slices(question, shown)
        messages = slices_judge_messages(question.head, lines, parts, as_json=question.has_schema)
        if len(lines) < len(question.slices):
            messages = (messages[0], replace(messages[1], n_shared=0))
        return question.request(messages, len(self.entries), ACCEPTED)

    def read(self, answer: Answer) -> Reading:
        """A chunk whose negative control is accepted is void. So is the whole where it is no answer, or where at least
        two negative controls and half of them are accepted: then it was not about the drafts."""
        numbers = read_choice(answer.choices, len(self.entries), name=ACCEPTED)
        if numbers is None:
            return Reading(void=in_parts(self.places))
        rows = [(entry, number in numbers) for number, entry in enumerate(self.entries, 1)]
        controls = tuple(
            (entry.at, DraftVerdict(draft_id=entry.item.draft_id, is_accepted=yes, kind=entry.item.kind))
            for entry, yes in rows
            if entry.item.place is None
        )
        numbered = iter(rows)
        chunks = [list(itertools.islice(numbered, len(chunk))) for chunk in self.chunks]
        fooled = [any(yes and entry.item.kind is VerdictKind.NEGATIVE for entry, yes in chunk) for chunk in chunks]
        if sum(fooled) >= 2 and 2 * sum(fooled) >= len(chunks):
            return Reading(controls=controls, void=in_parts(self.places))
        sound = [row for chunk, is_fooled in zip(chunks, fooled, strict=True) if not is_fooled for row in chunk]
        return Reading(
            accepted={(e.at, e.item.place): yes for e, yes in sound if e.item.place is not None},
            controls=controls,
            void=tuple(_places_of(c) for c, is_fooled in zip(self.chunks, fooled, strict=True) if is_fooled),
        )


def _places_of(entries: Sequence[Entry]) -> tuple[Place, ...]:
    return tuple((entry.at, entry.item.place) for entry in entries if entry.item.place is not None)


def in_parts(places: Sequence[Place]) -> tuple[tuple[Place, ...], ...]:
    """Divide the drafts into at most four parts of neighbours, of six at least."""
    size = max(MIN_PART, -(-len(places) // RETRY_PARTS))
    return tuple(tuple(places[start : start + size]) for start in range(0, len(places), size))


def describe_slices(question: JudgeQuestion, asked: Container[int]) -> dict[int, tuple[str, ...]]:
    """Return the lines of the slices that open a request, by place: all, so that every request opens alike; where they
    are too long for that, those that it asks about."""
    n_chars = sum(len(line) for one in question.slices for line in one.lines)
    return {at: one.lines for at, one in enumerate(question.slices) if n_chars <= MAX_SHARED_CHARS or at in asked}


class Plants:
    """Controls for the requests of one conversation. A slice's nearest negatives are used first, each before one is
    used again, so that a draft that is asked about again meets another one."""

    def __init__(self, slices: Sequence[JudgedSlice], rng: random.Random) -> None:
        self._slices = slices
        self._rng = rng
        self._negatives: dict[int, Iterator[Control]] = {}

    def negative(self, at: int) -> Entry:
        if at not in self._negatives:
            self._negatives[at] = itertools.cycle(self._order_negatives(self._slices[at]))
        control = next(self._negatives[at])
        return Entry(at=at, item=Item(text=control.text, draft_id=control.draft_id, kind=VerdictKind.NEGATIVE))

    def positive(self, at: int) -> Entry | None:
        """A fresh candidate of the slice; None where it has none that is no draft at the same time."""
        drafts = {draft.text for draft in self._slices[at].drafts}
        fresh = [text for text in self._slices[at].positives if text not in drafts and len(text) <= MAX_BATCH_CHARS]
        if not fresh:
            return None
        item = Item(text=self._rng.choice(fresh), draft_id=NO_DRAFT, kind=VerdictKind.POSITIVE)
        return Entry(at=at, item=item)

    def _order_negatives(self, one: JudgedSlice) -> list[Control]:
        own = {draft.text for draft in one.drafts} | set(one.positives)
        near = [c for c in one.negatives if c.text not in own and len(c.text) <= MAX_BATCH_CHARS]
        first, rest = near[:NEAREST], near[NEAREST:]
        others = [Control(text=text) for text in OFF_TOPIC if text not in own]
        generic = self._rng.sample(others, len(others)) if len(near) < FEW_NEGATIVES else []
        return [*self._rng.sample(first, len(first)), *rest, *generic]


def first_requests(question: JudgeQuestion, plants: Plants, rng: random.Random) -> list[SlicesRequest]:
    """The requests about all drafts; one too long to show is in none. The drafts of a slice are in one request if they
    fit, and the largest slices choose first."""
    pieces = [piece for at, one in enumerate(question.slices) for piece in _pieces(at, one, rng)]
    bins: list[list[tuple[int, list[int]]]] = []
    for piece in sorted(pieces, key=lambda piece: -len(piece[1])):
        fitting = (each for each in bins if _fits(question, [*each, piece]))
        each = next(fitting, None)
        if each is None:
            bins.append([piece])
        else:
            each.append(piece)
    flat = [[(at, place) for at, places in sorted(each) for place in places] for each in bins]
    return [plant_controls(question, places, CHUNK, plants, rng) for places in flat]


def _pieces(at: int, one: JudgedSlice, rng: random.Random) -> Iterator[tuple[int, list[int]]]:
    """A slice's drafts in random order, in as many pieces as it takes for each to fit into a request."""
    places = [place for place, draft in enumerate(one.drafts) if len(draft.text) <= MAX_BATCH_CHARS]
    piece: list[int] = []
    room = MAX_BATCH_CHARS
    for place in rng.sample(places, len(places)):
        n_chars = len(one.drafts[place].text)
        if piece and (n_chars > room or len(piece) == BATCH):
            yield at, piece
            piece, room = [], MAX_BATCH_CHARS
        piece.append(place)
        room -= n_chars
    if piece:
        yield at, piece


def _fits(question: JudgeQuestion, pieces: Sequence[tuple[int, list[int]]]) -> bool:
    n_chars = sum(len(question.slices[at].drafts[place].text) for at, places in pieces for place in places)
    return sum(len(places) for _, places in pieces) <= BATCH and n_chars <= MAX_BATCH_CHARS


def plant_controls(
    question: JudgeQuestion, places: Sequence[Place], most: int, plants: Plants, rng: random.Random
) -> SlicesRequest:
    """Make a request about these drafts, those of one slice together, with its controls: one in `most` drafts at
    least."""
    chunks = [[_entry_of(question, place) for place in part] for part in _chunks_of(places, most)]
    _plant_positive(chunks, plants, rng)
    for entries in chunks:
        gap, host = rng.choice(_gaps(entries))
        entries.insert(gap, plants.negative(host))
    return SlicesRequest(chunks=tuple(tuple(entries) for entries in chunks))


def _chunks_of(places: Sequence[Place], most: int) -> list[list[Place]]:
    """Slice by slice in even chunks of at most `most`; one with few joins the one before, if that has few or it is the
    last."""
    chunks: list[list[Place]] = []
    for _, group in itertools.groupby(places, key=lambda place: place[0]):
        run = list(group)
        if chunks and len(chunks[-1]) < FEW_DRAFTS and len(chunks[-1]) + len(run) <= most:
            chunks[-1] += run
            continue
        n = -(-len(run) // most)
        chunks += [run[len(run) * i // n : len(run) * (i + 1) // n] for i in range(n)]
    if len(chunks) > 1 and len(chunks[-1]) < FEW_DRAFTS and len(chunks[-2]) + len(chunks[-1]) <= most:
        chunks[-2:] = [chunks[-2] + chunks[-1]]
    return chunks


def _entry_of(question: JudgeQuestion, place: Place) -> Entry:
    draft = question.slices[place[0]].drafts[place[1]]
    item = Item(text=draft.text, draft_id=draft.draft_id, kind=VerdictKind.VERDICT, place=place[1])
    return Entry(at=place[0], item=item)


def _gaps(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """The places where a control may stand among the entries, each with a slice that it would stand under."""
    pairs = zip([*entries, entries[-1]], [entries[0], *entries], strict=True)
    return [(gap, at) for gap, (after, before) in enumerate(pairs) for at in sorted({after.at, before.at})]


def _plant_positive(chunks: Sequence[list[Entry]], plants: Plants, rng: random.Random) -> None:
    """Put one positive control somewhere under its slice, if any slice of the request has one."""
    gaps = [(entries, gap, at) for entries in chunks for gap, at in _gaps(entries)]
    for entries, gap, at in rng.sample(gaps, len(gaps)):
        entry = plants.positive(at)
        if entry is not None:
            entries.insert(gap, entry)
            return
