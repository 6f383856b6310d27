"""The runtimes that compute logits: numpy for plain BERT and RoBERTa bases (starts in no time), transformers for
every other encoder. `onnx.runtime` has a third, for plain bases and many texts.

A `Runtime` is a base in memory; `engine()` puts an adapter and a head on it. All engines give the same logits to 1e-4
(tested).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import pad
from gpu_runners.models.label_adapter import SCALE, Adapter, AdapterConfig, Head, deltas, lora_deltas, unfit
from gpu_runners.models.numpy_bert import NumpyBert, can_run
from gpu_runners.models.tensor_files import Array


class Engine(Protocol):
    name: str  # numpy, onnx, torch
    device: str

    def logits(self, rows: Sequence[Sequence[int]]) -> Array:
        """(n, n_labels) float32 for n rows of token ids, in one forward pass."""
        ...


class Body(Protocol):
    """An adapted base without a head."""

    name: str
    device: str
    width: int

    def states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> Array:
        """(n, t, d) float32 states of the last layer for n rows of token ids, padded on the right. `added`, (t, d) of
        each row, is added to the embeddings of its words."""
        ...


class Runtime(Protocol):
    def body(self, lora: Mapping[str, tuple[Array, Array]], *, rank: int, alpha: int) -> Body:
        """The base with these LoRA matrices merged in. Raises JobFailed(invalid_adapter)."""
        ...

    def engine(self, adapter: Adapter, config: AdapterConfig) -> Engine:
        """The adapted base under the adapter's head. Raises JobFailed(invalid_adapter)."""
        ...

    def embed(self, rows: Sequence[Sequence[int]], *, pooling: str) -> Array:
        """(n, d) float32 unit rows of the frozen base, for n rows of token ids, in one forward pass."""
        ...


def load_runtime(base: Base) -> Runtime:
    """The runtime that evaluates and exports, and that answers where ONNX Runtime does not."""
    return NumpyRuntime(base) if can_run(base) else TorchRuntime(base)


def head_logits(embedded: Array, head: Head) -> Array:
    """(n, n_labels) float32 logits of a head for (n, d) unit rows."""
    out: Array = np.float32(SCALE) * (embedded @ head.weight.T) + head.bias
    return out


def check_width(head: Head, width: int) -> None:
    """Raises JobFailed(invalid_adapter) for a head of another width than the base's."""
    if head.weight.shape[1] != width:
        raise unfit(f"its head is {head.weight.shape[1]} wide, the base {width}")


class NumpyRuntime:
    def __init__(self, base: Base) -> None:
        self._bert = NumpyBert.load(base)

    def engine(self, adapter: Adapter, config: AdapterConfig) -> Engine:
        return NumpyEngine(self._bert.with_deltas(deltas(adapter, config)), adapter.head, config.pooling)

    def body(self, lora: Mapping[str, tuple[Array, Array]], *, rank: int, alpha: int) -> Body:
        return NumpyBody(self._bert.with_deltas(lora_deltas(lora, rank=rank, alpha=alpha)))

    def embed(self, rows: Sequence[Sequence[int]], *, pooling: str) -> Array:
        return self._bert.embed(rows, Pooling(pooling))


class NumpyBody:
    """`bert` has the adapter in its weights."""

    name, device = "numpy", "cpu"

    def __init__(self, bert: NumpyBert) -> None:
        self.bert, self.width = bert, bert.width

    def states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> Array:
        return self.bert.states(rows, added)


class NumpyEngine:
    """`bert` has the adapter in its weights."""

    name, device = "numpy", "cpu"

    def __init__(self, bert: NumpyBert, head: Head, pooling: str) -> None:
        check_width(head, bert.width)
        self.bert, self._head, self._pooling = bert, head, Pooling(pooling)

    def logits(self, rows: Sequence[Sequence[int]]) -> Array:
        return head_logits(self.bert.embed(rows, self._pooling), self._head)


class TorchRuntime:
    def __init__(self, base: Base) -> None:
        from gpu_runners.models.encoder import best_device, load_body

        self._body = load_body(base).to(best_device())

    def engine(self, adapter: Adapter, config: AdapterConfig) -> Engine:
        from gpu_runners.models.merging import merged_body, net_with

        return TorchEngine(net_with(merged_body(self._body, adapter, config), adapter.head, config.pooling))

    def body(self, lora: Mapping[str, tuple[Array, Array]], *, rank: int, alpha: int) -> Body:
        from gpu_runners.models.merging import with_deltas

        return _TorchBody(with_deltas(self._body, lora_deltas(lora, rank=rank, alpha=alpha)))

    def embed(self, rows: Sequence[Sequence[int]], *, pooling: str) -> Array:
        import torch

        from gpu_runners.models.encoder import LabelNet, best_device, width_of

        net = LabelNet(self._body, width=width_of(self._body), n_labels=2, pooling=pooling)
        net = net.to(best_device()).eval()
        with torch.inference_mode():
            out: Array = net.embed(net.pad(rows)).cpu().numpy()
        return out


class _TorchBody:
    name = "torch"

    def __init__(self, body: Any) -> None:
        from gpu_runners.models.encoder import best_device, width_of

        self._body, self.width, self.device = body.to(best_device()).eval(), width_of(body), str(best_device())
        self._pad_id = int(getattr(body.config, "pad_token_id", 0) or 0)

    def states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> Array:
        import torch

        from gpu_runners.models.encoder import body_states

        ids, mask = (torch.from_numpy(one).to(self.device) for one in pad(rows, pad_id=self._pad_id))
        more = None if added is None else torch.from_numpy(np.concatenate(added)).to(self.device)
        with torch.inference_mode():
            out: Array = body_states(self._body, ids, mask, more).float().cpu().numpy()
        return out


class TorchEngine:
    """`net` has the adapter in its weights."""

    name = "torch"

    def __init__(self, net: Any) -> None:
        from gpu_runners.models.encoder import best_device

        self.net = net.to(best_device())
        self.device = str(best_device())

    def logits(self, rows: Sequence[Sequence[int]]) -> Array:
        import torch

        with torch.inference_mode():
            out: Array = self.net(self.net.pad(rows)).cpu().numpy()
        return out
