"""The forward pass of BERT and of RoBERTa's family in numpy: what lets `kolm run` answer half a second after it was
started.

Importing torch and transformers takes three seconds before the first answer; this needs neither, computes the same
numbers (a test compares them), and on one thread is as fast for single texts. Other architectures go through
transformers. RoBERTa, XLM-RoBERTa and CamemBERT are BERT with positions that count real tokens from the padding
token's id + 1 on.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
        self._counts_positions = config.get("model_type") in _ROBERTA
        self.width = int(config["hidden_size"])

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
        pooled = pool(self._hidden_states(ids, mask), mask, pooling)
        unit: Array = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return unit

    def states(self, rows: Sequence[Sequence[int]]) -> Array:
        """(n, t, d) float32 states of the last layer, padded on the right."""
        ids, present = pad(rows, pad_id=self.pad_id)
        return self._hidden_states(ids, present.astype(np.float32))

    def _hidden_states(self, ids: NDArray[np.int64], mask: Array) -> Array:
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + w["embeddings.position_embeddings.weight"][self.positions(ids)], "embeddings.LayerNorm")
        bias = (1.0 - mask[:, None, None, :]) * np.float32(-1e9)
        for layer in range(self.n_layers):
            at = f"encoder.layer.{layer}."
            x = self._norm(
                x + self._linear(self._attention(x, bias, at), at + "attention.output.dense"),
                at + "attention.output.LayerNorm",
            )
            inner = _gelu(self._linear(x, at + "intermediate.dense"))
            x = self._norm(x + self._linear(inner, at + "output.dense"), at + "output.LayerNorm")
        return x

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, t). RoBERTa's family counts the tokens that are not padding, wherever they stand."""
        if not self._counts_positions:
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


def pool(hidden: Array, mask: Array, pooling: Pooling) -> Array:
    """(n, d) of (n, t, d) states and the (n, t) mask, padded on the right: what `encoder.pool` computes in torch."""
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
