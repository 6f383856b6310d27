"""The nets that a fit trains: LoRA matrices and a head over a frozen body, by one of two engines.

`LeanEngine` computes BERT's and RoBERTa's family itself (`frozen_bert`), with neither transformers nor peft; every
other encoder goes through both (`peft_net`). The adapters are alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label.frozen_bert import SITES, Batch, FrozenBert, Lora
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import pool
from gpu_runners.models.label_adapter import SCALE, Adapter, Head
from gpu_runners.models.merging import to_numpy
from gpu_runners.models.numpy_bert import can_run
from gpu_runners.models.tensor_files import Array

Rows = Sequence[Sequence[int]]
MOST_CACHED = 1 << 30  # bytes of states below the layers that train; above it they are computed at every step


class Net(Protocol):
    """A body that trains on `rows`. `trained`: its parameters by name, in an order that follows from the base alone."""

    @property
    def device(self) -> torch.device: ...
    @property
    def trained(self) -> Mapping[str, nn.Parameter]: ...

    def logits(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        """(b, n_labels) float32 of the rows of these numbers."""
        ...

    def vectors(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        """(b, d) unit rows of the same, before the head."""
        ...

    def set_head(self, head: Head) -> None: ...
    def adapter(self, baseline: Head) -> Adapter: ...


class Engine(Protocol):
    """A frozen base in memory. `target_modules`: leaf names of the layers that get LoRA matrices; `takes_added`: its
    `lora` can add to the embeddings of the words."""

    @property
    def name(self) -> str: ...
    @property
    def takes_added(self) -> bool: ...
    @property
    def libraries(self) -> Sequence[str]: ...
    @property
    def n_layers(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def target_modules(self) -> Sequence[str]: ...

    def embed(self, rows: Rows) -> Array:
        """(n, d) float32 unit rows of the frozen base."""
        ...

    def net(self, rows: Rows, head: Head, options: TrainOptions) -> Net: ...
    def lora(self, *, rank: int, alpha: int) -> "LoraBody":
        """Return LoRA on all layers, for heads on their states; its random numbers are torch's."""
        ...


def load_engine(base: Base, *, device: torch.device, pooling: Pooling, precision: str) -> Engine:
    """Raises JobFailed as `encoder.load_body` does."""
    if can_run(base):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        return LeanEngine(FrozenBert.load(base, device=device, dtype=dtype), pooling=pooling)
    from gpu_runners.distill.label.peft_net import PeftEngine

    return PeftEngine.load(base, device=device, pooling=pooling, precision=precision)


class LeanEngine:
    name, takes_added = "lean", True
    libraries = ("torch",)
    target_modules = ("dense", "key", "query", "value")

    def __init__(self, body: FrozenBert, *, pooling: Pooling) -> None:
        self.body, self.pooling, self.n_layers, self.width = body, pooling, body.n_layers, body.width
        self._kept: tuple[Rows, int, list[Tensor]] | None = None

    def embed(self, rows: Rows) -> Array:
        """(n, d) float32 unit rows of the frozen base. What reaches the last layer is kept for nets that train it."""
        top = self.n_layers - 1
        below = self.states(rows, top)
        out = torch.empty((len(rows), self.body.width))
        with torch.no_grad():
            for chosen in by_length(rows):
                batch = self.batch(rows, chosen, top, below)
                out[torch.tensor(chosen)] = unit(through(self.body, batch, top, {}), batch, self.pooling).cpu()
        return out.numpy()

    def states(self, rows: Rows, first: int) -> list[Tensor] | None:
        """Return what reaches layer `first`, (tokens, d) of each row; None where it is the embeddings or would be too
        much. Those of the last call are kept."""
        if not first or 4 * self.body.width * sum(map(len, rows)) > MOST_CACHED:
            return None
        if self._kept is None or self._kept[0] is not rows or self._kept[1] != first:
            out: list[Tensor] = [torch.empty(0)] * len(rows)
            for chosen in by_length(rows):
                states = self.batch(rows, chosen, first, None).states
                lengths = [len(rows[i]) for i in chosen]
                for i, row in zip(chosen, torch.split(states[: sum(lengths)], lengths), strict=True):
                    out[i] = row.clone()
            self._kept = (rows, first, out)
        return self._kept[2]

    def batch(self, rows: Rows, chosen: Sequence[int], first: int, below: list[Tensor] | None) -> Batch:
        """The rows of these numbers before layer `first`, out of `states` where there are some."""
        if below is not None:
            parts = [below[i] for i in chosen]
            return self.body.batch(torch.cat(parts), [len(part) for part in parts])
        batch = self.body.start([rows[i] for i in chosen])
        with torch.no_grad():
            return replace(batch, states=through(self.body, batch, 0, {}, until=first))

    def net(self, rows: Rows, head: Head, options: TrainOptions) -> "LeanNet":
        return LeanNet(self, rows, head, options)

    def lora(self, *, rank: int, alpha: int) -> "LeanLora":
        return LeanLora(self.body, first=0, rank=rank, alpha=alpha)


class LoraBody(Protocol):
    """A frozen body with LoRA matrices. `trained`: its parameters by name."""

    @property
    def device(self) -> torch.device: ...
    @property
    def trained(self) -> Mapping[str, nn.Parameter]: ...

    def states(self, rows: Rows, *, dropout: float, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(b, t, d) float32 states of the last layer of some rows, padded on the right, and the (b, t) mask. `added`,
        (n, d) of their tokens, one row after another, is added to the embeddings of the words."""
        ...

    def pairs(self) -> dict[str, tuple[Array, Array]]:
        """The LoRA matrices (A, B) by the path of the module that they adapt."""
        ...


class LeanLora:
    """LoRA on the layers of a `FrozenBert` from `first` on."""

    def __init__(self, body: FrozenBert, *, first: int, rank: int, alpha: int) -> None:
        self.body, self.first, self.rank, self._scale = body, first, rank, alpha / rank
        self.device = body.device
        self.trained: dict[str, nn.Parameter] = {}
        for layer in range(first, body.n_layers):
            for site, paths in SITES.items():
                out, into = body.shape(layer, site)
                a = torch.empty((len(paths) * rank, into)).uniform_(-(into**-0.5), into**-0.5)
                self.add(f"{layer}.{site}.a", a)
                self.add(f"{layer}.{site}.b", torch.zeros((len(paths) * out, rank)))

    def add(self, name: str, value: Tensor) -> None:
        self.trained[name] = nn.Parameter(value.to(self.device))

    def matrices(self, *, dropout: float) -> dict[int, dict[str, Lora]]:
        """Dropout turns off inputs of each A for a whole step: an expectation as of dropout in each token, one random
        number for a column instead of one for each token's."""
        out: dict[int, dict[str, Lora]] = {}
        for layer in range(self.first, self.body.n_layers):
            for site in SITES:
                a, b = self.trained[f"{layer}.{site}.a"], self.trained[f"{layer}.{site}.b"]
                kept = a * ((torch.rand(a.shape[1]) >= dropout).to(a) / (1 - dropout)) if dropout else a
                out.setdefault(layer, {})[site] = Lora(a=kept, b=b, scale=self._scale)
        return out

    def states(self, rows: Rows, *, dropout: float, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(b, t, d) float32 states of the last layer, and the (b, t) mask; `dropout` is of what each layer adds."""
        batch = self.body.start(rows, added)
        states = through(self.body, batch, self.first, self.matrices(dropout=0.0), dropout=dropout)
        return batch.pad(states), batch.mask

    def pairs(self) -> dict[str, tuple[Array, Array]]:
        lora = {}
        for layer in range(self.first, self.body.n_layers):
            for site, paths in SITES.items():
                sides = [self.trained[f"{layer}.{site}.{side}"].chunk(len(paths)) for side in "ab"]
                for path, a, b in zip(paths, *sides, strict=True):
                    lora[f"encoder.layer.{layer}.{path}"] = (to_numpy(a), to_numpy(b))
        return lora


class LeanNet:
    """LoRA on the top layers of a `FrozenBert`; what lies below them is computed once a row."""

    def __init__(self, engine: LeanEngine, rows: Rows, head: Head, options: TrainOptions) -> None:
        self._engine, self._body, self._rows, self._options = engine, engine.body, rows, options
        self.device = engine.body.device
        self._first = first_layer(engine.n_layers, options.layers)
        self._below = engine.states(rows, self._first)
        torch.manual_seed(options.seed)
        self._lora = LeanLora(engine.body, first=self._first, rank=options.rank, alpha=options.alpha)
        self._lora.add("head.weight", torch.from_numpy(head.weight.copy()))
        self._lora.add("head.bias", torch.from_numpy(head.bias.copy()))
        self.trained = self._lora.trained

    def logits(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        embedded = self.vectors(chosen, dropout=dropout)
        return SCALE * (embedded @ self.trained["head.weight"].T) + self.trained["head.bias"]

    def vectors(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        batch = self._engine.batch(self._rows, chosen, self._first, self._below)
        lora = self._lora.matrices(dropout=self._options.dropout if dropout else 0.0)
        rate = self._body.dropout if dropout else 0.0
        states = through(self._body, batch, self._first, lora, dropout=rate)
        return unit(states, batch, self._engine.pooling)

    def set_head(self, head: Head) -> None:
        with torch.no_grad():
            self.trained["head.weight"].copy_(torch.from_numpy(head.weight))
            self.trained["head.bias"].copy_(torch.from_numpy(head.bias))

    def adapter(self, baseline: Head) -> Adapter:
        head = Head(weight=to_numpy(self.trained["head.weight"]), bias=to_numpy(self.trained["head.bias"]))
        return Adapter(lora=self._lora.pairs(), head=head, baseline=baseline)


def through(
    body: FrozenBert,
    batch: Batch,
    first: int,
    lora: Mapping[int, Mapping[str, Lora]],
    *,
    until: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The batch's states, (n, d), after layers `first` up to `until` (all that follow)."""
    x = batch.states
    for n in range(first, body.n_layers if until is None else until):
        x = body.layer(n, x, batch, lora.get(n, {}), dropout=dropout)
    return x


def unit(states: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """(b, d) unit rows of the last layer's states."""
    return nn.functional.normalize(pool(batch.pad(states), batch.mask, pooling), dim=-1)


def by_length(rows: Rows, *, size: int = 32) -> list[list[int]]:
    """Batches of row numbers, of rows sorted by length."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    return [order[start : start + size] for start in range(0, len(order), size)]


def first_layer(n_layers: int, wanted: int) -> int:
    """The first layer that trains where the top `wanted` do (0: all)."""
    return max(0, n_layers - wanted) if wanted else 0
