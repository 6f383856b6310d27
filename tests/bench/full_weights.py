"""All weights of an encoder's linear layers trained in place of LoRA's matrices, by the same trainer.

Full fine-tuning as LoRA of full rank: A is the identity and stays, B is what is added to the weight. Embeddings, biases
and norms stay as they are.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from gpu_runners.distill.label.frozen_bert import SITES, FrozenBert, Lora
from gpu_runners.distill.label.nets import LeanEngine, LeanLora
from gpu_runners.models import encoder_runtimes
from gpu_runners.models.merging import to_numpy
from gpu_runners.models.tensor_files import Array

SHARE = 0.1  # of the learning rate that the heads have: 2e-4 beside 2e-3


class FullWeights(LeanLora):
    """What is added to the weights, times `SHARE`: a step moves a weight by so much less."""

    def __init__(self, body: FrozenBert) -> None:
        super().__init__(body, first=0, rank=1, alpha=1)
        self.trained.clear()
        for layer in range(body.n_layers):
            for site, paths in SITES.items():
                out, into = body.shape(layer, site)
                self.add(f"{layer}.{site}.b", torch.zeros((len(paths) * out, into)))

    def matrices(self, *, dropout: float) -> dict[int, dict[str, Lora]]:
        out: dict[int, dict[str, Lora]] = {}
        for layer in range(self.body.n_layers):
            for site, paths in SITES.items():
                b = self.trained[f"{layer}.{site}.b"]
                out.setdefault(layer, {})[site] = Lora(a=_identity(b, len(paths)), b=b, scale=SHARE)
        return out

    def pairs(self) -> dict[str, tuple[Array, Array]]:
        """A is the identity, B has the share in it."""
        made = {}
        for layer in range(self.body.n_layers):
            for site, paths in SITES.items():
                parts = self.trained[f"{layer}.{site}.b"].chunk(len(paths))
                for path, part in zip(paths, parts, strict=True):
                    made[f"encoder.layer.{layer}.{path}"] = (to_numpy(_identity(part, 1)), SHARE * to_numpy(part))
        return made


def _identity(b: Tensor, n_parts: int) -> Tensor:
    return torch.eye(b.shape[1], device=b.device).repeat(n_parts, 1)


@contextmanager
def full_weights() -> Iterator[None]:
    """Let every fit train all weights, and a runtime add them whatever rank the config names. Give its job rank 2: a
    rank of 1 is left as it is, since the frozen encoder's states are computed by one."""
    lora = LeanEngine.lora

    def chosen(engine: LeanEngine, *, rank: int, alpha: int) -> LeanLora:
        return lora(engine, rank=rank, alpha=alpha) if rank == 1 else FullWeights(engine.body)

    with patch.object(LeanEngine, "lora", chosen), patch.object(encoder_runtimes, "lora_deltas", _deltas):
        yield


def _deltas(lora: Mapping[str, tuple[Array, Array]], **_: int) -> Iterator[tuple[str, Array]]:
    for path, (a, b) in lora.items():
        yield path, b @ a
