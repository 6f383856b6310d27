"""One optimisation: LoRA layers and a head over a frozen body, on given pairs, from a given head.

A pair whose label is learned by heart rests: an epoch trains those whose last loss was high and those that rested for
long, the last epoch trains all (as Jiang et al. 2019 leave out what has a low loss; measured in
docs/benchmarks/label-trainer.md).

Deterministic and resumable: what happens at a step follows from the parameters, Adam's moments, the generator's state,
the pairs' last losses and the step number, and these are what `tensors()` hands out and `restore()` takes back.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import entr
from torch import Tensor, nn

from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.label.adamw import AdamW
from gpu_runners.distill.label.dataset import Pair, batches, targets_of
from gpu_runners.distill.label.nets import Net, Rows
from gpu_runners.errors import JobFailed

Ints = NDArray[np.int64]

CLIP_NORM = 1.0
LEARNED = 0.05  # of a pair's loss above its least, below which it rests
MOST_REST = 3  # epochs from one training of a pair to the next
FIRST_REST = 2  # the first epoch (from 0) in which pairs rest
FEWEST_RESTING = 100  # pairs of a fit, below which none rests: there is next to no time to save


def learning_rate_factor(step: float, *, n_steps: int, warmup_share: float) -> float:
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
    the mean cross-entropy against the pairs' targets, weighted by the pairs. `epoch` is under way, and `n_trained` of
    its pairs train in it."""

    def __init__(
        self, *, net: Net, pairs: Sequence[Pair], rows: Rows, members: Ints, n_labels: int, options: TrainOptions
    ) -> None:
        self.net, self.options, self.members = net, options, members
        self._lengths = np.array([len(rows[i]) for i in members])
        targets = targets_of([pairs[i] for i in members], n_labels)
        self._least = entr(targets).sum(axis=1)
        self._targets = torch.from_numpy(targets).to(net.device)
        self._weights = torch.tensor([pairs[i].weight for i in members], device=net.device)
        self.optimizer = AdamW(net.trained)
        self._losses = np.zeros(len(members))  # of each member's last training, above its least
        self._trained_in = np.zeros(len(members), dtype=np.int64)  # the epoch of that training
        self.step, self.epoch, self._at = 0, 0, 0
        self._batches: list[Ints] = []
        self._begin(0)

    @property
    def n_steps(self) -> int:
        """The steps of the whole fit: those that are done, and at most so many to come."""
        full = n_steps_of(len(self.members), self.options) // self.options.epochs
        return self.step + len(self._batches) - self._at + full * (self.options.epochs - self.epoch - 1)

    @property
    def is_epoch_done(self) -> bool:
        return self._at == len(self._batches)

    @property
    def is_done(self) -> bool:
        return self.is_epoch_done and self.epoch == self.options.epochs - 1

    @property
    def n_trained(self) -> int:
        return int(self._trains.sum())

    def advance(self) -> float:
        """One optimiser step; its loss. Raises JobFailed(diverged)."""
        if self.is_epoch_done:
            self._begin(self.epoch + 1)
        chosen = self._batches[self._at]
        losses = nn.functional.cross_entropy(
            self.net.logits(self.members[chosen].tolist(), dropout=True), self._targets[chosen], reduction="none"
        )
        weights = self._weights[chosen]
        loss = (losses * weights).sum() / weights.sum()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise JobFailed(
                f"The training loss became {value} at step {self.step}; lower train.learning_rate.", code="diverged"
            )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.net.trained.values()), CLIP_NORM)
        self.optimizer.step(self.options.learning_rate * self._learning_rate_factor())
        self._losses[chosen] = losses.detach().cpu().numpy() - self._least[chosen]
        self._trained_in[chosen] = self.epoch
        self.step, self._at = self.step + 1, self._at + 1
        return value

    def _begin(self, epoch: int) -> None:
        self.epoch, self._at = epoch, 0
        self._trains = self._who_trains(epoch)
        self._plan()

    def _who_trains(self, epoch: int) -> NDArray[np.bool_]:
        if len(self.members) < FEWEST_RESTING or not FIRST_REST <= epoch < self.options.epochs - 1:
            return np.ones(len(self.members), dtype=np.bool_)
        trains = (self._losses >= LEARNED) | (epoch - self._trained_in >= MOST_REST)
        if not trains.any():  # an epoch has a step
            trains[np.argsort(-self._losses, kind="stable")[: self.options.batch_size]] = True
        return trains

    def _plan(self) -> None:
        trains = np.flatnonzero(self._trains)
        size, seed = self.options.batch_size, self.options.seed
        parts = batches(self._lengths[trains].tolist(), size=size, seed=seed, epoch=self.epoch)
        self._batches = [trains[part] for part in parts]

    def _learning_rate_factor(self) -> float:
        """It goes by the part of the epochs that is done, however many steps each has."""
        n_steps = n_steps_of(len(self.members), self.options)
        done = (self.epoch + self._at / len(self._batches)) / self.options.epochs
        return learning_rate_factor(done * n_steps, n_steps=n_steps, warmup_share=self.options.warmup_share)

    def tensors(self) -> dict[str, Tensor]:
        """The run's state. A layer that no text goes through gets no gradient, and Adam keeps no moments for it."""
        out = {
            "fit.losses": torch.from_numpy(self._losses),
            "fit.trained_in": torch.from_numpy(self._trained_in),
            "fit.trains": torch.from_numpy(self._trains),
            "fit.at": torch.tensor([self.epoch, self._at]),
        }
        for name, parameter in self.net.trained.items():
            out[f"param.{name}"] = parameter
            if moments := self.optimizer.moments.get(name):
                out |= {f"adam_m.{name}": moments[0], f"adam_v.{name}": moments[1]}
        return out | checkpoint.rng_tensors(self.net.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        device = self.net.device
        with torch.no_grad():
            for name, parameter in self.net.trained.items():
                parameter.copy_(tensors[f"param.{name}"])
                if f"adam_m.{name}" not in tensors:
                    continue
                self.optimizer.moments[name] = (
                    tensors[f"adam_m.{name}"].to(device),
                    tensors[f"adam_v.{name}"].to(device),
                    torch.tensor(float(step), device=device),
                )
        self._losses, self._trained_in = tensors["fit.losses"].numpy(), tensors["fit.trained_in"].numpy()
        self._trains = tensors["fit.trains"].numpy()
        self.step, (self.epoch, self._at) = step, tensors["fit.at"].tolist()
        self._plan()
        checkpoint.set_rng(tensors, device)
