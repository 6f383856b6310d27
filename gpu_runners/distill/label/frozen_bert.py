"""A frozen BERT or RoBERTa in torch, its weights held once in the training precision, and its layers as functions that
take LoRA matrices beside them.

The forward pass is `NumpyBert`'s. Matrices are multiplied in the training precision; sums along the residual stream,
layer norms and, on a CPU, attention are float32 (torch's bf16 attention on CPUs takes six times as long).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import pad
from gpu_runners.models.numpy_bert import NumpyBert

SITES: Mapping[str, tuple[str, ...]] = {  # the layers that read one input, and are multiplied as one matrix
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attended": ("attention.output.dense",),
    "inner": ("intermediate.dense",),
    "outer": ("output.dense",),
}
ROWS_OF_BF16 = 16  # on CPUs: oneDNN compiles its bf16 kernels anew for every number of rows, up to a third of a step
HIDDEN = -1e9  # added to the scores of padding; not infinite, or a text without a token would have no number at all
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """LoRA of one site: `a` (parts * r, in), `b` (out, r); part p of the output reads part p of `a`."""

    a: Tensor
    b: Tensor
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts of several lengths. `states` (n, d) float32 are those of their tokens alone, one text after another, and of
    so much padding as makes n round: no layer but attention meets the rest. `mask` (b, t) is 1 where a text has a
    token, `places` (n,) the states' numbers among those b * t, None where nothing is padded; `bias` is added to
    attention scores, None likewise."""

    states: Tensor
    mask: Tensor
    places: Tensor | None
    bias: Tensor | None

    def pad(self, flat: Tensor) -> Tensor:
        """(b, t, ...) of (n, ...), with zeros for padding."""
        b, t = self.mask.shape
        if self.places is not None:
            flat = flat.new_zeros((b * t, flat.shape[1])).index_copy_(0, self.places, flat)
        return flat.view(b, t, -1)

    def flat(self, padded: Tensor) -> Tensor:
        """(n, d) of (b, t, d)."""
        rows = padded.reshape(-1, padded.shape[-1])
        return rows if self.places is None else rows.index_select(0, self.places)


class FrozenBert:
    """The base's tensors on `device`. `dropout` is with what its layers were trained."""

    def __init__(self, bert: NumpyBert, *, device: torch.device, dtype: torch.dtype) -> None:
        self._bert, self.device, self.dtype, self.dropout = bert, device, dtype, bert.dropout
        self.n_layers, self.width, self.n_heads = bert.n_layers, bert.width, bert.n_heads
        self._round_to = ROWS_OF_BF16 if device.type == "cpu" and dtype is torch.bfloat16 else 1
        self._tensors: dict[str, Tensor] = {}
        for name in ("word_embeddings.weight", "position_embeddings.weight", "LayerNorm.weight", "LayerNorm.bias"):
            self._tensors[name] = self._tensor(f"embeddings.{name}")
        self._tensors["type"] = self._tensor("embeddings.token_type_embeddings.weight")[0]
        for at in (f"encoder.layer.{n}." for n in range(self.n_layers)):
            for norm in _NORMS:
                for side in ("weight", "bias"):
                    self._tensors[f"{at}{norm}.{side}"] = self._tensor(f"{at}{norm}.{side}")
            for site, paths in SITES.items():
                for side in ("weight", "bias"):
                    parts = [self._tensor(f"{at}{path}.{side}") for path in paths]
                    joined = torch.cat(parts) if len(parts) > 1 else parts[0]
                    self._tensors[f"{at}{site}.{side}"] = joined.to(dtype)

    @classmethod
    def load(cls, base: Base, *, device: torch.device, dtype: torch.dtype) -> "FrozenBert":
        """Read a base that `numpy_bert.can_run`."""
        return cls(NumpyBert.load(base), device=device, dtype=dtype)

    def _tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self._bert.weights[name]).to(self.device)

    def shape(self, layer: int, site: str) -> tuple[int, int]:
        """(out, in) of one part of a site."""
        out, into = self._tensors[f"encoder.layer.{layer}.{site}.weight"].shape
        return out // len(SITES[site]), into

    def start(self, rows: Sequence[Sequence[int]], added: Tensor | None = None) -> Batch:
        """The embeddings of token-id rows. `added`, (n, d) of their tokens, one row after another, is added to those of
        the words."""
        numbers, present = pad(rows, pad_id=self._bert.pad_id)
        real = present.astype(bool)
        ids = torch.from_numpy(numbers[real]).to(self.device)
        positions = torch.from_numpy(self._bert.positions(numbers)[real]).to(self.device)
        w = self._tensors
        x = w["word_embeddings.weight"][ids] + w["type"] + w["position_embeddings.weight"][positions]
        x = x if added is None else x + added
        x = nn.functional.layer_norm(x, (self.width,), w["LayerNorm.weight"], w["LayerNorm.bias"], self._bert.eps)
        return self.batch(x, [len(row) for row in rows])

    def batch(self, states: Tensor, lengths: Sequence[int]) -> Batch:
        return batch_of(states, lengths, round_to=self._round_to)

    def layer(self, n: int, x: Tensor, batch: Batch, lora: Mapping[str, Lora], *, dropout: float = 0.0) -> Tensor:
        """The states after layer `n`, (n, d) float32, of the states before it. `dropout` is of what the layer adds to
        them, twice, as in BERT."""
        at, dropped = f"encoder.layer.{n}.", partial(dropped_out, rate=dropout)
        attended = self._attention(self._linear(at, "qkv", x, lora), batch)
        x = self._norm(at + _NORMS[0], x + dropped(self._linear(at, "attended", attended, lora)))
        inner = nn.functional.gelu(self._linear(at, "inner", x, lora))
        return self._norm(at + _NORMS[1], x + dropped(self._linear(at, "outer", inner, lora)))

    def _linear(self, at: str, site: str, flat: Tensor, lora: Mapping[str, Lora]) -> Tensor:
        weight, bias = self._tensors[f"{at}{site}.weight"], self._tensors[f"{at}{site}.bias"]
        flat, added = flat.to(self.dtype), lora.get(site)
        if added is None:
            return torch.addmm(bias, flat, weight.T)
        a, b = added.a.to(self.dtype), added.b.to(self.dtype)
        return adapt(flat, a, b, weight, bias, added.scale)

    def _attention(self, qkv: Tensor, batch: Batch) -> Tensor:
        b, t = batch.mask.shape
        grid = batch.pad(qkv.float() if self.device.type == "cpu" else qkv)
        q, k, v = grid.view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        bias = None if batch.bias is None else batch.bias.to(grid.dtype)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return batch.flat(mixed.transpose(1, 2).reshape(b, t, self.width))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"]
        return nn.functional.layer_norm(x.float(), (self.width,), weight, bias, self._bert.eps)


def batch_of(states: Tensor, lengths: Sequence[int], *, round_to: int = 1) -> Batch:
    """`states` (n, d) of texts of these lengths, one after another, with padding up to a multiple of `round_to`."""
    device, n_more = states.device, -len(states) % round_to
    longest = max(1, *lengths, -(-(len(states) + n_more) // len(lengths)))  # so that there is padding enough
    mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).to(device)
    if bool(mask.all()):
        return Batch(states=states, mask=mask.long(), places=None, bias=None)
    bias = torch.zeros(mask.shape, device=device).masked_fill(~mask, HIDDEN)
    places = mask.flatten().nonzero().squeeze(1)
    if n_more:
        states = nn.functional.pad(states, (0, 0, 0, n_more))
        places = torch.cat([places, (~mask).flatten().nonzero().squeeze(1)[:n_more]])
    return Batch(
        states=states,
        mask=mask.long(),
        places=places,
        bias=bias[:, None, None, :].expand(-1, 1, longest, -1),
    )


def dropped_out(x: Tensor, *, rate: float) -> Tensor:
    """Dropout, on a CPU by 16 random bits an element: torch's own draws a double for each, and takes twice as long."""
    if not rate or x.device.type != "cpu":
        return nn.functional.dropout(x, p=rate, training=rate > 0)
    drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = drawn.view(torch.int16)[: x.numel()].view(x.shape)
    kept = bits >= round(rate * 2**16) - 2**15
    return x * kept.to(x.dtype).mul_(1 / (1 - rate))


def adapt(x: Tensor, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, scale: float) -> Tensor:
    """x W^T + bias + scale * (x A^T) B^T for (m, in) rows; `a` and `b` as in `Lora`."""
    return cast(Tensor, _Adapted.apply(x, a, b, weight, bias, scale))  # type: ignore[no-untyped-call]


class _Adapted(torch.autograd.Function):
    """`adapt` without a gradient for the frozen weight: what autograd would compute, in fewer passes over memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, scale: float) -> Tensor:
        low = a @ x.T
        y = torch.addmm(bias, x, weight.T)
        for part, rank in _parts(a, b):
            y[:, part].addmm_(low[rank].T, b[part].T, alpha=scale)
        ctx.save_for_backward(x, a, b, weight, low)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (dy,), (x, a, b, weight, low) = grads, ctx.saved_tensors
        up, db = torch.empty_like(low), torch.empty_like(b)
        for part, rank in _parts(a, b):
            torch.mm(b[part].T, dy[:, part].T, out=up[rank])
            db[part] = (low[rank] @ dy[:, part]).T
        dx = (dy @ weight).addmm_(up.T, a, alpha=ctx.scale) if ctx.needs_input_grad[0] else None
        return dx, (up @ x).mul_(ctx.scale), db.mul_(ctx.scale), None, None, None


def _parts(a: Tensor, b: Tensor) -> list[tuple[slice, slice]]:
    """(columns of the output, rows of `a`) of each part of a site."""
    rank = b.shape[1]
    n = a.shape[0] // rank
    out = b.shape[0] // n
    return [(slice(p * out, (p + 1) * out), slice(p * rank, (p + 1) * rank)) for p in range(n)]
