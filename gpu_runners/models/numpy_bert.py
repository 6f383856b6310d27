"""The forward pass of BERT and of RoBERTa's family in numpy: what lets `kolm run` answer half a second after it was
started.

Importing torch and transformers takes three seconds before the first answer; this needs neither, computes the same
numbers (a test compares them), and on one thread is as fast for single texts. Other architectures go through
transformers. RoBERTa, XLM-RoBERTa and CamemBERT are BERT with positions that count real tokens from the padding
token's id + 1 on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file
from scipy.special import erf

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.base_store.files import weight_files
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import pad, read_config
from gpu_runners.models.label_adapter import unfit
from gpu_runners.models.tensor_files import Array

_ROOT_HALF = np.float32(0.5**0.5)
_BLOCKS, _MOST_IN_BLOCKS = (96, 64, 48, 32, 16), 16  # rows, columns; measured on MiniLM
_UNPACKED = 700_000  # multiplications; OpenBLAS's own limit is a million


_ROBERTA = {"camembert", "roberta", "xlm-roberta"}
_SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers")


def can_run(base: Base) -> bool:
    """Say whether this base is a BERT or RoBERTa of the plain kind: absolute positions, exact GELU, weights that numpy
    reads, all of them there."""
    config = read_config(base)
    plain = config.get("position_embedding_type", "absolute") == "absolute" and config.get("hidden_act") == "gelu"
    if config.get("model_type") not in {"bert", *_ROBERTA} or not plain or config.get("is_decoder"):
        return False
    if any(type(config.get(key)) is not int or config[key] < 1 for key in _SIZES):
        return False  # transformers knows what is meant, or refuses it
    types = _tensor_types(base)
    return _tensor_names(config) <= types.keys() and set(types.values()) <= {"F32", "F16", "I64"}


def _tensor_types(base: Base) -> dict[str, str]:
    """The type of each tensor, by its name here; read from the heads of the files."""
    types: dict[str, str] = {}
    for file in weight_files(base.folder):
        with safe_open(base.folder / file, "np") as tensors:
            types |= {_name(name): tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    return types


def _name(stored: str) -> str:
    """A tensor's name without what the whole model calls its encoder, and as BERT's first weights did not yet."""
    bare = stored.removeprefix("bert.").removeprefix("roberta.")
    return bare.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _tensor_names(config: Mapping[str, Any]) -> set[str]:
    layers = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    layers += ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
    places = [f"encoder.layer.{n}.{layer}" for n in range(int(config["num_hidden_layers"])) for layer in layers]
    tables = {f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")}
    return tables | {f"{at}.{side}" for at in ["embeddings.LayerNorm", *places] for side in ("weight", "bias")}


class NumpyBert:
    """`weights` are the base's tensors by name, float32; LoRA is merged into a copy of them by the caller."""

    def __init__(self, weights: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        self.weights, self._config = weights, config
        self.n_layers, self.n_heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self.eps, self.pad_id = float(config.get("layer_norm_eps", 1e-12)), int(config.get("pad_token_id") or 0)
        self.dropout = float(config.get("hidden_dropout_prob") or 0.0)  # of training alone
        self.counts_positions = config.get("model_type") in _ROBERTA
        self.width = int(config["hidden_size"])
        self._columns: list[_Columns] = []  # made at the first text that comes alone

    @classmethod
    def load(cls, base: Base) -> "NumpyBert":
        tensors: dict[str, Array] = {}
        for file in weight_files(base.folder):
            tensors |= {_name(name): tensor for name, tensor in load_file(base.folder / file).items()}
        return cls({name: t.astype(np.float32, copy=False) for name, t in tensors.items()}, read_config(base))

    def with_deltas(self, added: Iterable[tuple[str, Array]]) -> "NumpyBert":
        """A copy with a matrix added to the weight of each named layer; untouched tensors are shared. Raises
        JobFailed(invalid_adapter)."""
        weights = dict(self.weights)
        for path, delta in added:
            name = f"{path}.weight"
            if name not in weights or weights[name].shape != delta.shape:
                raise unfit(f"the LoRA pair of {path!r} does not fit the base")
            weights[name] = weights[name] + delta
        return NumpyBert(weights, self._config)

    def embed(self, rows: Sequence[Sequence[int]], pooling: Pooling) -> Array:
        """(n, d) float32 unit rows of token-id rows: the last layer's states of the real tokens, pooled."""
        ids, present = pad(rows, pad_id=self.pad_id)
        mask = present.astype(np.float32)
        return unit_rows(self._hidden_states(ids, mask), mask, pooling)

    def states(self, rows: Sequence[Sequence[int]], added: Sequence[Array] | None = None) -> Array:
        """(n, t, d) float32 states of the last layer, padded on the right. `added`, (t, d) of each row, is added to the
        embeddings of its words."""
        ids, present = pad(rows, pad_id=self.pad_id)
        return self._hidden_states(ids, present.astype(np.float32), added)

    def _hidden_states(self, ids: NDArray[np.int64], mask: Array, added: Sequence[Array] | None = None) -> Array:
        if len(ids) == 1:
            return self._column_states(ids, added)
        x, bias = self.embeddings(ids, added), mask_bias(mask)
        for layer in range(self.n_layers):
            at = f"encoder.layer.{layer}."
            x = self._norm(
                x + self._linear(self._attention(x, bias, at), at + "attention.output.dense"),
                at + "attention.output.LayerNorm",
            )
            inner = _gelu(self._linear(x, at + "intermediate.dense"))
            x = self._norm(x + self._linear(inner, at + "output.dense"), at + "output.LayerNorm")
        return x

    def _column_states(self, ids: NDArray[np.int64], added: Sequence[Array] | None) -> Array:
        """(1, t, d) of one text, computed with its tokens as columns: a fifth faster for so few tokens, whose time is
        that of reading the weights."""
        x, w = self.embeddings(ids, added), self.weights
        self._columns = self._columns or [_Columns.of_layer(w, n, n_heads=self.n_heads) for n in range(self.n_layers)]
        columns = np.ascontiguousarray(x[0].T)
        for layer in self._columns:
            columns = layer(columns, self.eps)
        out: Array = columns.T[None]
        return out

    def embeddings(self, ids: NDArray[np.int64], added: Sequence[Array] | None = None) -> Array:
        """(n, t, d) of token ids: what goes into the first layer. `added`: as `states` takes it."""
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = x + w["embeddings.position_embeddings.weight"][self.positions(ids)]
        for row, own in enumerate(added or ()):
            x[row, : len(own)] += own
        return self._norm(x, "embeddings.LayerNorm")

    def without_layers(self) -> "NumpyBert":
        """A copy that computes `embeddings` alone; its tables are shared."""
        kept = {name: tensor for name, tensor in self.weights.items() if name.startswith("embeddings.")}
        return NumpyBert(kept, self._config)

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, t). RoBERTa's family counts the tokens that are not padding, wherever they stand."""
        if not self.counts_positions:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = (ids != self.pad_id).astype(np.int64)
        counted: NDArray[np.int64] = np.cumsum(real, axis=1) * real + self.pad_id
        return counted

    def _attention(self, x: Array, bias: Array, at: str) -> Array:
        n, length, width = x.shape
        q, k, v = (
            self._linear(x, f"{at}attention.self.{name}").reshape(n, length, self.n_heads, -1).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32((width // self.n_heads) ** 0.5) + bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed: Array = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(n, length, width)

    def _linear(self, x: Array, name: str) -> Array:
        flat = x.reshape(-1, x.shape[-1]) @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        normed: Array = (
            centred / np.sqrt(variance + np.float32(self.eps)) * self.weights[f"{name}.weight"]
            + self.weights[f"{name}.bias"]
        )
        return normed


def mask_bias(mask: Array) -> Array:
    """(n, 1, 1, t) of the (n, t) mask: what is added to the attention's scores."""
    bias: Array = (1.0 - mask[:, None, None, :]) * np.float32(-1e9)
    return bias


def unit_rows(hidden: Array, mask: Array, pooling: Pooling) -> Array:
    """(n, d) of (n, t, d) states and the (n, t) mask, padded on the right: pooled, at length 1."""
    pooled = pool(hidden, mask, pooling)
    unit: Array = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return unit


def pool(hidden: Array, mask: Array, pooling: Pooling) -> Array:
    """The same before its length is made 1: what `encoder.pool` computes in torch."""
    weights = mask
    match pooling:
        case Pooling.CLS:
            first: Array = hidden[:, 0]
            return first
        case Pooling.LAST_TOKEN:
            last: Array = hidden[np.arange(len(hidden)), np.maximum(mask.sum(axis=1).astype(np.int64), 1) - 1]
            return last
        case Pooling.MAX:
            most: Array = np.where(mask[:, :, None] == 0, np.float32(-np.inf), hidden).max(axis=1)
            return most
        case Pooling.WEIGHTED_MEAN:
            weights = mask * np.arange(1, mask.shape[1] + 1, dtype=np.float32)
    total = (hidden * weights[:, :, None]).sum(axis=1)
    n = np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
    pooled: Array = total / (np.sqrt(n) if pooling is Pooling.MEAN_SQRT_LEN else n)
    return pooled


def _gelu(x: Array) -> Array:
    activated: Array = x * np.float32(0.5) * (1 + erf(x * _ROOT_HALF))
    return activated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """A layer for states (d, t): `qkv` (3 d, d) is query, key and value as one matrix, biases and norms are columns."""

    n_heads: int
    qkv: tuple[Array, Array]
    attended: tuple[Array, Array]
    inner: tuple[Array, Array]
    outer: tuple[Array, Array]
    norms: tuple[tuple[Array, Array], tuple[Array, Array]]

    @classmethod
    def of_layer(cls, weights: Mapping[str, Array], number: int, *, n_heads: int) -> Self:
        at = f"encoder.layer.{number}."

        def linear(*names: str) -> tuple[Array, Array]:
            parts = [(weights[f"{at}{name}.weight"], weights[f"{at}{name}.bias"]) for name in names]
            if len(parts) == 1:
                return parts[0][0], parts[0][1][:, None]
            return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])[:, None]

        def norm(name: str) -> tuple[Array, Array]:
            return weights[f"{at}{name}.weight"][:, None], weights[f"{at}{name}.bias"][:, None]

        return cls(
            n_heads=n_heads,
            qkv=linear(*(f"attention.self.{name}" for name in ("query", "key", "value"))),
            attended=linear("attention.output.dense"),
            inner=linear("intermediate.dense"),
            outer=linear("output.dense"),
            norms=(norm("attention.output.LayerNorm"), norm("output.LayerNorm")),
        )

    def __call__(self, x: Array, eps: float) -> Array:
        width, n = x.shape
        q, k, v = (_product(self.qkv[0], x) + self.qkv[1]).reshape(3, self.n_heads, width // self.n_heads, n)
        scores = q.transpose(0, 2, 1) @ k / np.float32((width // self.n_heads) ** 0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (v @ scores.transpose(0, 2, 1)).reshape(width, n)
        x = _norm_columns(x + _product(self.attended[0], mixed) + self.attended[1], self.norms[0], eps)
        inner = _gelu(_product(self.inner[0], x) + self.inner[1])
        return _norm_columns(x + _product(self.outer[0], inner) + self.outer[1], self.norms[1], eps)


def _product(weight: Array, columns: Array) -> Array:
    """`weight @ columns`. For few columns it is computed in blocks of rows: OpenBLAS multiplies blocks of this size as
    they lie, and copies larger matrices first, which takes a fifth of the time of both."""
    rows, width = weight.shape
    n = columns.shape[1]
    for block in _BLOCKS if n <= _MOST_IN_BLOCKS else ():
        if not rows % block and block * width * n <= _UNPACKED:
            product: Array = (weight.reshape(-1, block, width) @ columns).reshape(rows, n)
            return product
    return weight @ columns


def _norm_columns(x: Array, norm: tuple[Array, Array], eps: float) -> Array:
    centred = x - x.mean(axis=0)
    variance = np.einsum("ij,ij->j", centred, centred) / np.float32(x.shape[0])
    normed: Array = centred / np.sqrt(variance + np.float32(eps)) * norm[0] + norm[1]
    return normed
