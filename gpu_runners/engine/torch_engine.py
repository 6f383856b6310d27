"""Our own engine on transformers: continuous batching, many adapters in one forward pass, constraints, drafts that are
verified beside everybody else's tokens. It runs wherever torch does and needs no kernels of its own; on a GPU vLLM is
faster.

Not there: CUDA graphs, several devices.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from backend.domain.recipes.feedback import PackFeedback
from gpu_runners.engine.adapters import AdapterShelf
from gpu_runners.engine.lora_slots import LoraSlots
from gpu_runners.engine.mailbox import Mailbox
from gpu_runners.engine.model_drafts import open_drafts
from gpu_runners.engine.model_runner import ModelRunner
from gpu_runners.engine.scheduler import Scheduler
from gpu_runners.engine.sequences import TokenSequence, sampler_of
from gpu_runners.engine.text import Detokenizer, StopStrings
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.constraints import Constraints
from gpu_runners.models.protocol import Counts, Delta, DraftKind, GenerationRequest, Rejected
from gpu_runners.speculation.batch import BatchDrafter

_CPU_KV_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    max_running: int
    max_waiting: int
    n_slots: int
    kv_tokens: int
    chunk: int


class TorchEngine:
    """Starts its thread at once. `device` and `dtype` "auto": CUDA in bfloat16, else the CPU in float32. `kv_tokens` is
    the room for keys of all running requests, 0: 2 GiB on a CPU, half of what is free on a GPU. `chunk` is how many
    prompt tokens a step reads (0: 128 on a CPU, 1024 on a GPU). `merged`: the PEFT folder of the one adapter that this
    engine serves, added to its weights; then it takes no other."""

    def __init__(
        self,
        base: CausalBase,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_running: int = 32,
        max_waiting: int = 256,
        n_slots: int = 0,
        keep_adapters: int = 128,
        kv_tokens: int = 0,
        chunk: int = 0,
        merged: Path | None = None,
        draft_base: CausalBase | None = None,
        drafts: BatchDrafter | None = None,
    ) -> None:
        """`n_slots` 0: as many as `max_running`, so that no request waits for an adapter's place. `draft_base` drafts
        for requests that want a model's drafts. `drafts` draft in place of those that the engine opens. Raises
        JobFailed(unsupported_base), Rejected(bad_adapter)."""
        where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        kind = (torch.bfloat16 if where.type == "cuda" else torch.float32) if dtype == "auto" else getattr(torch, dtype)
        self.base, self._merged = base, merged is not None
        self._runner = ModelRunner(base, device=where, dtype=kind, merged=merged)
        sizes = _Sizes(
            max_running=max_running,
            max_waiting=max_waiting,
            n_slots=n_slots or max_running,
            kv_tokens=kv_tokens or self._kv_tokens(max_running),
            chunk=chunk or (1024 if where.type == "cuda" else 128),
        )
        self.context = min(base.context, sizes.kv_tokens)
        self._sizes = sizes
        self._constraints: Constraints | None = None
        self._shelf = AdapterShelf(self._runner.model, self._runner.shapes, keep=keep_adapters)
        self._lora = LoraSlots(self._runner.model, n_slots=sizes.n_slots)
        pools = self._runner.pools(budget=sizes.kv_tokens, longest=self.context, max_sequences=max_running)
        self._scheduler = Scheduler(
            self._runner, pools, self._lora, max_running=max_running, max_waiting=max_waiting, chunk=sizes.chunk
        )
        self._draft_base, self._opening = draft_base, threading.Lock()
        self._scheduler.drafting.drafts = drafts or (None if draft_base is None else self._open_drafts())
        self._received: Counter[str] = Counter()
        self._lock = threading.Lock()  # of what readers in several event loops received
        self._scheduler.start()

    def _kv_tokens(self, max_running: int) -> int:
        most = max_running * self.base.context
        if self._runner.device.type == "cuda":
            room = torch.cuda.mem_get_info(self._runner.device)[0] // 2
        else:
            room = _CPU_KV_BYTES
        return max(1, min(most, room // self._runner.kv_bytes_per_token))

    @property
    def about(self) -> Mapping[str, Any]:
        return {
            "name": "kolm-torch",
            "torch": torch.__version__,
            "transformers": version("transformers"),
            "device": str(self._runner.device),
            "dtype": str(self._runner.dtype).removeprefix("torch."),
            "attention": "sdpa by KV slot pools",
            "kv_dtype": str(self._runner.dtype).removeprefix("torch."),
            "kv_tokens": self._sizes.kv_tokens,
            "context": self.context,
            "prefix_cache": "shared beginnings of a tenant's prompts",
            "drafts": self._draft_sources(),
            "prefill_chunk": self._sizes.chunk,
            "adapters": "merged" if self._merged else "slots",
            "adapter_slots": 0 if self._merged else self._sizes.n_slots,
            "max_running": self._scheduler.max_running,
            "max_waiting": self._sizes.max_waiting,
            "out_of_memory_halvings": self._scheduler.counts["halvings"],
        }

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Delta]:
        """Log-probs are those of the distribution under constraint and penalties, before temperature."""
        sequence = await self._sequence(request)
        finished = False
        counted = Counter[str]()
        try:
            self._scheduler.enter(sequence)
            while not finished:
                delta = await sequence.mailbox.get()
                finished = delta.finish_reason is not None
                now = _count(delta.counts)
                with self._lock:
                    self._received.update(now - counted)
                counted = now
                yield delta
        except (asyncio.CancelledError, GeneratorExit):
            with self._lock:
                self._received["canceled"] += not finished
            raise
        finally:
            if not finished:
                self._scheduler.leave(sequence)

    def counters(self) -> Mapping[str, int]:
        """Tokens count when their reader gets them: those of a canceled request that nobody received do not. `steps`
        are forward passes; drafted_tokens_pack, accepted_tokens_schema ... are by source."""
        counts, received = self._scheduler.counts, self._received
        return {
            "prompt_tokens": received["prompt_tokens"],
            "cached_tokens": received["cached_tokens"],
            "completion_tokens": received["completion_tokens"],
            "drafted_tokens": received["drafted_tokens"],
            "accepted_tokens": received["accepted_tokens"],
            "requests": counts["requests"],
            "canceled": received["canceled"],
            "failed": counts["failed"],
            "running": self._scheduler.n_running,
            "waiting": self._scheduler.n_waiting,
            "adapter_loads": self._lora.loads,
            "adapter_evictions": self._lora.evictions,
            "out_of_memory_halvings": counts["halvings"],
            "steps": counts["steps"],
            **{name: received[name] for kind in DraftKind for name in _names(kind)},
        }

    def pack_feedback(self) -> list[tuple[str, PackFeedback]]:
        """(tenant, what its packs' recipes did) since the last call."""
        drafts = self._scheduler.drafting.drafts
        return [] if drafts is None else drafts.feedback()

    async def forget(self, key: str) -> None:
        self._shelf.forget(key)
        if not self._scheduler.is_alive():
            return
        done = asyncio.get_running_loop().create_future()

        def drop() -> None:
            self._lora.forget(key)
            self._scheduler.prefixes.forget(key)
            done.get_loop().call_soon_threadsafe(done.set_result, None)

        self._scheduler.call(drop)
        await done

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Compute with one thread while this lasts, for who measures what an answer costs."""
        threads = self._set_threads(1)
        try:
            yield
        finally:
            self._set_threads(threads)

    def _set_threads(self, n: int) -> int:
        """Set the number of threads, which belongs to the engine's thread; return what it was."""
        earlier: Future[int] = Future()

        def change() -> None:
            earlier.set_result(torch.get_num_threads())
            torch.set_num_threads(n)

        self._scheduler.call(change)
        return earlier.result()

    async def close(self) -> None:
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """`close` for who has no event loop."""
        self._scheduler.close()
        self._scheduler.join()

    async def _sequence(self, request: GenerationRequest) -> TokenSequence:
        """Raises Rejected, Overloaded."""
        if not request.prompt:
            raise Rejected("The prompt has no tokens.", code="unsupported")
        if not all(0 <= token < self.base.vocab_size for token in request.prompt):
            raise Rejected("The prompt has a token id that the base does not know.", code="unsupported")
        if len(request.prompt) >= self.context:
            raise Rejected(
                f"The prompt has {len(request.prompt)} tokens and at least one must follow; the context has "
                f"{self.context}. Shorten the prompt.",
                code="context_too_long",
            )
        if request.max_new_tokens < 1:
            raise Rejected("max_new_tokens is at least 1.", code="unsupported")
        if self._merged and request.adapter is not None:
            raise Rejected("This engine serves the one adapter that is merged into its base.", code="bad_adapter")
        self._scheduler.check_room()
        adapter = matcher = None
        if request.adapter is not None:
            adapter = await asyncio.to_thread(self._shelf.get, request.adapter)
        if request.constraint is not None:
            matcher = await asyncio.to_thread(self._matcher, request.constraint)
        sequence = TokenSequence(
            request=request,
            adapter=adapter,
            matcher=matcher,
            sampler=sampler_of(request),
            words=Detokenizer(self.base.tokenizer),
            stops=StopStrings(request.stop),
            eos_ids=frozenset(self.base.eos_ids),
            limit=min(len(request.prompt) + request.max_new_tokens, self.context),
            mailbox=Mailbox(),
            tokens=list(request.prompt),
        )
        if request.drafting is not None and request.drafting.kinds:
            drafts = self._scheduler.drafting.drafts
            if drafts is not None and drafts.opens_at_once(request):
                drafts.open(sequence)
            else:
                await asyncio.to_thread(self._open_drafter, sequence)
        return sequence

    def _open_drafter(self, sequence: TokenSequence) -> None:
        """Raises Rejected(bad_pack)."""
        with self._opening:
            if self._scheduler.drafting.drafts is None:
                self._scheduler.drafting.drafts = self._open_drafts()
        self._scheduler.drafting.drafts.open(sequence)

    def _open_drafts(self) -> BatchDrafter:
        return open_drafts(
            self.base,
            draft_base=self._draft_base,
            device=str(self._runner.device),
            dtype=str(self._runner.dtype).removeprefix("torch."),
            max_running=self._sizes.max_running,
            clock=self._runner.clock,
        )

    def _draft_sources(self) -> str:
        own = [kind.value for kind in DraftKind if kind is not DraftKind.MODEL]
        model = [] if self._draft_base is None else [f"model {self._draft_base.name}"]
        return ", ".join([*own, *model])

    def _matcher(self, constraint: Any) -> Any:
        if self._constraints is None:
            base = self.base
            self._constraints = Constraints(base.tokenizer, vocab_size=base.vocab_size, eos_ids=base.eos_ids)
        return self._constraints.matcher(constraint)


def _count(counts: Counts) -> Counter[str]:
    counted = Counter(
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        completion_tokens=counts.completion_tokens,
        drafted_tokens=counts.drafted_tokens,
        accepted_tokens=counts.accepted_tokens,
    )
    for source in counts.by_source:
        drafted, accepted = _names(source.kind)
        counted[drafted], counted[accepted] = source.drafted, source.accepted
    return counted


def _names(kind: DraftKind) -> tuple[str, str]:
    return f"drafted_tokens_{kind.value}", f"accepted_tokens_{kind.value}"
