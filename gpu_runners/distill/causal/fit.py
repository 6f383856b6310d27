"""One optimisation: LoRA layers of a frozen causal base, on given examples.

Deterministic and resumable: what happens at a step follows from the parameters, the optimiser's state, the generator's
state and the step number, and these are what `tensors()` hands out and `restore()` takes back.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from backend.domain.jobs.causal_jobs import CausalOptions
from gpu_runners.distill.causal.batch import Batch, make_batch, n_positions
from gpu_runners.distill.causal.dataset import Example
from gpu_runners.distill.causal.loading import (
    make_optimizer,
    optimizer_tensors,
    recompute_activations,
    restore_optimizer,
)
from gpu_runners.distill.causal.net import CompletionNet, weight_of
from gpu_runners.distill.causal.packing import Bins, lay_out, plan_epoch, share_of
from gpu_runners.distill.causal.processes import Processes
from gpu_runners.distill.checkpoint import rng_tensors, set_rng
from gpu_runners.distill.label.fit import CLIP_NORM, learning_rate_factor
from gpu_runners.errors import JobFailed
from gpu_runners.models.device import Choice

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """`loss` in nats a completion token, weighted; `n_tokens` that had to be read, `n_positions` that were computed,
    padding and all."""

    loss: float
    n_tokens: int
    n_positions: int


class Fit:
    """`net` is trained in place. `choice.batching` says how a step is laid out, never what it holds."""

    def __init__(
        self,
        *,
        net: CompletionNet,
        examples: Sequence[Example],
        options: CausalOptions,
        choice: Choice,
        learning_rate: float,
        device: torch.device,
        pad_id: int,
        n_shared: int,
        processes: Processes,
    ) -> None:
        self.net, self.examples, self.options, self.choice = net, examples, options, choice
        self.device, self.pad_id, self.n_shared = device, pad_id, n_shared
        self.processes, self.learning_rate = processes, learning_rate
        self.called = processes.prepare(net)
        self.trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
        self.optimizer = make_optimizer(choice, list(self.trained.values()), learning_rate)
        self.lengths = [n_positions(example, 1) for example in examples]
        self.steps_per_epoch = len(self._plan(0))
        self.n_steps = self.steps_per_epoch * options.epochs
        patched = options.patch_size > 1
        self.n_patch_steps = round(options.patch_share * self.n_steps) if patched else 0
        self.step, self.parts = 0, 1
        self.halved_at: int | None = None
        self._steps: tuple[int, Bins] = (-1, [])

    def advance(self) -> Stepped:
        """One optimiser step. Out of memory: once, the step is computed again in halves with its activations computed
        twice, and all later ones too. Raises JobFailed: diverged, out_of_memory."""
        factor = learning_rate_factor(self.step, n_steps=self.n_steps, warmup_share=self.options.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * factor
        self.net.train()
        chosen, size = self._examples_of_step(), self.patch_size
        done = self._within_memory(lambda: self._gradients(chosen, size))
        if not math.isfinite(done.loss):
            raise JobFailed(
                f"The training loss became {done.loss} at step {self.step}; lower train.causal.learning_rate.",
                code="diverged",
            )
        self.processes.clip(list(self.trained.values()), CLIP_NORM)
        self.optimizer.step()
        self.step += 1
        return done

    @property
    def patch_size(self) -> int:
        """The size of a patch in the step to come."""
        return self.options.patch_size if self.step < self.n_patch_steps else 1

    def held_loss(self, examples: Sequence[Example]) -> float:
        """Nats a completion token of examples that are not trained on, token by token, nothing changed."""
        self.net.eval()
        lengths = [n_positions(example, 1) for example in examples]
        plan = plan_epoch(lengths, capacity=self.options.tokens_per_step, seed=self.options.seed, epoch=0)

        def measure() -> float:
            total = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss and weight
            with torch.no_grad():
                for step in plan:
                    for batch in self._batches(examples, step, patch_size=1):
                        with self._autocast():
                            total[0] += self.called(batch.to(self.device)).double()
                        total[1] += weight_of(batch)
            total = self.processes.sum(total)
            return float(total[0] / total[1])

        return self._within_memory(measure)

    def _gradients(self, chosen: Sequence[int], patch_size: int) -> Stepped:
        """Gradients of the step's mean loss over its completion tokens, summed over its batches and processes."""
        self.optimizer.zero_grad(set_to_none=True)
        weight = sum(self.examples[i].weight * self.examples[i].n_learnt for i in chosen)
        batches = self._batches(self.examples, chosen, patch_size=patch_size)
        total = torch.zeros((), device=self.device)
        for n, batch in enumerate(batches, start=1):
            with self.processes.syncing(self.called, last=n == len(batches)):
                with self._autocast():
                    loss = self.called(batch.to(self.device)) / weight
                self.processes.backward(loss * self.processes.world)  # its engine takes the mean over processes
                total += loss.detach()
        return Stepped(
            loss=float(self.processes.sum(total)),
            n_tokens=sum(n_positions(self.examples[i], patch_size) for i in chosen),
            n_positions=sum(batch.n_positions for batch in batches) * self.processes.world,
        )

    def _batches(self, examples: Sequence[Example], step: Sequence[int], *, patch_size: int) -> list[Batch]:
        packed = self.choice.batching in ("packed", "shared_prefix")
        n_shared = self.n_shared if self.choice.batching == "shared_prefix" and patch_size == 1 else 0
        lengths = [n_positions(example, patch_size) - n_shared for example in examples]
        if self.processes.world > 1:
            mine = share_of(step, lengths, rank=self.processes.rank, world=self.processes.world)
            if not mine:  # it must take part all the same: it computes another's example at no weight
                mine, examples = [0], [dataclasses.replace(examples[step[0]], weight=0.0)]
                lengths = [n_positions(examples[0], patch_size) - n_shared]
            step = mine
        capacity = max(self.options.tokens_per_step // self.processes.world, 1)
        batches = lay_out(
            step,
            lengths,
            batching=self.choice.batching,
            capacity=capacity,
            row_tokens=self.choice.row_tokens or capacity,
            parts=self.parts,
        )
        return [
            make_batch(
                [[examples[i] for i in row] for row in rows],
                packed=packed,
                patch_size=patch_size,
                n_shared=n_shared,
                pad_id=self.pad_id,
                boundaries=packed and not self.choice.row_tokens,
            )
            for rows in batches
        ]

    def _within_memory(self, compute: Callable[[], Answer]) -> Answer:
        """Compute, and where memory ends once more with half as much at once and activations that are not kept. A step
        of several processes is not tried again: the others are waiting inside theirs."""
        rng = rng_tensors(self.device)
        try:
            return compute()
        except torch.OutOfMemoryError as error:
            if self.parts > 1 or self.processes.world > 1:
                raise _too_large(self.options) from error
        self.parts, self.halved_at = 2, self.step
        recompute_activations(self.net.core())
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        set_rng(rng, self.device)
        try:
            return compute()
        except torch.OutOfMemoryError as error:
            raise _too_large(self.options) from error

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.choice.precision == "bf16")

    def _plan(self, epoch: int) -> Bins:
        return plan_epoch(self.lengths, capacity=self.options.tokens_per_step, seed=self.options.seed, epoch=epoch)

    def _examples_of_step(self) -> list[int]:
        epoch, n = divmod(self.step, self.steps_per_epoch)
        if self._steps[0] != epoch:
            self._steps = (epoch, self._plan(epoch))
        return self._steps[1][n]

    def weights(self) -> dict[str, Tensor]:
        """Copies of what is trained, on the CPU."""
        return {name: p.detach().cpu().clone() for name, p in self.trained.items()}

    def shipped_weights(self) -> dict[str, Tensor]:
        """The `weights` as an adapter has them, in half the bytes: matrices in bfloat16, DoRA's magnitudes as they
        are."""
        return {name: p.to(torch.bfloat16) if p.ndim == 2 else p for name, p in self.weights().items()}

    def whole_weights(self) -> dict[str, Tensor]:
        """The `weights`, gathered where each process holds a shard."""
        return self.weights() if self.processes.accelerator is None else self.processes.gather(self.called, self.net)

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(weights[name])

    def tensors(self) -> dict[str, Tensor]:
        """The run's state, where it lies: nothing is copied."""
        out: dict[str, Tensor] = {f"param.{name}": p for name, p in self.trained.items()}
        out |= {f"opt.{key}": value for key, value in optimizer_tensors(self.optimizer).items()}
        return out | rng_tensors(self.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int, parts: int, halved_at: int | None) -> None:
        self.set_weights({name: tensors[f"param.{name}"] for name in self.trained})
        state = {key.removeprefix("opt."): tensors[key] for key in tensors if key.startswith("opt.")}
        restore_optimizer(self.optimizer, state)
        self.step, self.parts, self.halved_at = step, parts, halved_at
        if parts > 1:
            recompute_activations(self.net.core())
        set_rng(tensors, self.device)


def _too_large(options: CausalOptions) -> JobFailed:
    return JobFailed(
        f"The device ran out of memory with {options.tokens_per_step} tokens a step, and again with half of them at "
        "once; lower train.causal.tokens_per_step or max_tokens, or take a runner with more memory.",
        code="out_of_memory",
        retryable=True,
    )
