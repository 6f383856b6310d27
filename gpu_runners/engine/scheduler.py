"""The engine's own thread: sequences join and leave at every step, one forward pass a step over all that run.

A step: drop who was canceled, admit who fits, ask for drafts, read a bounded number of prompt tokens beside the last
and the drafted tokens of every decoding sequence, sample at each of these, keep what a sequence would have said without
a draft, notify its reader. Long prompts are read in chunks, so they slow others down by a chunk a step.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from gpu_runners.engine.admission_queue import AdmissionQueue
from gpu_runners.engine.guarded_drafts import GuardedDrafts
from gpu_runners.engine.kv import KVSlotPools
from gpu_runners.engine.lora_slots import LoraSlots
from gpu_runners.engine.mailbox import Mailbox, wake
from gpu_runners.engine.model_runner import ModelRunner
from gpu_runners.engine.prefix_cache import PrefixCache
from gpu_runners.engine.sampling import Sampled, sample
from gpu_runners.engine.sequences import TokenSequence
from gpu_runners.models.constraints import Masks, n_vocab
from gpu_runners.models.protocol import Delta, EngineFailed, Overloaded

log = logging.getLogger("kolm.generation")


class Scheduler(threading.Thread):
    def __init__(
        self,
        runner: ModelRunner,
        pools: KVSlotPools,
        lora: LoraSlots,
        *,
        max_running: int,
        max_waiting: int,
        chunk: int,
    ) -> None:
        super().__init__(name="kolm-generation", daemon=True)
        self._runner, self._pools, self._lora = runner, pools, lora
        self.prefixes = PrefixCache(budget=pools.budget // 8)
        self._masks = Masks(n_vocab(runner.base.tokenizer, runner.base.vocab_size))
        self.max_running, self._max_waiting, self._chunk = max_running, max_waiting, chunk
        self.counts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._waiting = AdmissionQueue()
        self._running: list[TokenSequence] = []
        self._calls: list[Callable[[], None]] = []
        self._notified: set[Mailbox] = set()
        self._halved = False
        self._closing = False
        self.drafting = GuardedDrafts(vocab_size=runner.base.vocab_size)

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

    def enter(self, sequence: TokenSequence) -> None:
        """Raises Overloaded, EngineFailed(engine_stopped)."""
        with self._changed:
            if self._closing:
                raise EngineFailed("The engine is stopped.", code="engine_stopped")
            self.check_room()
            self._waiting.push(sequence)
            self.counts["requests"] += 1
            self._changed.notify()

    def leave(self, sequence: TokenSequence) -> None:
        """Free the place of a sequence whose reader has gone: it is free at the next step."""
        with self._changed:
            sequence.canceled = True
            self._waiting.drop(sequence)
            self._calls.append(lambda: self.drafting.close(sequence))
            self._changed.notify()

    def call(self, do: Callable[[], None]) -> None:
        """Call between two steps, in the engine's thread."""
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
                wake(self._notified)
                self._notified.clear()
            self._fail(self._running[:], EngineFailed("The engine is stopped.", code="engine_stopped"))
            with self._changed:
                while (sequence := self._waiting.pop(lambda _: True)) is not None:
                    self._notify(sequence, EngineFailed("The engine is stopped.", code="engine_stopped"))
            wake(self._notified)

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
        for sequence in [sequence for sequence in self._running if sequence.canceled]:
            self._forget(sequence)
            self._end(sequence)
        self._admit()
        if not self._running:
            return
        # decoding sequences, their drafts and the chunks share one forward pass, which reads the weights once for all
        n_drafted, chunks, began = self.drafting.ask(self._running), self._chunks(), self._runner.clock()
        whole, logits = self._runner.forward(self._pools, chunks, self._lora)
        self.counts["steps"] += 1
        for sequence in whole:
            if sequence.reading:
                sequence.reading = False
                self.prefixes.keep(sequence)
                sequence.pool.start_decoding(sequence)
        if whole:
            sampled = self._sample(whole, logits)
            if not chunks:
                self.drafting.note_step(len(whole), n_drafted, self._runner.clock() - began)
            self._take(whole, sampled)

    def _admit(self) -> None:
        unread = sum(len(sequence.tokens) - sequence.n_cached for sequence in self._running if sequence.reading)
        while len(self._running) < self.max_running and unread < self._chunk:
            with self._changed:
                sequence = self._waiting.pop(self._fits)
            if sequence is None:
                return
            self._place(sequence)
            unread += len(sequence.tokens) - sequence.n_cached

    def _place(self, sequence: TokenSequence) -> None:
        """Give a sequence its KV slot. One for which there is no memory goes back; when it is alone, it never fits."""
        if sequence.adapter is not None:
            self._lora.pin(sequence.adapter)
        try:
            self._pools.add(sequence, sequence.limit)
        except torch.OutOfMemoryError:
            if sequence.adapter is not None:
                self._lora.unpin(sequence.adapter.key)
            if not self._running:
                self._fail(
                    [sequence], EngineFailed("The request does not fit in the memory here.", code="out_of_memory")
                )
                return
            with self._changed:
                self._waiting.push_front(sequence)
            raise
        self.prefixes.reuse(sequence)
        self._running.append(sequence)

    def _fits(self, sequence: TokenSequence) -> bool:
        adapter = sequence.adapter
        return self._pools.has_room(sequence.limit) and (adapter is None or self._lora.has_place(adapter.key))

    def _chunks(self) -> list[tuple[TokenSequence, int]]:
        """Share out how much of its prompt each sequence in prefill reads now: the oldest at least half of the step's
        share, so that it ends; what is left goes to the shortest, which can then begin to answer."""
        reading = [sequence for sequence in self._running if sequence.reading]
        if not reading:
            return []
        # The step's budget of prompt tokens bounds how long those that decode wait for their next token. Shortest first
        # would give the best time to first token and starve a long prompt under load; oldest first would let it block
        # the short ones. So the oldest has half, or more where the others do not want theirs.
        left = self._chunk
        rest = sorted(reading[1:], key=lambda sequence: len(sequence.tokens) - sequence.n_cached)
        wanted = sum(len(sequence.tokens) - sequence.n_cached for sequence in rest)
        share = max(left // 2, left - wanted)
        chunks = []
        for sequence in [reading[0], *rest]:
            n = min(len(sequence.tokens) - sequence.n_cached, share if sequence is reading[0] else left)
            if n > 0:
                chunks.append((sequence, n))
                left -= n
        return chunks

    def _sample(self, sequences: Sequence[TokenSequence], logits: torch.Tensor) -> Sampled:
        mask = None
        # masks are made on the CPU while a GPU still runs the forward pass
        if any(sequence.matcher is not None for sequence in sequences):
            matchers, drafts = [sequence.matcher for sequence in sequences], [sequence.draft for sequence in sequences]
            mask = self._masks.forbidden(matchers, drafts, logits.shape[1], logits.device)
        return sample(logits, [place for sequence in sequences for place in sequence.places], mask)

    def _take(self, sequences: Sequence[TokenSequence], sampled: Sampled) -> None:
        """Append what was sampled. No sequence leaves before all are done: leaving moves others, with as many keys as
        they are known to have."""
        at, is_sound = 0, all(sampled.sound)
        failed: list[tuple[TokenSequence, EngineFailed]] = []
        for sequence in sequences:
            begin, at = at, at + 1 + len(sequence.draft)
            if sequence.canceled:
                continue
            if sequence.draft and not sampled.sound[begin]:
                self._ask_again(sequence)
                continue
            try:
                kept = sequence.append_accepted(sampled, begin)
                self.drafting.observe_accepted(sequence, kept)
            except EngineFailed as error:
                failed.append((sequence, error))
            if not is_sound and not all(sampled.sound[begin:at]):
                sequence.pool.wipe(sequence)  # where the answer did not go: its next steps read it under a mask
            self._notify_delta(sequence)
        for sequence, failure in failed:
            self._forget(sequence)
            self._fail([sequence], failure)
        for sequence in sequences:
            if sequence.finish is not None and sequence.pool is not None:
                self._end(sequence)

    def _ask_again(self, sequence: TokenSequence) -> None:
        """Ask in the next step without a draft, whose tokens may be what is not finite here."""
        sequence.n_cached -= 1
        sequence.pool.wipe(sequence)
        self.drafting.end([sequence])

    def _forget(self, sequence: TokenSequence) -> None:
        """Clear what may not be finite before the next sequence comes there: 0 times NaN is NaN under every mask."""
        sequence.n_cached = 0
        sequence.pool.wipe(sequence)

    def _end(self, sequence: TokenSequence) -> None:
        self._release(sequence)
        self.drafting.close(sequence)

    def _release(self, sequence: TokenSequence) -> None:
        self._running.remove(sequence)
        self._pools.remove(sequence)
        sequence.draft = []
        if sequence.adapter is not None:
            self._lora.unpin(sequence.adapter.key)

    def _notify_delta(self, sequence: TokenSequence) -> None:
        delta = sequence.delta()
        if delta is not None:
            self._notify(sequence, delta)

    def _notify(self, sequence: TokenSequence, item: Delta | Exception) -> None:
        sequence.mailbox.put(item)
        self._notified.add(sequence.mailbox)

    def _fail(self, sequences: Sequence[TokenSequence], error: EngineFailed) -> None:
        for sequence in sequences:
            self.counts["failed"] += 1
            self._notify(sequence, error)
            if sequence in self._running:
                self._end(sequence)

    def _halve(self) -> None:
        """Go on where memory ran out: half of the sequences go back to the front of the queue, with their answers so
        far, and come again when there is room. Once: what does not fit then does not fit."""
        sequences = self._running[:]
        self.prefixes.clear()
        torch.cuda.empty_cache()
        if self._halved or len(sequences) < 2:
            error = EngineFailed("The request did not fit in this engine's memory.", code="out_of_memory")
            self._fail(sequences, error)
            return
        self._halved = True
        self.max_running = max(1, len(sequences) // 2)
        self.counts["halvings"] += 1
        log.warning("out of memory: from now on %d requests at a time", self.max_running)
        for sequence in sequences[self.max_running :]:
            self._release(sequence)
            sequence.n_cached, sequence.reading = 0, True
            with self._changed:
                self._waiting.push_front(sequence)

    def _retry_after(self) -> float:
        """A guess: as long as the waiting ones take at a token a sequence and step of 50 ms."""
        return float(min(60, max(1, len(self._waiting) * 2 // max(1, self.max_running))))
