"""The engine's own thread: rows join and leave at every step, one forward pass a step over all that run.

A step: drop who was canceled, admit who fits, ask for drafts, read a bounded number of prompt
tokens beside the last and the drafted tokens of every decoding row, choose at each of these, keep what a row would have
said without a draft, tell. Long prompts are read in chunks, so they slow others down by a chunk a step.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from gpu_runners.engine.admission_queue import AdmissionQueue
from gpu_runners.engine.guarded_drafts import GuardedDrafts
from gpu_runners.engine.kv import Lanes
from gpu_runners.engine.lora_slots import AdapterBank
from gpu_runners.engine.mailbox import Mailbox, wake
from gpu_runners.engine.model_runner import Net
from gpu_runners.engine.prefix_cache import Prefixes
from gpu_runners.engine.sampling import Chosen, choose
from gpu_runners.engine.sequences import Row
from gpu_runners.models.constraints import Masks, n_vocab
from gpu_runners.models.protocol import Delta, EngineFailed, Overloaded

log = logging.getLogger("kolm.generation")


class Scheduler(threading.Thread):
    def __init__(
        self, net: Net, lanes: Lanes, bank: AdapterBank, *, max_running: int, max_waiting: int, chunk: int
    ) -> None:
        super().__init__(name="kolm-generation", daemon=True)
        self._net, self._lanes, self._bank = net, lanes, bank
        self.prefixes = Prefixes(budget=lanes.budget // 8)
        self._masks = Masks(n_vocab(net.base.tokenizer, net.base.vocab_size))
        self.max_running, self._max_waiting, self._chunk = max_running, max_waiting, chunk
        self.counts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._waiting = AdmissionQueue()
        self._running: list[Row] = []
        self._calls: list[Callable[[], None]] = []
        self._told: set[Mailbox] = set()
        self._halved = False
        self._closing = False
        self.drafting = GuardedDrafts(vocab_size=net.base.vocab_size)

    # ---- from any thread

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    def check_room(self) -> None:
        """Raises Overloaded."""
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded(self._retry_after())

    def enter(self, row: Row) -> None:
        """Raises Overloaded, EngineFailed(engine_stopped)."""
        with self._changed:
            if self._closing:
                raise EngineFailed("The engine is stopped.", code="engine_stopped")
            self.check_room()
            self._waiting.push(row)
            self.counts["requests"] += 1
            self._changed.notify()

    def leave(self, row: Row) -> None:
        """Its reader has gone: its place is free at the next step."""
        with self._changed:
            row.canceled = True
            self._waiting.drop(row)
            self._calls.append(lambda: self.drafting.close(row))
            self._changed.notify()

    def call(self, do: Callable[[], None]) -> None:
        """Between two steps, in the engine's thread."""
        with self._changed:
            self._calls.append(do)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    # ---- the engine's thread

    def run(self) -> None:
        with torch.inference_mode():
            while self._wait():
                self._guarded_step()
                wake(self._told)
                self._told.clear()
            self._fail(self._running[:], EngineFailed("The engine is stopped.", code="engine_stopped"))
            with self._changed:
                while (row := self._waiting.pop(lambda _: True)) is not None:
                    self._tell(row, EngineFailed("The engine is stopped.", code="engine_stopped"))
            wake(self._told)

    def _wait(self) -> bool:
        with self._changed:
            while not (self._closing or self._running or self._calls or len(self._waiting)):
                self._changed.wait()
            calls, self._calls = self._calls, []
            closing = self._closing
        for do in calls:
            do()
        return not closing

    def _guarded_step(self) -> None:
        try:
            self._step()
        except torch.OutOfMemoryError:
            self._halve()
        except Exception as error:  # a step that breaks must not leave its readers waiting for ever
            log.exception("a generation step failed (%s)", type(error).__name__)
            self._fail(self._running[:], EngineFailed("The engine broke in a step.", code="engine_failed"))

    def _step(self) -> None:
        for row in [row for row in self._running if row.canceled]:
            self._forget(row)
            self._end(row)
        self._admit()
        if not self._running:
            return
        n_drafted, chunks, began = self.drafting.ask(self._running), self._chunks(), self._net.clock()
        whole, logits = self._net.forward(self._lanes, chunks, self._bank)
        self.counts["steps"] += 1
        for row in whole:
            if row.reading:
                row.reading = False
                self.prefixes.keep(row)
                row.lane.start_decoding(row)
        if whole:
            chosen = self._choose(whole, logits)
            if not chunks:
                self.drafting.note_step(len(whole), n_drafted, self._net.clock() - began)
            self._take(whole, chosen)

    def _admit(self) -> None:
        unread = sum(len(row.tokens) - row.n_cached for row in self._running if row.reading)
        while len(self._running) < self.max_running and unread < self._chunk:
            with self._changed:
                row = self._waiting.pop(self._fits)
            if row is None:
                return
            self._place(row)
            unread += len(row.tokens) - row.n_cached

    def _place(self, row: Row) -> None:
        """A row for which there is no memory goes back; when it is alone, it never fits."""
        if row.adapter is not None:
            self._bank.pin(row.adapter)
        try:
            self._lanes.add(row, row.limit)
        except torch.OutOfMemoryError:
            if row.adapter is not None:
                self._bank.unpin(row.adapter.key)
            if not self._running:
                self._fail([row], EngineFailed("The request does not fit in the memory here.", code="out_of_memory"))
                return
            with self._changed:
                self._waiting.push_front(row)
            raise
        self.prefixes.reuse(row)
        self._running.append(row)

    def _fits(self, row: Row) -> bool:
        adapter = row.adapter
        return self._lanes.has_room(row.limit) and (adapter is None or self._bank.has_place(adapter.key))

    def _chunks(self) -> list[tuple[Row, int]]:
        """How much each reading row reads now: the oldest at least half of the step's share, so that it ends; what is
        left goes to the shortest, which can then begin to answer."""
        reading = [row for row in self._running if row.reading]
        if not reading:
            return []
        left = self._chunk
        rest = sorted(reading[1:], key=lambda row: len(row.tokens) - row.n_cached)
        wanted = sum(len(row.tokens) - row.n_cached for row in rest)
        share = max(left // 2, left - wanted)
        chunks = []
        for row in [reading[0], *rest]:
            n = min(len(row.tokens) - row.n_cached, share if row is reading[0] else left)
            if n > 0:
                chunks.append((row, n))
                left -= n
        return chunks

    def _choose(self, rows: Sequence[Row], logits: torch.Tensor) -> Chosen:
        mask = None
        if any(row.matcher is not None for row in rows):  # on a GPU the forward pass still runs meanwhile
            matchers, drafts = [row.matcher for row in rows], [row.draft for row in rows]
            mask = self._masks.forbidden(matchers, drafts, logits.shape[1], logits.device)
        return choose(logits, [place for row in rows for place in row.places], mask)

    def _take(self, rows: Sequence[Row], chosen: Chosen) -> None:
        """No row leaves before all are done: leaving moves others, with as many keys as they are known to have."""
        at, is_sound = 0, all(chosen.sound)
        failed: list[tuple[Row, EngineFailed]] = []
        for row in rows:
            begin, at = at, at + 1 + len(row.draft)
            if row.canceled:
                continue
            if row.draft and not chosen.sound[begin]:
                self._ask_again(row)
                continue
            try:
                kept = row.take(chosen, begin)
                self.drafting.settle(row, kept)
            except EngineFailed as error:
                failed.append((row, error))
            if not is_sound and not all(chosen.sound[begin:at]):
                row.lane.wipe(row)  # where the answer did not go: its next steps read it under a mask
            self._tell_delta(row)
        for row, failure in failed:
            self._forget(row)
            self._fail([row], failure)
        for row in rows:
            if row.finish is not None and row.lane is not None:
                self._end(row)

    def _ask_again(self, row: Row) -> None:
        """In the next step without a draft, whose tokens may be what is not finite here."""
        row.n_cached -= 1
        row.lane.wipe(row)
        self.drafting.end([row])

    def _forget(self, row: Row) -> None:
        """What may not be finite must not stay where the next row comes: 0 times NaN is NaN under every mask."""
        row.n_cached = 0
        row.lane.wipe(row)

    def _end(self, row: Row) -> None:
        self._release(row)
        self.drafting.close(row)

    def _release(self, row: Row) -> None:
        self._running.remove(row)
        self._lanes.remove(row)
        row.draft = []
        if row.adapter is not None:
            self._bank.unpin(row.adapter.key)

    def _tell_delta(self, row: Row) -> None:
        delta = row.delta()
        if delta is not None:
            self._tell(row, delta)

    def _tell(self, row: Row, item: Delta | Exception) -> None:
        row.mailbox.put(item)
        self._told.add(row.mailbox)

    def _fail(self, rows: Sequence[Row], error: EngineFailed) -> None:
        for row in rows:
            self.counts["failed"] += 1
            self._tell(row, error)
            if row in self._running:
                self._end(row)

    def _halve(self) -> None:
        """Out of memory: half of the rows go back to the front of the queue, with what they have said, and come again
        when there is room. Once: what does not fit then does not fit."""
        rows = self._running[:]
        self.prefixes.clear()
        torch.cuda.empty_cache()
        if self._halved or len(rows) < 2:
            error = EngineFailed("The request did not fit in this engine's memory.", code="out_of_memory")
            self._fail(rows, error)
            return
        self._halved = True
        self.max_running = max(1, len(rows) // 2)
        self.counts["halvings"] += 1
        log.warning("out of memory: from now on %d requests at a time", self.max_running)
        for row in rows[self.max_running :]:
            self._release(row)
            row.n_cached, row.reading = 0, True
            with self._changed:
                self._waiting.push_front(row)

    def _retry_after(self) -> float:
        """A guess: as long as the waiting ones take at a token a row and step of 50 ms."""
        return float(min(60, max(1, len(self._waiting) * 2 // max(1, self.max_running))))
