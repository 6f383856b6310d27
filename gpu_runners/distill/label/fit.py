"""One optimisation: LoRA layers and a head over a frozen body, on given pairs, from a given head, by cross-entropy. Its
first epochs may be by the contrastive objective, after which a head is fitted on the vectors that they made and
cross-entropy goes on from there, at half the learning rate.

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
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.contrastive import contrastive_loss, embed_members
from gpu_runners.distill.label.dataset import Pair, batches, targets_of
from gpu_runners.distill.label.nets import Net, Rows
from gpu_runners.errors import JobFailed

Ints = NDArray[np.int64]

CLIP_NORM = 1.0
LEARNED = 0.05  # of a pair's loss above its least, below which it rests
MOST_REST = 3  # epochs from one training of a pair to the next
FIRST_REST = 2  # the first epoch (from 0) in which pairs rest
FEWEST_RESTING = 100  # pairs of a fit, below which none rests: there is next to no time to save
AFTER_CONTRASTIVE = 0.5  # of the learning rate; see docs/decisions/0048-contrastive-first.md


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


def divergence(what: str) -> JobFailed:
    """The error of a training that went to where no numbers are."""
    return JobFailed(f"{what}; lower train.learning_rate.", code="diverged")


class Fit:
    """`net` trains on those of `pairs` that have the numbers `members`; `rows` are the token ids of all. The loss is
    the mean cross-entropy against the pairs' targets, weighted by the pairs; in the first `n_contrastive` epochs the
    contrastive one of their likeliest labels. `epoch` is under way, and `n_trained` of its pairs train in it."""

    def __init__(
        self,
        *,
        net: Net,
        pairs: Sequence[Pair],
        rows: Rows,
        members: Ints,
        n_labels: int,
        options: TrainOptions,
        n_contrastive: int = 0,
    ) -> None:
        self.net, self.options, self.members, self.n_contrastive = net, options, members, n_contrastive
        self._pairs, self._rows, self._n_labels = [pairs[i] for i in members], rows, n_labels
        self._lengths = np.array([len(rows[i]) for i in members])
        targets = targets_of(self._pairs, n_labels)
        self._least = entr(targets).sum(axis=1)
        self._targets = torch.from_numpy(targets).to(net.device)
        self._weights = torch.tensor([pairs[i].weight for i in members], device=net.device)
        self.optimizer = AdamW(net.trained)
        self._losses = np.zeros(len(members))  # of each member's last training, above its least
        self._trained_in = np.zeros(len(members), dtype=np.int64)  # the epoch of that training
        self.step, self.epoch, self._at = 0, 0, 0
        self._began = 0  # the step at which the optimiser did
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
    def is_contrastive(self) -> bool:
        return self.epoch < self.n_contrastive

    @property
    def n_trained(self) -> int:
        return int(self._trains.sum())

    def advance(self) -> float:
        """One optimiser step; its loss. Raises JobFailed(diverged)."""
        if self.is_epoch_done:
            self._begin(self.epoch + 1)
        chosen = self._batches[self._at]
        loss, losses = self._loss(chosen)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise divergence(f"The training loss became {value} at step {self.step}")
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.net.trained.values()), CLIP_NORM)
        self.optimizer.step(self.options.learning_rate * self._learning_rate_factor())
        if losses is not None:
            self._losses[chosen] = losses.detach().cpu().numpy() - self._least[chosen]
        self._trained_in[chosen] = self.epoch
        self.step, self._at = self.step + 1, self._at + 1
        return value

    def _loss(self, chosen: Ints) -> tuple[Tensor, Tensor | None]:
        """The loss of a batch, and that of each of its pairs where it has one of its own."""
        numbers, weights = self.members[chosen].tolist(), self._weights[chosen]
        if self.is_contrastive:
            labels = self._targets[chosen].argmax(dim=1)
            return contrastive_loss(self.net.vectors(numbers, dropout=True), labels, weights), None
        logits = self.net.logits(numbers, dropout=True)
        losses = nn.functional.cross_entropy(logits, self._targets[chosen], reduction="none")
        return (losses * weights).sum() / weights.sum(), losses

    def _begin(self, epoch: int) -> None:
        self.epoch, self._at = epoch, 0
        if epoch and epoch == self.n_contrastive:
            self._end_contrastive()
        self._trains = self._who_trains(epoch)
        self._plan()

    def _end_contrastive(self) -> None:
        """Give the net the head that logistic regression finds on the vectors that it makes of the members."""
        embedded = embed_members(self.net, self._rows, self.members)
        if not np.isfinite(embedded).all():
            raise divergence("The vectors of a training came out as no numbers")
        self.net.set_head(fit_head(embedded, self._pairs, n_labels=self._n_labels))
        self.optimizer, self._began = AdamW(self.net.trained), self.step

    def _who_trains(self, epoch: int) -> NDArray[np.bool_]:
        few = len(self.members) < FEWEST_RESTING
        if few or not self.n_contrastive + FIRST_REST <= epoch < self.options.epochs - 1:
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
        """It goes by the part of the epochs that is done, however many steps each has, of each objective anew."""
        first, last = (0, self.n_contrastive) if self.is_contrastive else (self.n_contrastive, self.options.epochs)
        n_steps = n_steps_of(len(self.members), self.options) * (last - first) // self.options.epochs
        done = (self.epoch - first + self._at / len(self._batches)) / (last - first)
        factor = learning_rate_factor(done * n_steps, n_steps=n_steps, warmup_share=self.options.warmup_share)
        return factor * AFTER_CONTRASTIVE if first else factor

    def tensors(self) -> dict[str, Tensor]:
        """The run's state. A layer that no text goes through gets no gradient, and Adam keeps no moments for it."""
        out = {
            "fit.losses": torch.from_numpy(self._losses),
            "fit.trained_in": torch.from_numpy(self._trained_in),
            "fit.trains": torch.from_numpy(self._trains),
            "fit.at": torch.tensor([self.epoch, self._at, self._began]),
        }
        for name, parameter in self.net.trained.items():
            out[f"param.{name}"] = parameter
            if moments := self.optimizer.moments.get(name):
                out |= {f"adam_m.{name}": moments[0], f"adam_v.{name}": moments[1]}
        return out | checkpoint.rng_tensors(self.net.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        device = self.net.device
        epoch, at, began = tensors["fit.at"].tolist()
        with torch.no_grad():
            for name, parameter in self.net.trained.items():
                parameter.copy_(tensors[f"param.{name}"])
                if f"adam_m.{name}" not in tensors:
                    continue
                self.optimizer.moments[name] = (
                    tensors[f"adam_m.{name}"].to(device),
                    tensors[f"adam_v.{name}"].to(device),
                    torch.tensor(float(step - began), device=device),
                )
        self._losses, self._trained_in = tensors["fit.losses"].numpy(), tensors["fit.trained_in"].numpy()
        self._trains = tensors["fit.trains"].numpy()
        self.step, self.epoch, self._at, self._began = step, epoch, at, began
        self._plan()
        checkpoint.set_rng(tensors, device)
