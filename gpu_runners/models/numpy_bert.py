"""A BERT encoder's forward pass in numpy: what lets `kolm run` answer half a second after it was started.

Importing torch and transformers takes three seconds before the first answer; this needs neither, computes the same
numbers (a test compares them), and on one thread is as fast for single texts. Other architectures go through
transformers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.special import erf

from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import pad, read_config
from gpu_runners.models.label_adapter import unfit
from gpu_runners.models.tensor_files import Array

_ROOT_HALF = np.float32(0.5**0.5)


def can_run(base: Base) -> bool:
    """Say whether this base is a BERT of the plain kind: absolute positions, exact GELU."""
    config = read_config(base)
    plain = config.get("position_embedding_type", "absolute") == "absolute" and config.get("hidden_act") == "gelu"
    return config.get("model_type") == "bert" and plain


class NumpyBert:
    """`weights` are the base's tensors by name, float32; LoRA is merged into a copy of them by the caller."""

    def __init__(self, weights: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        self.weights, self._config = weights, config
        self.n_layers, self.n_heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self.eps, self.pad_id = float(config["layer_norm_eps"]), int(config.get("pad_token_id") or 0)
        self.width = int(config["hidden_size"])

    @classmethod
    def load(cls, base: Base) -> "NumpyBert":
        tensors: dict[str, Array] = {}
        for path in sorted(base.folder.glob("*.safetensors")):
            tensors |= {name.removeprefix("bert."): tensor for name, tensor in load_file(path).items()}
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

    def embed(self, rows: Sequence[Sequence[int]]) -> Array:
        """(n, d) float32 unit rows of token-id rows: the mean of the last layer over the real tokens."""
        ids, present = pad(rows, pad_id=self.pad_id)
        mask = present.astype(np.float32)
        hidden = self._hidden_states(ids, mask)
        mean = (hidden * mask[:, :, None]).sum(axis=1) / np.maximum(mask.sum(axis=1, keepdims=True), 1.0)
        unit: Array = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return unit

    def _hidden_states(self, ids: NDArray[np.int64], mask: Array) -> Array:
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + w["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
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


def _gelu(x: Array) -> Array:
    activated: Array = x * np.float32(0.5) * (1 + erf(x * _ROOT_HALF))
    return activated
