"""One optimisation: LoRA and heads on given examples, by AdamW with a linear warm-up and decay.

Deterministic and resumable: what happens at a step follows from the parameters, Adam's moments, the generator's state
and the step's number, and these are what `tensors()` hands out and `restore()` takes back.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.domain.jobs.span_jobs import SpanOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.label.adamw import AdamW
from gpu_runners.distill.label.dataset import batches
from gpu_runners.distill.label.fit import CLIP_NORM, divergence, learning_rate_factor
from gpu_runners.distill.spans.dataset import Example
from gpu_runners.distill.spans.net import SpanNet, loss_of


class Fit:
    """`net` trains on the examples that each epoch has, always as many; `many` are the rules of which several classes
    may hold."""

    def __init__(
        self, net: SpanNet, examples_of: Callable[[int], Sequence[Example]], options: SpanOptions, *, many: Set[int]
    ) -> None:
        self.net, self._examples_of, self._options, self._many = net, examples_of, options, many
        self.optimizer = AdamW(net.trained)
        self.step = 0
        self._examples = examples_of(0)
        self.steps_an_epoch = math.ceil(len(self._examples) / options.batch_size)
        self.n_steps = self.steps_an_epoch * options.epochs
        self._planned: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    @property
    def epoch(self) -> int:
        """The epoch of the next step, from 0."""
        return self.step // self.steps_an_epoch

    @property
    def is_epoch_done(self) -> bool:
        return self.step > 0 and self.step % self.steps_an_epoch == 0

    @property
    def is_done(self) -> bool:
        return self.step >= self.n_steps

    def advance(self) -> float:
        """One optimiser step; its loss. Raises JobFailed(diverged)."""
        numbers = self._batch()
        chosen = [self._examples[i] for i in numbers]
        gathered = self.net.gather(chosen, dropout=self._options.dropout)
        loss = loss_of(self.net.heads.logits(gathered), chosen, many=self._many)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise divergence(f"The training loss became {value} at step {self.step}")
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.net.trained.values()), CLIP_NORM)
        share = self._options.warmup_share
        factor = learning_rate_factor(self.step, n_steps=self.n_steps, warmup_share=share)
        self.optimizer.step(self._options.learning_rate * factor)
        self.step += 1
        return value

    def _batch(self) -> NDArray[np.int64]:
        if self._planned[0] != self.epoch:
            self._examples = self._examples_of(self.epoch)
            lengths = [example.n_ids for example in self._examples]
            size, seed = self._options.batch_size, self._options.seed
            self._planned = (self.epoch, batches(lengths, size=size, seed=seed, epoch=self.epoch))
        return self._planned[1][self.step % self.steps_an_epoch]

    def tensors(self) -> dict[str, Tensor]:
        """The run's state. A head that no example asks gets no gradient, and Adam keeps no moments for it."""
        out: dict[str, Tensor] = {}
        for name, parameter in self.net.trained.items():
            out[f"param.{name}"] = parameter
            if moments := self.optimizer.moments.get(name):
                out |= {f"adam_m.{name}": moments[0], f"adam_v.{name}": moments[1], f"adam_n.{name}": moments[2]}
        return out | checkpoint.rng_tensors(self.net.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        device = self.net.device
        with torch.no_grad():
            for name, parameter in self.net.trained.items():
                parameter.copy_(tensors[f"param.{name}"])
                if f"adam_m.{name}" in tensors:
                    first, second, n = (tensors[f"adam_{part}.{name}"].to(device) for part in "mvn")
                    self.optimizer.moments[name] = (first, second, n)
        self.step = step
        checkpoint.set_rng(tensors, device)
