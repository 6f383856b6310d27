"""The base as the engine runs it: its weights on a device under our attention, and one forward pass over ragged
sequences."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_runners.engine.adapters import deltas
from gpu_runners.engine.attention import NAME, DecodeBatch, PrefillChunk, Step, register
from gpu_runners.engine.kv import KVSlotPool, KVSlotPools
from gpu_runners.engine.lora_slots import LoraSlots, linear_shapes, merge
from gpu_runners.engine.segments import segments
from gpu_runners.engine.sequences import TokenSequence
from gpu_runners.models.base_store.files import read_json
from gpu_runners.models.base_store.refusals import MOVING_ROPES, not_run, unsupported_base
from gpu_runners.models.causal_base import CausalBase, load_weights

# Of a step on a CPU: the thread's own time, which other work on the machine is no part of.
_CLOCKS = {"cpu": time.thread_time}
_PROBE = 12


class ModelRunner:
    """The forward passes of a base; not thread-safe."""

    def __init__(self, base: CausalBase, *, device: torch.device, dtype: torch.dtype, merged: Path | None) -> None:
        """Raises JobFailed(unsupported_base), Rejected(bad_adapter)."""
        if why := not_run(read_json(base.folder, "config.json")):
            raise unsupported_base(base.name, why)
        self.base, self.device, self.dtype = base, device, dtype
        self.clock = _CLOCKS.get(device.type, time.perf_counter)
        self.model: Any = load_weights(base, dtype=str(dtype).removeprefix("torch.")).to(device)
        config = self.model.config
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        if not getattr(self.model, "_supports_attention_backend", False) or rope in MOVING_ROPES:
            raise unsupported_base(base.name, f"{type(self.model).__name__} with {rope} positions")
        self.shapes = linear_shapes(self.model)
        if merged is not None:
            merge(self.model, deltas(merged, self.model, self.shapes))
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._kv = {
            "n_layers": config.num_hidden_layers,
            "n_heads": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
            "width": width,
        }
        self._check()

    @property
    def kv_bytes_per_token(self) -> int:
        n: int = 2 * self._kv["n_layers"] * self._kv["n_heads"] * self._kv["width"] * self.dtype.itemsize
        return n

    def pools(self, *, budget: int, longest: int, max_sequences: int) -> KVSlotPools:
        return KVSlotPools(
            budget=budget,
            longest=longest,
            max_sequences=max_sequences,
            dtype=self.dtype,
            device=self.device,
            **self._kv,
        )

    def forward(
        self, pools: KVSlotPools, chunks: Sequence[tuple[TokenSequence, int]], lora: LoraSlots | None
    ) -> tuple[list[TokenSequence], torch.Tensor]:
        """Run one step: all decoding sequences with their drafts, and `chunks` (sequence, tokens of its prompt to
        read).

        Returns (sequences, (n, V) logits): the decoding sequences by pool, each with a row of logits for its last token
        and one for each drafted token; then those whose prompt is now read to its end, a row of logits each. Of
        decoding sequences only the last token counts as cached: whether drafted ones stay is decided after sampling."""
        decoding, ids, positions, step = self._plan(pools, chunks)
        wanted = list(range(step.reading[0].begin if chunks else len(ids)))
        if lora is not None:
            keys = [
                (sequence.adapter.key if sequence.adapter else None, 1 + len(sequence.draft)) for sequence in decoding
            ]
            lora.use(
                keys, [(sequence.adapter.key if sequence.adapter else None, n) for sequence, n in chunks], self.device
            )
        whole = decoding[:]
        for (sequence, n), part in zip(chunks, step.reading, strict=True):
            if sequence.n_cached + n == len(sequence.tokens):
                whole.append(sequence)
                wanted.append(part.begin + part.n - 1)
        # (V,) a wanted token: the output layer costs as much as some blocks, so prompt tokens in between do without it
        logits = self._logits(ids, positions, step, wanted)
        for sequence in decoding:
            sequence.n_cached += 1
        for sequence, n in chunks:
            sequence.n_cached += n
        return whole, logits

    def _plan(
        self, pools: KVSlotPools, chunks: Sequence[tuple[TokenSequence, int]]
    ) -> tuple[list[TokenSequence], list[int], list[int], Step]:
        """(decoding sequences, T token ids, T positions, what attention has to know of them).

        All new tokens of a step lie end to end, without padding: `input_ids` is (1, T). Projections, norms and MLP do
        not care whose a token is; only attention and LoRA have to, and get `begin` and `n` of each part.

            pool of 64:   a0 b0 b1 b2    a has one new token, b one and two drafted: verified beside each other
            pool of 256:  c0
            chunks:       d0 .. d63      a prompt, or the next part of one
        """
        sequences: list[TokenSequence] = []
        ids: list[int] = []
        positions: list[int] = []
        decoding, reading = [], []
        for pool in pools.by_capacity.values():
            if pool.n_decoding:
                decoding.append(self._decoding(pool, ids, positions))
                sequences += pool.sequences[: pool.n_decoding]
        for sequence, n in chunks:
            start = sequence.n_cached
            reading.append(PrefillChunk(pool=sequence.pool, slot=sequence.slot, begin=len(ids), n=n, start=start))
            ids += sequence.tokens[start : start + n]
            positions += range(start, start + n)
        return sequences, ids, positions, Step(decoding=decoding, reading=reading)

    def _decoding(self, pool: KVSlotPool, ids: list[int], positions: list[int]) -> DecodeBatch:
        """Add to `ids` and `positions` the tokens of a pool's decoding sequences."""
        begin, sequences = len(ids), pool.sequences[: pool.n_decoding]
        starts = [sequence.n_cached for sequence in sequences]
        counts = [1 + len(sequence.draft) for sequence in sequences]
        for sequence, start, n in zip(sequences, starts, counts, strict=True):
            ids.append(sequence.tokens[-1])
            if n > 1:
                ids += sequence.draft
            positions += range(start, start + n)
        # (n,) the slot of each token: keys are written at [slot, :, position], so drafted tokens repeat their slot
        places = torch.arange(len(sequences), device=self.device)
        if len(ids) - begin > len(sequences):
            places = places.repeat_interleave(torch.tensor(counts, device=self.device))
        at = torch.tensor(positions[begin:], device=self.device)
        return DecodeBatch(
            pool=pool,
            begin=begin,
            n=len(at),
            places=places,
            positions=at,
            segments=segments(starts, counts, at, begin=begin),
        )

    def _logits(self, ids: Sequence[int], positions: Sequence[int], step: Step, wanted: Sequence[int]) -> torch.Tensor:
        out = self.model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=torch.tensor([positions], device=self.device),
            logits_to_keep=torch.tensor(wanted, device=self.device, dtype=torch.long),
            use_cache=False,
            step=step,
        )
        logits: torch.Tensor = out.logits[0]
        return logits

    @torch.inference_mode()
    def _check(self) -> None:
        """Once: a dozen tokens in four steps under our attention, one of them drafted, against the model's own. An
        architecture that does more in its attention than we know is refused here, not answered wrongly."""
        ids = [(7919 * i + 13) % self.base.vocab_size for i in range(_PROBE)]
        own = self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0, -1].float()
        register()
        self.model.set_attn_implementation(NAME)
        pools = self.pools(budget=64, longest=64, max_sequences=1)
        sequence = _Probe(ids[: _PROBE - 3])
        pools.add(sequence, 64)
        try:
            for n in (7, _PROBE - 10):
                self.forward(pools, [(sequence, n)], None)  # type: ignore[list-item]
            sequence.pool.start_decoding(sequence)
            for token, sequence.draft in ((ids[-3], []), (ids[-2], ids[-1:])):
                sequence.tokens.append(token)
                _, ours = self.forward(pools, [], None)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise unsupported_base(
                self.base.name, f"its attention is not like others' ({type(error).__name__})"
            ) from error
        allowed = (1e-3 if self.dtype is torch.float32 else 5e-2) * float(own.abs().max())
        if float((ours[-1].float() - own).abs().max()) > allowed:
            raise unsupported_base(self.base.name, "its attention does more than ours")


class _Probe:
    """The part of a sequence that `forward` and a KV slot need."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.pool: Any = None
        self.slot = -1
        self.n_cached = 0
        self.adapter = None
        self.draft: list[int] = []
