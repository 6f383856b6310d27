"""One request's drafts: its sources in order, one after the other, as long as it pays; and whose tokens were taken.

A draft is one run of tokens. A source that has nothing leaves its place to the next; where a run ends, the others may
go on from there (schema-forced tokens after a pack's run). What a constraint would refuse is cut off. A run that does
not pay is remembered and compared with what comes instead.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from gpu_runners.models.protocol import DraftKind, SourceCount
from gpu_runners.speculation.controller import Controller

_ANY = -1  # no token of a small model is this sure: its rate is the source's


class TokenSource(Protocol):
    """`key` tells apart, for the last proposal, what is accepted more or less often within one source."""

    kind: DraftKind
    key: int

    def advance(self, token: int) -> None:
        """`token` became part of the answer."""
        ...

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        """Propose at most `most` tokens to come after the answer and `ahead`, drafted tokens that other sources put
        there."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """`draft[begin:end]` is one source's."""

    kind: DraftKind
    key: int
    begin: int
    end: int


@dataclass(slots=True)
class _Remembered:
    """A run that was not drafted; its first `at` tokens came."""

    key: int
    run: Sequence[int]
    at: int = 0


class Drafter:
    """`matcher` is the request's constraint (an llguidance LLMatcher, left as it was found) or None. Ids outside
    `n_vocab` are never drafted, nor anything after an end. `has_model`: a small model may go on from the draft."""

    def __init__(
        self,
        sources: Sequence[TokenSource],
        controller: Controller,
        *,
        max_draft: int,
        matcher: Any | None,
        end_ids: frozenset[int] = frozenset(),
        n_vocab: int | None = None,
        has_model: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.controller = controller
        self.n_seen = 0  # tokens of the answer that the sources know
        self.expected = 0.0  # accepted tokens of the draft
        self.is_asked = False  # in this step
        self._sources = tuple(sources)
        self._max_draft, self._matcher = max_draft, matcher
        self._end_ids, self._n_vocab = end_ids, n_vocab
        self._has_model, self._clock = has_model, clock
        self._draft: list[int] = []
        self._parts: list[_Part] = []
        self._survival = 1.0
        self._is_open = True  # whether others may go on from the draft
        self._remembered: dict[DraftKind, _Remembered] = {}
        self._drafted: Counter[DraftKind] = Counter()
        self._accepted: Counter[DraftKind] = Counter()

    @property
    def draft(self) -> Sequence[int]:
        return self._draft

    @property
    def counts(self) -> tuple[SourceCount, ...]:
        return tuple(
            SourceCount(kind=kind, drafted=n, accepted=self._accepted[kind]) for kind, n in self._drafted.items()
        )

    def propose(self, room: int) -> list[int]:
        """Propose at most `room` tokens; [] for none."""
        self.drop()
        self.is_asked = True
        room = min(room, self._max_draft)
        while self._is_open and len(self._draft) < room:
            begin = len(self._draft)
            for source in self._sources:
                self._ask(source, room)
                if len(self._draft) > begin:
                    break
            else:
                break
        return self.trim(self._sound())

    def wants_model(self, room: int) -> bool:
        """Say whether a small model's tokens may stand behind the draft."""
        return self._has_model and self.is_asked and self._is_open and len(self._draft) < min(room, self._max_draft)

    def may_ask_model(self, pass_s: float) -> bool:
        """Say whether a small model's next token seems to pay for itself and `pass_s`, the row's share of making it."""
        is_first = not self._parts or self._parts[-1].kind is not DraftKind.MODEL
        if is_first and not self.controller.may_ask(DraftKind.MODEL, False):
            return False
        return self.controller.length(DraftKind.MODEL, 1, key=_ANY, survival=self._survival, made_s=pass_s) > 0

    def take_model(self, token: int, sure: int, pass_s: float, room: int) -> bool:
        """The small model chose `token` and is so `sure` of it. Whether it should go on."""
        n = len(self._draft)
        if self.controller.length(DraftKind.MODEL, 1, key=sure, survival=self._survival):
            self._append(DraftKind.MODEL, sure, (token,))
            self.trim(self._sound())
        elif not self._parts:
            self._remembered.setdefault(DraftKind.MODEL, _Remembered(sure, (token,)))
        return len(self._draft) > n and self.wants_model(room) and self.may_ask_model(pass_s)

    def trim(self, n: int) -> list[int]:
        """The draft's first `n` tokens; the rest is dropped."""
        if n < len(self._draft):
            self.expected *= n / len(self._draft)
            del self._draft[n:]
            self._parts = [part for part in self._parts if part.begin < n]
            self._is_open = False
        return self._draft[:]

    def drop(self) -> None:
        """Nothing is drafted in this step after all."""
        self._draft, self._parts = [], []
        self._survival, self.expected = 1.0, 0.0
        self._is_open, self.is_asked = True, False

    def remember(self) -> None:
        """Nothing is drafted in this step after all; what comes is compared with the draft's first run."""
        if self._parts:
            first = self._parts[0]
            self._remembered.setdefault(first.kind, _Remembered(first.key, self._draft[: first.end]))
        self.drop()

    def observe_accepted(self, tokens: Sequence[int], *, fed: Sequence[int] | None = None) -> int:
        """Read what really came after the last `propose`: the accepted tokens and the one that followed. `fed` is what
        the engine took of the draft (None: all). How many were accepted."""
        n_fed = len(self._draft) if fed is None else min(len(fed), len(self._draft))
        accepted = 0
        while accepted < min(n_fed, len(tokens)) and tokens[accepted] == self._draft[accepted]:
            accepted += 1
        is_over = accepted == len(tokens)  # the answer ended inside the draft: no token was refused
        for part in self._parts:
            drafted, taken = min(part.end, n_fed) - part.begin, min(part.end, accepted) - part.begin
            if drafted <= 0:
                break
            self._drafted[part.kind] += drafted
            self._accepted[part.kind] += max(taken, 0)
            met = taken if is_over else drafted
            if taken >= 0 and met:
                self.controller.note(part.kind, met, taken, key=part.key, onward=part.begin > 0)
        self.drop()
        self.advance(tokens)
        return accepted

    def advance(self, tokens: Sequence[int]) -> None:
        """Tokens that came, drafted or not."""
        self.n_seen += len(tokens)
        for token in tokens:
            for source in self._sources:
                source.advance(token)
            if self._remembered:
                for kind in tuple(self._remembered):
                    self._compare(kind, token)

    def _ask(self, source: TokenSource, room: int) -> None:
        """Puts the source's tokens behind the draft, as many as pay; where not all do, nobody goes on from there."""
        kind, onward = source.kind, bool(self._draft)
        if not self.controller.may_ask(kind, onward):
            return
        began = self._clock()
        run = source.propose(self._draft, room - len(self._draft))
        self.controller.note_asked(kind, onward, self._clock() - began)
        if not run:
            return
        n = self.controller.length(kind, len(run), key=source.key, survival=self._survival)
        if n:
            self._remembered.pop(kind, None)
            self._append(kind, source.key, run[:n])
            self._is_open = n == len(run) and self._draft[-1] not in self._end_ids
        elif not onward and kind not in self._remembered:
            self._remembered[kind] = _Remembered(source.key, run)

    def _append(self, kind: DraftKind, key: int, run: Sequence[int]) -> None:
        rate = self.controller.rate(kind, key)
        begin = len(self._draft)
        self._draft += run
        self._parts.append(_Part(kind, key, begin, len(self._draft)))
        for _ in run:
            self._survival *= rate
            self.expected += self._survival

    def _compare(self, kind: DraftKind, token: int) -> None:
        one = self._remembered[kind]
        holds = one.run[one.at] == token
        self.controller.note(kind, 1 if holds else len(one.run) - one.at, int(holds), key=one.key)
        one.at += 1
        if not holds or one.at == len(one.run):
            del self._remembered[kind]

    def _sound(self) -> int:
        """Count the tokens of the draft that the engine may be given."""
        n = len(self._draft)
        for i, token in enumerate(self._draft):
            if token < 0 or (self._n_vocab is not None and token >= self._n_vocab):
                n = i
                break
            if token in self._end_ids:
                n = i + 1
                break
        if n and self._matcher is not None:
            n = min(n, int(self._matcher.deep_copy().validate_tokens(self._draft[:n])))
        return n
