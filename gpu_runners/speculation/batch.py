"""The drafts of all sequences of a step, for an engine that batches: our own scheduler, and the hook inside vLLM."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from backend.domain.recipes.feedback import PackFeedback
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest
from gpu_runners.speculation.controller import MARGIN, Controller, StepAccount
from gpu_runners.speculation.drafter import Drafter, TokenSource
from gpu_runners.speculation.feedback_log import FeedbackLog
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.sources import PackSource, PromptSource, SchemaSource
from gpu_runners.speculation.step_costs import StepCosts

_KEEP_CONTROLLERS = 512
_ASKING_S = 2e-5  # a guess, until it is measured


class DraftedSequence(Protocol):
    """A sequence as the drafter needs it of an engine. `tokens` are prompt and answer, `limit` the longest they may
    get, `draft` what the engine fed of the last proposal."""

    request: GenerationRequest
    tokens: list[int]
    matcher: Any | None
    limit: int
    drafter: Drafter | None
    draft: list[int]


class DraftModel(Protocol):
    """A small model that drafts behind the other sources. The engine has it (`ModelDrafts`), as it runs on torch, which
    the hooks inside vLLM and llama.cpp do without."""

    def next_tokens(self, drafters: Sequence[Drafter], written: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """(token, how sure it is in eighths) after `written` and the draft of each."""
        ...

    def has_place(self, drafter: Drafter, limit: int) -> bool:
        """Say whether an answer of at most `limit` tokens with its prompt has room."""
        ...

    def close(self, drafter: Drafter) -> None: ...


class BatchDrafter:
    """`open`, `opens_at_once` and `feedback` may be called from any thread, all else from the engine's own."""

    def __init__(
        self,
        shelf: PackShelf,
        *,
        models: DraftModel | None = None,
        costs: StepCosts | None = None,
        end_ids: Sequence[int] = (),
        n_vocab: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.costs = costs or StepCosts()
        self._shelf, self._models = shelf, models
        self._end_ids, self._n_vocab = frozenset(end_ids), n_vocab
        self._clock = clock
        self._log = FeedbackLog()
        self._lock = threading.Lock()
        self._controllers: OrderedDict[tuple[str, str, str, bool], Controller] = OrderedDict()
        self._step = StepAccount()
        self._asking_s = _ASKING_S  # for one sequence
        self._pass_s = 0.0  # of the small model
        self._n_others = 0  # sequences of the last step that were not asked

    def opens_at_once(self, request: GenerationRequest) -> bool:
        """Say whether `open` has nothing to read from the disk."""
        drafting = request.drafting
        ref = None if drafting is None or DraftKind.PACK not in drafting.kinds else drafting.pack
        return ref is None or self._shelf.has(ref)

    def open(self, sequence: DraftedSequence) -> None:
        """Give a new sequence its drafter, where its request wants drafts. Raises Rejected(bad_pack)."""
        drafting = sequence.request.drafting
        if drafting is None:
            return
        controller, sources = self._open_sources(sequence, drafting)
        has_model = self._models is not None and DraftKind.MODEL in drafting.kinds
        if sources or has_model:
            sequence.drafter = Drafter(
                sources,
                controller,
                max_draft=drafting.max_draft,
                matcher=sequence.matcher,
                end_ids=self._end_ids,
                n_vocab=self._n_vocab,
                has_model=has_model,
                clock=self._clock,
            )

    def propose(self, sequences: Sequence[DraftedSequence]) -> list[list[int]]:
        """One draft a sequence, within limit - len(tokens) - 1; all [] when nothing pays."""
        began = self._clock()
        self._book()
        book = self._step = StepAccount(n_rows=len(sequences) + self._n_others, n_asked=len(sequences))
        if self._choose(sequences, book):
            drafts = [self._propose_one(sequence, book) for sequence in sequences]
            self._ask_model(sequences, drafts, book)
            self._weigh(sequences, drafts, book)
        else:
            drafts = [_skip(sequence) for sequence in sequences]
        book.making_s = self._clock() - began - sum(share.model_s for share in book.shares.values())
        return drafts

    def observe_accepted(self, sequence: DraftedSequence, kept: Sequence[int]) -> None:
        """Take note of `kept`: the accepted tokens and the one that followed, after each step of a sequence that was
        asked."""
        book, drafter = self._step, _drafter(sequence)
        book.n_kept += len(kept)
        if not drafter.draft:  # `propose` reads what came in between from the sequence
            return
        began = self._clock()
        n_fed = min(len(sequence.draft), len(drafter.draft))
        accepted = drafter.observe_accepted(kept, fed=sequence.draft)
        book.of(drafter.controller).add(n_fed, accepted)
        book.making_s += self._clock() - began

    def note_step(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        """Take note of what a forward pass over decoding sequences alone took."""
        self.costs.note(n_rows, n_drafted, seconds)
        self._step.noted = (n_rows, n_drafted, seconds)
        self._n_others = max(0, n_rows - self._step.n_asked)

    def close(self, sequence: DraftedSequence) -> None:
        """Forget a sequence that ended or left."""
        drafter = sequence.drafter
        if drafter is None:
            return
        answer = sequence.tokens[len(sequence.request.prompt) :]
        log = drafter.controller.log
        if log is not None:
            learns = sequence.request.drafting is not None and sequence.request.drafting.learns
            log.count_answer(answer, learns=learns)
        if self._models is not None:
            self._models.close(drafter)

    def feedback(self) -> list[tuple[str, PackFeedback]]:
        """(tenant, what its packs did since the last call); `artifact_sha256` is for the caller to fill in."""
        return self._log.drain()

    def _open_sources(self, sequence: DraftedSequence, drafting: Drafting) -> tuple[Controller, list[TokenSource]]:
        request = sequence.request
        sources: list[TokenSource] = []
        ref = drafting.pack if DraftKind.PACK in drafting.kinds else None
        index = None if ref is None else self._shelf.get(ref)
        log = None if ref is None or index is None else self._log.of(request.tenant, ref.key, index.pack)
        for kind in drafting.kinds:
            if kind is DraftKind.PACK and index is not None and not index.pack.is_empty:
                sources.append(PackSource(index, log, request.prompt))
            elif kind is DraftKind.SCHEMA and sequence.matcher is not None:
                sources.append(SchemaSource(sequence.matcher))
            elif kind is DraftKind.PROMPT:
                sources.append(PromptSource(request.prompt))
        adapter = "" if request.adapter is None else request.adapter.key
        key = (request.tenant, adapter, "" if ref is None else ref.key, drafting.is_gated)
        with self._lock:
            controller = self._controllers.get(key)
            if controller is None:
                controller = Controller(self.costs, is_gated=drafting.is_gated, log=log)
                self._controllers[key] = controller
            self._controllers.move_to_end(key)
            while len(self._controllers) > _KEEP_CONTROLLERS:
                self._controllers.popitem(last=False)
        return controller, sources

    def _choose(self, sequences: Sequence[DraftedSequence], book: StepAccount) -> bool:
        """Decide whose sequences are asked in this step: all of a controller or none, since drafts of a few among many
        do not pay for what having any costs. Whether any are."""
        for controller, n_rows in Counter([_drafter(sequence).controller for sequence in sequences]).items():
            book.of(controller).n_rows = n_rows
        is_due = self.costs.wants_plain()
        for controller, share in book.shares.items():
            asking_s = share.n_rows * self._asking_s
            share.is_asked = not (is_due and controller.is_gated) and controller.can_afford(book.n_rows, asking_s)
            if share.is_asked:
                controller.begin(book.n_rows)
        return any(share.is_asked for share in book.shares.values())

    def _propose_one(self, sequence: DraftedSequence, book: StepAccount) -> list[int]:
        drafter = _drafter(sequence)
        share = book.of(drafter.controller)
        if not share.is_asked:
            return _skip(sequence)
        began = self._clock()
        missing = sequence.tokens[len(sequence.request.prompt) + drafter.n_seen :]
        if missing:
            drafter.advance(missing)
        draft = drafter.propose(_room(sequence))
        share.n_asked += 1
        share.asked_s += self._clock() - began
        return draft

    def _ask_model(self, sequences: Sequence[DraftedSequence], drafts: list[list[int]], book: StepAccount) -> None:
        """Drafted tokens of the small model behind the others, a pass a token, for every sequence where the next one
        seems to pay for itself and its share of the pass."""
        if self._models is None:
            return
        began = self._clock()
        asked = [i for i, sequence in enumerate(sequences) if self._wants_model(sequence)]
        pass_s = self._pass_s / max(len(asked), 1)
        asked = [i for i in asked if _drafter(sequences[i]).may_ask_model(pass_s)]
        first, n_passes = asked[:], 0
        while asked:
            written = [sequences[i].tokens for i in asked]
            chosen = self._models.next_tokens([_drafter(sequences[i]) for i in asked], written)
            n_passes += 1
            left = []
            for i, (token, sure) in zip(asked, chosen, strict=True):
                if _drafter(sequences[i]).take_model(token, sure, self._pass_s / len(asked), _room(sequences[i])):
                    left.append(i)
                drafts[i] = list(_drafter(sequences[i]).draft)
            asked = left
        if not n_passes:
            return
        spent = self._clock() - began
        self._pass_s += (0.2 if self._pass_s else 1.0) * (spent / n_passes - self._pass_s)
        for i in first:
            controller = _drafter(sequences[i]).controller
            controller.note_asked(DraftKind.MODEL, False, spent / len(first))
            book.of(controller).model_s += spent / len(first)

    def _wants_model(self, sequence: DraftedSequence) -> bool:
        drafter = _drafter(sequence)
        return (
            drafter.wants_model(_room(sequence))
            and self._models is not None
            and self._models.has_place(drafter, sequence.limit)
        )

    def _weigh(self, sequences: Sequence[DraftedSequence], drafts: list[list[int]], book: StepAccount) -> None:
        """All drafts are left out where as a whole they do not pay for what having any costs; beyond what may be tried
        in one step they are left for later. (What is tried first is too little to pay for itself among many
        sequences.)"""
        costs, n_rows = self.costs, book.n_rows
        gated = [i for i, sequence in enumerate(sequences) if drafts[i] and _drafter(sequence).controller.is_gated]
        if not gated:
            return
        is_alone = sum(map(bool, drafts)) == len(gated)
        spent = costs.token_cost(n_rows) * sum(len(drafts[i]) for i in gated) + costs.draft_cost(n_rows) * is_alone
        expected = sum(_drafter(sequences[i]).expected for i in gated)
        room = costs.most(n_rows) if expected * costs.token_worth(n_rows) > MARGIN * spent else 0
        tried = []
        for i in gated:
            if room > 0:
                drafts[i] = _drafter(sequences[i]).trim(room)
                room -= len(drafts[i])
                tried.append(i)
        for i in set(gated).difference(tried):
            _drafter(sequences[i]).remember()
            drafts[i] = []

    def _book(self) -> None:
        """Book what the step before gained and spent. Its drafts are charged what such drafts cost by all that was
        measured: one step alone says little."""
        book, costs = self._step, self.costs
        if not book.n_rows:
            return
        n_fed = sum(share.n_fed for share in book.shares.values())
        n_rows, n_drafted, seconds = book.noted or (book.n_rows, n_fed, 0.0)
        if seconds:
            made_s = book.making_s + sum(share.model_s for share in book.shares.values())
            costs.note_gain(n_rows, book.n_kept + n_rows - book.n_asked, n_drafted, made_s)
        worth = costs.plain(n_rows) / n_rows
        fed_s = costs.extra(n_rows, n_drafted) * costs.plain(n_rows) / max(n_fed, 1)
        n_asked = sum(share.n_asked for share in book.shares.values())
        # a pause of the whole machine is no property of drafts
        asked_s = sum(share.asked_s for share in book.shares.values()) / max(n_asked, 1)
        asked_s = min(asked_s, 4 * self._asking_s)
        if n_asked:
            self._asking_s += 0.1 * (asked_s - self._asking_s)
        for controller, share in book.shares.items():
            spent = share.n_fed * fed_s + share.n_asked * asked_s + share.model_s
            controller.regret_budget.record(share.n_accepted * worth, spent)
            controller.regret_budget.accrue(seconds * share.n_rows / n_rows)


def _room(sequence: DraftedSequence) -> int:
    return sequence.limit - len(sequence.tokens) - 1


def _drafter(sequence: DraftedSequence) -> Drafter:
    assert sequence.drafter is not None, "a sequence without drafter was asked"
    return sequence.drafter


def _skip(sequence: DraftedSequence) -> list[int]:
    """Skip a row in this step."""
    drafter = _drafter(sequence)
    if drafter.is_asked:
        drafter.drop()
    return []
