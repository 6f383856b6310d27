"""The base as the engine runs it: its weights on a device under our attention, and one forward over ragged rows."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_runners.engine.adapters import deltas
from gpu_runners.engine.attention import NAME, Decoding, Reading, Step, register
from gpu_runners.engine.kv import Lane, Lanes
from gpu_runners.engine.lora_slots import AdapterBank, linear_shapes, merge
from gpu_runners.engine.segments import segments
from gpu_runners.engine.sequences import Row
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, load_weights

# Of a step on a CPU: the thread's own time, which other work on the machine is no part of.
_CLOCKS = {"cpu": time.thread_time}
_MOVING_ROPES = ("dynamic", "longrope")  # their angles depend on the longest row of a batch
_PROBE = 12


class Net:
    """Not thread-safe."""

    def __init__(self, base: CausalBase, *, device: torch.device, dtype: torch.dtype, merged: Path | None) -> None:
        """Raises JobFailed(unsupported_base), Rejected(bad_adapter)."""
        self.base, self.device, self.dtype = base, device, dtype
        self.clock = _CLOCKS.get(device.type, time.perf_counter)
        self.model: Any = load_weights(base, dtype=str(dtype).removeprefix("torch.")).to(device)
        config = self.model.config
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        if not getattr(self.model, "_supports_attention_backend", False) or rope in _MOVING_ROPES:
            raise _unsupported(base, f"{type(self.model).__name__} with {rope} positions")
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

    def lanes(self, *, budget: int, longest: int, max_rows: int) -> Lanes:
        return Lanes(
            budget=budget, longest=longest, max_rows=max_rows, dtype=self.dtype, device=self.device, **self._kv
        )

    def forward(
        self, lanes: Lanes, chunks: Sequence[tuple[Row, int]], bank: AdapterBank | None
    ) -> tuple[list[Row], torch.Tensor]:
        """One step of all decoding rows with their drafts, and of `chunks` (row, tokens of its prompt to read). (rows,
        (n, V) logits): the decoding rows by lane, a row of logits for the last token and for each drafted one; then
        those of the chunks that are whole, a row of logits each. Only the last tokens count as cached."""
        decoding, ids, positions, step = self._plan(lanes, chunks)
        wanted = list(range(step.reading[0].begin if chunks else len(ids)))
        if bank is not None:
            keys = [(row.adapter.key if row.adapter else None, 1 + len(row.draft)) for row in decoding]
            bank.use(keys, [(row.adapter.key if row.adapter else None, n) for row, n in chunks], self.device)
        whole = decoding[:]
        for (row, n), part in zip(chunks, step.reading, strict=True):
            if row.n_cached + n == len(row.tokens):
                whole.append(row)
                wanted.append(part.begin + part.n - 1)
        logits = self._logits(ids, positions, step, wanted)
        for row in decoding:
            row.n_cached += 1
        for row, n in chunks:
            row.n_cached += n
        return whole, logits

    def _plan(self, lanes: Lanes, chunks: Sequence[tuple[Row, int]]) -> tuple[list[Row], list[int], list[int], Step]:
        rows: list[Row] = []
        ids: list[int] = []
        positions: list[int] = []
        decoding, reading = [], []
        for lane in lanes.by_capacity.values():
            if lane.n_decoding:
                decoding.append(self._decoding(lane, ids, positions))
                rows += lane.rows[: lane.n_decoding]
        for row, n in chunks:
            start = row.n_cached
            reading.append(Reading(lane=row.lane, slot=row.slot, begin=len(ids), n=n, start=start))
            ids += row.tokens[start : start + n]
            positions += range(start, start + n)
        return rows, ids, positions, Step(decoding=decoding, reading=reading)

    def _decoding(self, lane: Lane, ids: list[int], positions: list[int]) -> Decoding:
        """Adds to `ids` and `positions` what the lane's decoding rows go on with."""
        begin, rows = len(ids), lane.rows[: lane.n_decoding]
        starts = [row.n_cached for row in rows]
        counts = [1 + len(row.draft) for row in rows]
        for row, start, n in zip(rows, starts, counts, strict=True):
            ids.append(row.tokens[-1])
            if n > 1:
                ids += row.draft
            positions += range(start, start + n)
        places = torch.arange(len(rows), device=self.device)
        if len(ids) - begin > len(rows):
            places = places.repeat_interleave(torch.tensor(counts, device=self.device))
        at = torch.tensor(positions[begin:], device=self.device)
        return Decoding(
            lane=lane,
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
        lanes = self.lanes(budget=64, longest=64, max_rows=1)
        row = _Probe(ids[: _PROBE - 3])
        lanes.add(row, 64)
        try:
            for n in (7, _PROBE - 10):
                self.forward(lanes, [(row, n)], None)  # type: ignore[list-item]
            row.lane.start_decoding(row)
            for token, row.draft in ((ids[-3], []), (ids[-2], ids[-1:])):
                row.tokens.append(token)
                _, ours = self.forward(lanes, [], None)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise _unsupported(self.base, f"its attention is not like others' ({type(error).__name__})") from error
        allowed = (1e-3 if self.dtype is torch.float32 else 5e-2) * float(own.abs().max())
        if float((ours[-1].float() - own).abs().max()) > allowed:
            raise _unsupported(self.base, "its attention does more than ours")


class _Probe:
    """What `forward` and a lane need of a row."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.lane: Any = None
        self.slot = -1
        self.n_cached = 0
        self.adapter = None
        self.draft: list[int] = []


def _unsupported(base: CausalBase, why: str) -> JobFailed:
    return JobFailed(f"This engine cannot run the base {base.name!r}: {why}. vLLM may.", code="unsupported_base")
