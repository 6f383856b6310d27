"""Distil pairs of input and answer into one LoRA adapter over a frozen causal base.

One fit: a share of the pairs is kept back, its loss is taken after every epoch, and the epoch where it was lowest gives
the adapter. (An encoder's few hundred parameters of a head were better refitted on every pair, see
`gpu_runners.distill.label.train`; here an epoch too many costs more than a tenth of the pairs.)

A step, from the outside in:

1. `packing.plan_epoch` has dealt the examples out to the epoch's steps, each of at most `tokens_per_step` tokens. What
   a step holds follows from the lengths, the seed and the epoch alone, never from how it is laid out.
2. `packing.lay_out` splits the step into batches that fit the device at once: rows of several examples end to end
   (packed), rows of alike length (bucketed) or padded rows.
3. `batch.make_batch` makes the tensors: ids (rows, width); `where` (n,), the flat positions whose outputs predict a
   token of an answer; targets (n, 1) and weights (n,). In packed rows positions begin at 0 anew with each example, by
   which attention keeps neighbours apart; `selfcheck` has seen that this library does so on this device.
4. `net.CompletionNet` runs the base, takes the hidden states (rows * width, d) at `where` alone to (n, vocabulary)
   logits, and sums weight * cross-entropy, against the answer's tokens or, with `soft_weight`, against these and the
   teacher's distributions of them (`soft_targets`); of a student's own answers the divergence from the teacher's
   distributions (`divergences`). It sums and does not average: a batch's mean would give a token of a short batch more
   say than one of a long batch.
5. `fit.Fit` divides each sum by the whole step's weight, so that the gradients of batches and processes add up to that
   of one mean over all answer tokens of the step, whatever the batching. Processes average theirs, hence the factor
   `world`.
6. Gradients are clipped to norm 1 and the optimiser steps. The learning rate goes up linearly over the warm-up, then
   down linearly towards 0 at the last planned step; it follows from the step's number alone, so that a resumed run has
   the same one and early stopping only cuts it off.

Only the LoRA matrices are trained. The base has no gradients, but its activations are kept for the way back through
it, which is where the memory goes. A step that does not fit is computed again in halves (`parts`), with the generator
set back, so that what is random in it is the same.

At the first `n_patch_steps` steps a position may be a patch of several tokens (`patch_size`; Shao et al. 2024): fewer
positions for the same text. Held-out loss is always taken token by token, and no epoch of patches can be the best one.

Everything random comes from the seed and, on a CPU, sums are made by one thread: the same job gives the same bytes on
the same machine, whether or not it was interrupted.
"""

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.domain.jobs.causal_jobs import CausalOptions, DistillCausalJob, DistillCausalResult
from gpu_runners.distill import checkpoint
from gpu_runners.distill.causal.active import read_back
from gpu_runners.distill.causal.dataset import Encoded, encode, read_rows, split
from gpu_runners.distill.causal.divergences import Divergence
from gpu_runners.distill.causal.fit import Fit, Stepped
from gpu_runners.distill.causal.loading import (
    adapter_from,
    as_loaded,
    load_frozen,
    prefix_of,
    size_of,
    target_names,
    weights_from,
    with_lora,
)
from gpu_runners.distill.causal.net import CompletionNet
from gpu_runners.distill.causal.options import learning_rate_for, read_causal_options
from gpu_runners.distill.causal.processes import Processes
from gpu_runners.distill.causal.selfcheck import check
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models import causal_adapter as adapters
from gpu_runners.models.causal_adapter import AdapterConfig
from gpu_runners.models.causal_base import CausalBase, check_fit
from gpu_runners.models.device import Capabilities, choose, detect
from gpu_runners.models.label_adapter import unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters(checkpoint.JobCounters):
    """`step` optimiser steps are done, `parts` batches make one (2 after the device ran out of memory at step
    `halved_at`). `epoch_loss`, `n_tokens` and `n_positions` are sums over the current epoch. `best_loss` and
    `best_epoch` are None before the first epoch that counts."""

    step: int
    parts: int
    halved_at: int | None
    epoch_loss: float
    n_tokens: int
    n_positions: int
    best_loss: float | None
    best_epoch: int | None
    log: list[dict[str, Any]]


def distill_causal(
    job: DistillCausalJob,
    dataset: bytes,
    *,
    base: CausalBase,
    start: bytes | None = None,
    resume: Path | None = None,
    hooks: Hooks | None = None,
    processes: Processes | None = None,
) -> tuple[bytes, DistillCausalResult]:
    """The adapter blob and its result; `start` is the adapter that the job goes on from, `processes` where a launcher
    started several (`launch`), all of which get the same of both. Raises JobFailed (invalid_options, invalid_dataset,
    invalid_adapter, base_mismatch, nothing_to_train, tokenizers_differ, not_on_this_device, diverged, out_of_memory)
    and JobStopped."""
    started = time.monotonic()
    options = read_causal_options(job.options)
    rows = read_rows(dataset)
    can = detect()
    if can.device == "cuda":  # before CUDA starts: it is read once
        os.environ.setdefault("FLASH_ATTENTION_DETERMINISTIC", "1")
    encoded = encode(rows, base=base, system=job.system, max_tokens=options.max_tokens, soft_weight=options.soft_weight)
    _check_patches(options, encoded)
    with deterministic(options.seed):
        run = _Run(
            job=job,
            start=None if start is None else _start_of(job, start, options, base),
            options=options,
            encoded=encoded,
            base=base,
            can=can,
            hooks=hooks or Hooks(),
            processes=processes or Processes(),
        )
        resumed_from = run.restore(resume) if resume is not None else 0
        adapter, active = run.finish(), run.active()
    blob = adapters.to_bytes(adapter)
    return blob, DistillCausalResult(
        adapter_sha256=hashlib.sha256(blob).hexdigest(),
        adapter_config=run.config().to_json(),
        base_model_sha256=base.sha256,
        tokenizer_sha256=base.tokenizer_sha256,
        n_pairs=len(encoded.examples),
        n_parameters=adapter.n_parameters,
        training_log=run.log,
        active=active,
        runner_ms=round((time.monotonic() - started) * 1000),
        resumed_from_step=resumed_from,
        n_tokens=sum(row["n_tokens"] for row in run.log),
    )


def _check_patches(options: CausalOptions, encoded: Encoded) -> None:
    if options.patch_size > 1 and encoded.n_on_policy:
        raise JobFailed(
            "A student's own answers are not learnt in patches; send them in a job without.", code="invalid_options"
        )


def _start_of(job: DistillCausalJob, start: bytes, options: CausalOptions, base: CausalBase) -> adapters.CausalAdapter:
    config = AdapterConfig.from_json(job.start_config)
    check_fit(config, base)
    if (config.rank, config.alpha, config.variant) != (options.rank, options.alpha, options.variant):
        raise unfit("the job goes on with another rank, alpha or variant")
    return adapters.from_bytes(start, config)


class _Run:
    """The fit, its held-out loss, and the best epoch so far."""

    def __init__(
        self,
        *,
        job: DistillCausalJob,
        start: adapters.CausalAdapter | None,
        options: CausalOptions,
        encoded: Encoded,
        base: CausalBase,
        can: Capabilities,
        hooks: Hooks,
        processes: Processes,
    ) -> None:
        self.job, self.options, self.encoded, self.base, self.can, self.hooks = job, options, encoded, base, can, hooks
        self.processes = processes
        n_shared = prefix_of(encoded, base)
        mean = sum(len(example.ids) for example in encoded.examples) / len(encoded.examples)
        self.choice = choose(options, can, size_of(base), shared_share=n_shared / mean)
        self.device = torch.device(can.device) if self.processes.world == 1 else self.processes.accelerator.device
        self.train, self.held = split(encoded.examples, share=options.validation_share, seed=options.seed)
        model = load_frozen(base, self.choice, device=self.device)
        self.choice = as_loaded(self.choice, model, device=self.device)
        self.targets = target_names(model)
        torch.manual_seed(options.seed)
        net = CompletionNet(
            with_lora(model, options),
            varlen=self.choice.attention == "flash_attention_2",
            divergence=Divergence(options.divergence),
        )
        self.choice, self.checked = check(net, self.choice, vocab_size=base.vocab_size, device=self.device)
        torch.manual_seed(options.seed)
        self.fit = Fit(
            net=net,
            examples=self.train,
            options=options,
            choice=self.choice,
            learning_rate=options.learning_rate or learning_rate_for(base.hidden_size),
            device=self.device,
            pad_id=base.pad_id,
            n_shared=n_shared,
            processes=self.processes,
        )
        if start is not None:
            self.fit.set_weights(weights_from(start, self.fit.trained))
        self.log: list[dict[str, Any]] = []
        self.epoch_loss, self.n_tokens, self.n_positions = 0.0, 0, 0
        self.best_loss: float | None = None
        self.best_epoch: int | None = None
        self.best: dict[str, Tensor] = {}
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    def finish(self) -> adapters.CausalAdapter:
        while self.fit.step < self.fit.n_steps and not self._is_worn_out():
            done = self.fit.advance()
            self._count(done)
            if self.fit.step % self.fit.steps_per_epoch == 0:
                self._end_epoch(self.fit.step // self.fit.steps_per_epoch)
            self._report(done.loss)
            self._maybe_save()
        if self.best:
            self.fit.set_weights(self.best)
        return adapter_from(self.fit.whole_weights())

    def _maybe_save(self) -> None:
        stop = self.processes.agree(self.hooks.should_stop())
        if self.processes.agree(stop or self._cadence.is_due()):
            tensors = self.fit.tensors() | {f"best.{name}": value for name, value in self.best.items()}
            self._cadence.save(checkpoint.Snapshot(counters=self._counters(), tensors=tensors))
        if stop:
            raise JobStopped()

    def _count(self, done: Stepped) -> None:
        self.epoch_loss += done.loss
        self.n_tokens += done.n_tokens
        self.n_positions += done.n_positions

    def _end_epoch(self, epoch: int) -> None:
        row: dict[str, Any] = {
            "epoch": epoch,
            "train_loss": round(self.epoch_loss / self.fit.steps_per_epoch, 6),
            "n_tokens": self.n_tokens,
            "n_positions": self.n_positions,
            "patch_size": self.options.patch_size if self.fit.step <= self.fit.n_patch_steps else 1,
        }
        self.epoch_loss, self.n_tokens, self.n_positions = 0.0, 0, 0
        if self.held:
            loss = self.fit.held_loss(self.held)
            row["validation_loss"] = round(loss, 6)
            if loss != loss:
                raise JobFailed(
                    f"The validation loss is no number after epoch {epoch}; lower train.causal.learning_rate.",
                    code="diverged",
                )
            if self.fit.step > self.fit.n_patch_steps and (self.best_loss is None or loss < self.best_loss):
                self.best_loss, self.best_epoch, self.best = loss, epoch, self.fit.shipped_weights()
        self.log.append(row)

    def _is_worn_out(self) -> bool:
        """Say whether the held-out loss has not fallen for `patience` epochs."""
        if self.best_epoch is None or self.options.patience == 0:
            return False
        return len(self.log) - self.best_epoch >= self.options.patience

    def _report(self, loss: float) -> None:
        self._done_here += 1
        step, n_steps = self.fit.step, self.fit.n_steps
        eta_s = (self.hooks.clock() - self._started) / self._done_here * (n_steps - step)
        epoch = (step - 1) // self.fit.steps_per_epoch + 1
        note = f"epoch {epoch} of {self.options.epochs}"
        if self.log and "validation_loss" in self.log[-1]:
            note += f", held-out loss {self.log[-1]['validation_loss']:.4f}"
        self.hooks.on_step(StepDone(step=step, n_steps=n_steps, loss=loss, eta_s=eta_s, note=note))

    def _counters(self) -> Counters:
        return Counters(
            fingerprint=self._fingerprint(),
            step=self.fit.step,
            parts=self.fit.parts,
            halved_at=self.fit.halved_at,
            epoch_loss=self.epoch_loss,
            n_tokens=self.n_tokens,
            n_positions=self.n_positions,
            best_loss=self.best_loss,
            best_epoch=self.best_epoch,
            log=self.log,
        )

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint; returns the number of steps already done, 0 where the file is not this job's."""
        saved = checkpoint.read(path, Counters, fingerprint=self._fingerprint())
        if saved is None:
            return 0
        c, tensors = saved
        self.log, self.epoch_loss, self.n_tokens, self.n_positions = c.log, c.epoch_loss, c.n_tokens, c.n_positions
        self.best_loss, self.best_epoch = c.best_loss, c.best_epoch
        self.best = {name.removeprefix("best."): tensors[name] for name in tensors if name.startswith("best.")}
        self.fit.restore(tensors, step=c.step, parts=c.parts, halved_at=c.halved_at)
        return c.step

    def config(self) -> AdapterConfig:
        return AdapterConfig(
            format=adapters.FORMAT,
            base=self.base.name,
            base_sha256=self.base.sha256,
            tokenizer_sha256=self.base.tokenizer_sha256,
            rank=self.options.rank,
            alpha=self.options.alpha,
            variant=self.options.variant,
            target_modules=self.targets,
            max_tokens=self.encoded.limit,
        )

    def active(self) -> dict[str, Any]:
        """The settings that were really switched on, for the receipt."""
        return read_back(self.fit, can=self.can, checked=self.checked) | {
            "n_train": len(self.train),
            "n_validation": len(self.held),
            "n_too_long": self.encoded.n_too_long,
            "soft_targets": self._soft_targets(),
            "on_policy": self._on_policy(),
            "max_tokens": self.encoded.limit,
            "best_epoch": self.best_epoch,
            "stopped_early": self.fit.step < self.fit.n_steps,
        }

    def _soft_targets(self) -> dict[str, Any] | None:
        """The weight of the teacher's distributions, the examples that have some, and the rows whose tokens are not the
        base's; None where none are wanted."""
        if not self.options.soft_weight:
            return None
        weight, encoded = f"{self.options.soft_weight:.3g}", self.encoded
        return {"weight": weight, "n_matched": encoded.n_soft, "n_unmatched": encoded.n_unmatched}

    def _on_policy(self) -> dict[str, Any] | None:
        """The divergence, the number of the student's own answers that train, and of those in whose place the teacher
        has other tokens; None where there are none."""
        n, n_unmatched = self.encoded.n_on_policy, self.encoded.n_own_unmatched
        return {"divergence": self.options.divergence, "n_answers": n, "n_unmatched": n_unmatched} if n else None

    def _fingerprint(self) -> str:
        job = self.job.to_json() | {
            "base_sha256": self.base.sha256,
            "device": self.can.name,
            "choice": repr(self.choice),
            "world": self.processes.world,
        }
        del job["checkpoint_every_s"]
        return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
