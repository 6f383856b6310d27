"""Distil labelled pairs into one LoRA adapter and linear head over a frozen encoder, in two fits.

1. Calibrate: train on all but a share of the pairs (never the held-out gold) and fit one temperature on that share.
2. Refit: train the same number of epochs on every pair, starting from the baseline's own head. This doubles the time.
   At 144 pairs of 8 confusable intents (320 test items, 3 seeds) keeping the share out cost a point of accuracy, and
   choosing the number of epochs by the share's loss cost 0.7: it is too small to choose by. The baseline uses every
   pair, so the adapter must too.

Everything random comes from the seed and sums are made by one thread: the same job gives the same bytes on the same
machine, whether or not it was interrupted.
"""

import dataclasses
import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backend.domain.encoders.card_prefixes import Use
from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, TrainOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.calibration import fit_temperature, held_answers
from gpu_runners.distill.label.dataset import Pair, read_pairs, split
from gpu_runners.distill.label.fit import Fit, pick_precision
from gpu_runners.distill.label.options import read_options
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.errors import JobStopped
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import LabelNet, best_device, embed_all, load_body, width_of
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.label_adapter import AdapterConfig, Head
from gpu_runners.models.merging import from_peft, linear_names


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    REFIT = "refit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters(checkpoint.JobCounters):
    """The state of a run: `step` optimiser steps of `phase` are done, `steps_before` of the phase before it;
    `epoch_loss` is the sum over the current epoch."""

    phase: str
    step: int
    steps_before: int
    epoch_loss: float
    temperature: float
    log: list[dict[str, Any]]
    held_confidences_ppm: list[int] = field(default_factory=list)
    held_right: list[bool] = field(default_factory=list)


def distill(
    job: DistillJob, dataset: bytes, *, base: Base, resume: Path | None = None, hooks: Hooks | None = None
) -> tuple[bytes, DistillResult]:
    """The adapter blob and its result. Raises JobFailed (invalid_dataset, invalid_options, diverged,
    base_unsupported, base_wrong_architecture) and JobStopped."""
    started = time.monotonic()
    options = read_options(job.train)
    pairs = read_pairs(dataset, job.labels)
    with deterministic(options.seed):
        run = _Run(job=job, options=options, pairs=pairs, base=base, hooks=hooks or Hooks())
        resumed_from = run.restore(resume) if resume is not None else 0
        adapter = run.finish()
    blob = adapters.to_bytes(adapter)
    return blob, DistillResult(
        adapter_sha256=hashlib.sha256(blob).hexdigest(),
        adapter_config=run.config().to_json(),
        base_model_sha256=base.sha256,
        n_pairs=len(pairs),
        n_parameters=adapter.n_parameters,
        temperature=run.temperature,
        training_log=run.log,
        active=run.active(),
        runner_ms=round((time.monotonic() - started) * 1000),
        resumed_from_epoch=resumed_from,
        held_confidences_ppm=run.held_confidences_ppm,
        held_right=run.held_right,
        n_tokens=sum(map(len, run.rows)) * options.epochs,
    )


class _Run:
    """The two fits of one job and what passes between them: the number of epochs and the temperature."""

    def __init__(self, *, job: DistillJob, options: TrainOptions, pairs: list[Pair], base: Base, hooks: Hooks) -> None:
        self.job, self.options, self.base, self.hooks = job, options, base, hooks
        device = best_device()
        self.precision = pick_precision(options.precision, device)
        self.train_pairs, self.held_pairs = split(pairs, share=options.validation_share, seed=options.seed)
        self.all_pairs = self.train_pairs + self.held_pairs
        self.body = load_body(base).to(device)
        self.settings = sentence_settings(base, Use.CLASSIFICATION)
        self.tokenizer = TextTokenizer(
            base, max_tokens=options.max_tokens, prefix=self.settings.prefix, at_most=self.settings.max_tokens
        )
        self.rows = self.tokenizer.ids([pair.text for pair in self.all_pairs])
        frozen = LabelNet(self.body, width=width_of(self.body), n_labels=len(job.labels), pooling=self.settings.pooling)
        self.embedded = embed_all(frozen.to(device), self.rows).numpy()
        self.baseline: Head = fit_head(self.embedded, self.all_pairs, n_labels=len(job.labels))
        self.log: list[dict[str, Any]] = []
        self.temperature, self.epoch_loss = 1.0, 0.0
        self.held_confidences_ppm: list[int] = []
        self.held_right: list[bool] = []
        self.phase = Phase.CALIBRATE if self.held_pairs else Phase.REFIT
        self.fit = self._new_fit()
        self._steps_before = 0
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    def _new_fit(self) -> Fit:
        if self.phase is Phase.REFIT:
            pairs, head = self.all_pairs, self.baseline
        else:  # this head must not have seen the held pairs
            pairs = self.train_pairs
            head = fit_head(self.embedded[: len(pairs)], pairs, n_labels=len(self.job.labels))
        return Fit(
            body=self.body,
            pairs=pairs,
            rows=self.rows[: len(pairs)],
            head=head,
            options=self.options,
            precision=self.precision,
            pooling=self.settings.pooling,
        )

    def finish(self) -> adapters.Adapter:
        if self.phase is Phase.CALIBRATE:
            self._train()
            self._steps_before, self.phase = self.fit.step, Phase.REFIT
            self.fit = self._new_fit()
        self._train()
        return from_peft(self.fit.net, baseline=self.baseline)

    def _train(self) -> None:
        while self.fit.step < self.fit.n_steps:
            loss = self.fit.advance()
            self.epoch_loss += loss
            if self.fit.step % self.fit.steps_per_epoch == 0:
                self._end_epoch(self.fit.step // self.fit.steps_per_epoch)
            self._report(loss)
            stop = self.hooks.should_stop()
            if stop or self._cadence.is_due():
                self._cadence.save(checkpoint.Snapshot(counters=self._counters(), tensors=self.fit.tensors()))
            if stop:
                raise JobStopped()

    def _end_epoch(self, epoch: int) -> None:
        row: dict[str, Any] = {
            "fit": self.phase.value,
            "epoch": epoch,
            "train_loss": round(self.epoch_loss / self.fit.steps_per_epoch, 6),
        }
        self.epoch_loss = 0.0
        if self.phase is Phase.CALIBRATE:
            net = self.fit.net.eval()
            with torch.inference_mode():
                embedded = embed_all(net, self.rows[len(self.train_pairs) :])
                logits = net.logits(embedded.to(self.fit.device)).cpu().numpy().astype(np.float64)
            labels = np.array([pair.label for pair in self.held_pairs])
            self.temperature, validation_loss = fit_temperature(logits, labels)
            self.held_confidences_ppm, self.held_right = held_answers(logits / self.temperature, labels)
            row |= {
                "validation_loss": round(validation_loss, 6),
                "validation_correct": int((logits.argmax(axis=1) == labels).sum()),
                "temperature": self.temperature,
            }
        self.log.append(row)

    def _report(self, loss: float) -> None:
        self._done_here += 1
        ahead = (
            0
            if self.phase is Phase.REFIT
            else math.ceil(len(self.all_pairs) / self.options.batch_size) * self.options.epochs
        )
        step, n_steps = self._steps_before + self.fit.step, self._steps_before + self.fit.n_steps + ahead
        eta_s = (self.hooks.clock() - self._started) / self._done_here * (n_steps - step)
        epoch = (self.fit.step - 1) // self.fit.steps_per_epoch + 1
        note = f"{self.phase.value}, epoch {epoch} of {self.fit.n_steps // self.fit.steps_per_epoch}"
        self.hooks.on_step(StepDone(step=step, n_steps=n_steps, loss=loss, eta_s=eta_s, note=note))

    def _counters(self) -> Counters:
        return Counters(
            fingerprint=self._fingerprint(),
            phase=self.phase,
            step=self.fit.step,
            steps_before=self._steps_before,
            epoch_loss=self.epoch_loss,
            temperature=self.temperature,
            held_confidences_ppm=self.held_confidences_ppm,
            held_right=self.held_right,
            log=self.log,
        )

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint; returns the number of epochs already done in both fits, 0 where the file is not
        this job's."""
        saved = checkpoint.read(path, Counters, fingerprint=self._fingerprint())
        if saved is None:
            return 0
        c, tensors = saved
        self.log, self.temperature = c.log, c.temperature
        self.held_confidences_ppm, self.held_right = c.held_confidences_ppm, c.held_right
        self.epoch_loss, self._steps_before, self.phase = c.epoch_loss, c.steps_before, Phase(c.phase)
        self.fit = self._new_fit()
        self.fit.restore(tensors, step=c.step)
        return len(self.log)

    def config(self) -> AdapterConfig:
        o = self.options
        return AdapterConfig(
            format=adapters.FORMAT,
            base=self.base.name,
            base_sha256=self.base.sha256,
            rank=o.rank,
            alpha=o.alpha,
            pooling=self.settings.pooling.value,
            target_modules=list(linear_names(self.body)),
            normalize=True,
            scale=adapters.SCALE,
            max_tokens=self.tokenizer.max_tokens,
            prefix=self.settings.prefix,
        )

    def active(self) -> dict[str, Any]:
        """The settings that were really switched on, for the receipt."""
        return {
            "device": self.fit.device.type,
            "precision": self.precision,
            "threads": 1,
            "optimizer": "torch.AdamW",
            "batching": "length-bucketed",
            "deterministic": True,
            "pooling": self.settings.pooling.value,
            "prefix": self.settings.prefix,
            "n_train": len(self.all_pairs),
            "n_validation": len(self.held_pairs),
            "versions": {
                name: version(name) for name in ("torch", "transformers", "peft", "tokenizers", "scikit-learn")
            },
        }

    def _fingerprint(self) -> str:
        job = self.job.to_json() | {
            "base_sha256": self.base.sha256,
            "reading": dataclasses.asdict(self.settings),
            "precision": self.precision,
            "device": best_device().type,
        }
        del job["checkpoint_every_s"]
        return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
