"""One optimisation: LoRA layers and a head over a frozen body, on given pairs, from a given head.

Deterministic and resumable: what happens at a step follows from the parameters, Adam's moments, the generator's state
and the step number, and these are what `tensors()` hands out and `restore()` takes back.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.label.dataset import Pair, batches, targets_of
from gpu_runners.distill.label.nets import Net, Rows
from gpu_runners.errors import JobFailed

Ints = NDArray[np.int64]

CLIP_NORM = 1.0


def learning_rate_factor(step: int, *, n_steps: int, warmup_share: float) -> float:
    """Linear warm-up, then linear decay; in (0, 1] for step 0 .. n_steps - 1."""
    warm = max(1, round(warmup_share * n_steps))
    return (step + 1) / warm if step < warm else (n_steps - step) / max(1, n_steps - warm)


def n_steps_of(n_pairs: int, options: TrainOptions) -> int:
    return math.ceil(n_pairs / options.batch_size) * options.epochs


def pick_precision(wanted: str, device: torch.device) -> str:
    """`auto` is bf16 where the device multiplies it natively (twice as fast on Zen 5), fp32 elsewhere: emulated bf16 is
    slower than fp32."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


class Fit:
    """`net` trains on those of `pairs` that have the numbers `members`; `rows` are the token ids of all. The loss is
    the mean cross-entropy against the pairs' targets, weighted by the pairs."""

    def __init__(
        self, *, net: Net, pairs: Sequence[Pair], rows: Rows, members: Ints, n_labels: int, options: TrainOptions
    ) -> None:
        self.net, self.options, self.members = net, options, members
        self._lengths = [len(rows[i]) for i in members]
        self._targets = torch.from_numpy(targets_of(pairs, n_labels)).to(net.device)
        self._weights = torch.tensor([pair.weight for pair in pairs], device=net.device)
        self.optimizer = torch.optim.AdamW(list(net.trained.values()), lr=options.learning_rate, fused=True)
        self.n_steps = n_steps_of(len(members), options)
        self.steps_per_epoch = self.n_steps // options.epochs
        self.step = 0
        self._batches: tuple[int, list[Ints]] = (-1, [])

    def advance(self) -> float:
        """One optimiser step; its loss. Raises JobFailed(diverged)."""
        factor = learning_rate_factor(self.step, n_steps=self.n_steps, warmup_share=self.options.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * factor
        chosen = self.members[self._batch()].tolist()
        weights = self._weights[chosen]
        losses = nn.functional.cross_entropy(
            self.net.logits(chosen, dropout=True), self._targets[chosen], reduction="none"
        )
        loss = (losses * weights).sum() / weights.sum()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise JobFailed(
                f"The training loss became {value} at step {self.step}; lower train.learning_rate.", code="diverged"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.net.trained.values()), CLIP_NORM)
        self.optimizer.step()
        self.step += 1
        return value

    def _batch(self) -> Ints:
        epoch, n = divmod(self.step, self.steps_per_epoch)
        if self._batches[0] != epoch:
            size, seed = self.options.batch_size, self.options.seed
            self._batches = (epoch, batches(self._lengths, size=size, seed=seed, epoch=epoch))
        return self._batches[1][n]

    def tensors(self) -> dict[str, Tensor]:
        """The run's state. A layer that no text goes through gets no gradient, and Adam keeps no moments for it."""
        out: dict[str, Tensor] = {}
        for name, parameter in self.net.trained.items():
            out[f"param.{name}"] = parameter
            if moments := self.optimizer.state.get(parameter):
                out |= {f"adam_m.{name}": moments["exp_avg"], f"adam_v.{name}": moments["exp_avg_sq"]}
        return out | checkpoint.rng_tensors(self.net.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        device = self.net.device
        with torch.no_grad():
            for name, parameter in self.net.trained.items():
                parameter.copy_(tensors[f"param.{name}"])
                if f"adam_m.{name}" not in tensors:
                    continue
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(step), device=device),
                    "exp_avg": tensors[f"adam_m.{name}"].to(device),
                    "exp_avg_sq": tensors[f"adam_v.{name}"].to(device),
                }
        self.step = step
        checkpoint.set_rng(tensors, device)
