"""The drafts of all rows of a step, for an engine that batches: our own scheduler, and the hook inside vLLM."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from backend.domain.recipes.feedback import PackFeedback
from gpu_runners.models.protocol import Drafting, DraftKind, GenerationRequest
from gpu_runners.speculation.controller import MARGIN, Controller, StepBook
from gpu_runners.speculation.drafter import Drafter, TokenSource
from gpu_runners.speculation.feedback_log import FeedbackLog
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.sources import PackSource, PromptSource, SchemaSource
from gpu_runners.speculation.step_costs import StepCosts

_KEEP_CONTROLLERS = 512
_ASKING_S = 2e-5  # a guess, until it is measured


class DraftRow(Protocol):
    """What is needed of an engine's row. `tokens` are prompt and answer, `limit` the longest they may get, `draft` what
    the engine fed of the last proposal."""

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
        """Whether an answer of at most `limit` tokens with its prompt has room."""
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
        self._step = StepBook()
        self._asking_s = _ASKING_S  # for one row
        self._pass_s = 0.0  # of the small model
        self._n_others = 0  # rows of the last step that were not asked

    def opens_at_once(self, request: GenerationRequest) -> bool:
        """Whether `open` has nothing to read from the disk."""
        drafting = request.drafting
        ref = None if drafting is None or DraftKind.PACK not in drafting.kinds else drafting.pack
        return ref is None or self._shelf.has(ref)

    def open(self, row: DraftRow) -> None:
        """Give a new row its drafter, where its request wants drafts. Raises Rejected(bad_pack)."""
        drafting = row.request.drafting
        if drafting is None:
            return
        controller, sources = self._made(row, drafting)
        has_model = self._models is not None and DraftKind.MODEL in drafting.kinds
        if sources or has_model:
            row.drafter = Drafter(
                sources,
                controller,
                max_draft=drafting.max_draft,
                matcher=row.matcher,
                end_ids=self._end_ids,
                n_vocab=self._n_vocab,
                has_model=has_model,
                clock=self._clock,
            )

    def propose(self, rows: Sequence[DraftRow]) -> list[list[int]]:
        """One draft a row, within limit - len(tokens) - 1; all [] when nothing pays."""
        began = self._clock()
        self._book()
        book = self._step = StepBook(n_rows=len(rows) + self._n_others, n_asked=len(rows))
        if self._choose(rows, book):
            drafts = [self._proposed(row, book) for row in rows]
            self._ask_model(rows, drafts, book)
            self._weigh(rows, drafts, book)
        else:
            drafts = [_rested(row) for row in rows]
        book.making_s = self._clock() - began - sum(share.model_s for share in book.shares.values())
        return drafts

    def settle(self, row: DraftRow, kept: Sequence[int]) -> None:
        """`kept`: the accepted tokens and the one that followed, after each step of a row that was asked."""
        book, drafter = self._step, _drafter(row)
        book.n_kept += len(kept)
        if not drafter.draft:  # `propose` reads what came in between from the row
            return
        began = self._clock()
        n_fed = min(len(row.draft), len(drafter.draft))
        accepted = drafter.settle(kept, fed=row.draft)
        book.of(drafter.controller).add(n_fed, accepted)
        book.making_s += self._clock() - began

    def note_step(self, n_rows: int, n_drafted: int, seconds: float) -> None:
        """What a forward pass over decoding rows alone took."""
        self.costs.note(n_rows, n_drafted, seconds)
        self._step.noted = (n_rows, n_drafted, seconds)
        self._n_others = max(0, n_rows - self._step.n_asked)

    def close(self, row: DraftRow) -> None:
        """The row ended or left."""
        drafter = row.drafter
        if drafter is None:
            return
        answer = row.tokens[len(row.request.prompt) :]
        log = drafter.controller.log
        if log is not None:
            learns = row.request.drafting is not None and row.request.drafting.learns
            log.answered(answer, learns=learns)
        if self._models is not None:
            self._models.close(drafter)

    def feedback(self) -> list[tuple[str, PackFeedback]]:
        """(tenant, what its packs did since the last call); `artifact_sha256` is for the caller to fill in."""
        return self._log.drain()

    def _made(self, row: DraftRow, drafting: Drafting) -> tuple[Controller, list[TokenSource]]:
        request = row.request
        sources: list[TokenSource] = []
        ref = drafting.pack if DraftKind.PACK in drafting.kinds else None
        index = None if ref is None else self._shelf.get(ref)
        log = None if ref is None or index is None else self._log.of(request.tenant, ref.key, index.pack)
        for kind in drafting.kinds:
            if kind is DraftKind.PACK and index is not None and not index.pack.is_empty:
                sources.append(PackSource(index, log, request.prompt))
            elif kind is DraftKind.SCHEMA and row.matcher is not None:
                sources.append(SchemaSource(row.matcher))
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

    def _choose(self, rows: Sequence[DraftRow], book: StepBook) -> bool:
        """Whose rows are asked in this step: all of a controller or none, since drafts of a few among many rows do not
        pay for what having any costs. Whether any are."""
        for controller, n_rows in Counter([_drafter(row).controller for row in rows]).items():
            book.of(controller).n_rows = n_rows
        is_due = self.costs.wants_plain()
        for controller, share in book.shares.items():
            asking_s = share.n_rows * self._asking_s
            share.is_asked = not (is_due and controller.is_gated) and controller.affords(book.n_rows, asking_s)
            if share.is_asked:
                controller.begin(book.n_rows)
        return any(share.is_asked for share in book.shares.values())

    def _proposed(self, row: DraftRow, book: StepBook) -> list[int]:
        drafter = _drafter(row)
        share = book.of(drafter.controller)
        if not share.is_asked:
            return _rested(row)
        began = self._clock()
        missing = row.tokens[len(row.request.prompt) + drafter.n_seen :]
        if missing:
            drafter.advance(missing)
        draft = drafter.propose(_room(row))
        share.n_asked += 1
        share.asked_s += self._clock() - began
        return draft

    def _ask_model(self, rows: Sequence[DraftRow], drafts: list[list[int]], book: StepBook) -> None:
        """Drafted tokens of the small model behind the others, a pass a token, for every row where the next one seems
        to pay for itself and its share of the pass."""
        if self._models is None:
            return
        began = self._clock()
        asked = [i for i, row in enumerate(rows) if self._wants_model(row)]
        pass_s = self._pass_s / max(len(asked), 1)
        asked = [i for i in asked if _drafter(rows[i]).may_ask_model(pass_s)]
        first, n_passes = asked[:], 0
        while asked:
            written = [rows[i].tokens for i in asked]
            chosen = self._models.next_tokens([_drafter(rows[i]) for i in asked], written)
            n_passes += 1
            left = []
            for i, (token, sure) in zip(asked, chosen, strict=True):
                if _drafter(rows[i]).take_model(token, sure, self._pass_s / len(asked), _room(rows[i])):
                    left.append(i)
                drafts[i] = list(_drafter(rows[i]).draft)
            asked = left
        if not n_passes:
            return
        spent = self._clock() - began
        self._pass_s += (0.2 if self._pass_s else 1.0) * (spent / n_passes - self._pass_s)
        for i in first:
            controller = _drafter(rows[i]).controller
            controller.note_asked(DraftKind.MODEL, False, spent / len(first))
            book.of(controller).model_s += spent / len(first)

    def _wants_model(self, row: DraftRow) -> bool:
        drafter = _drafter(row)
        return (
            drafter.wants_model(_room(row)) and self._models is not None and self._models.has_place(drafter, row.limit)
        )

    def _weigh(self, rows: Sequence[DraftRow], drafts: list[list[int]], book: StepBook) -> None:
        """All drafts are left out where as a whole they do not pay for what having any costs; beyond what may be tried
        in one step they are left for later. (What is tried first is too little to pay for itself among many rows.)"""
        costs, n_rows = self.costs, book.n_rows
        gated = [i for i, row in enumerate(rows) if drafts[i] and _drafter(row).controller.is_gated]
        if not gated:
            return
        is_alone = sum(map(bool, drafts)) == len(gated)
        spent = costs.token_cost(n_rows) * sum(len(drafts[i]) for i in gated) + costs.draft_cost(n_rows) * is_alone
        expected = sum(_drafter(rows[i]).expected for i in gated)
        room = costs.most(n_rows) if expected * costs.token_worth(n_rows) > MARGIN * spent else 0
        tried = []
        for i in gated:
            if room > 0:
                drafts[i] = _drafter(rows[i]).trim(room)
                room -= len(drafts[i])
                tried.append(i)
        for i in set(gated).difference(tried):
            _drafter(rows[i]).remember()
            drafts[i] = []

    def _book(self) -> None:
        """What the step before gained and spent. Its drafts are charged what such drafts cost by all that was measured:
        one step alone says little."""
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
            controller.allowance.settle(share.n_accepted * worth, spent)
            controller.allowance.accrue(seconds * share.n_rows / n_rows)


def _room(row: DraftRow) -> int:
    return row.limit - len(row.tokens) - 1


def _drafter(row: DraftRow) -> Drafter:
    assert row.drafter is not None, "a row without drafter was asked"
    return row.drafter


def _rested(row: DraftRow) -> list[int]:
    """Not asked in this step."""
    drafter = _drafter(row)
    if drafter.is_asked:
        drafter.drop()
    return []
