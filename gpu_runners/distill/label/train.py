"""Distil labelled pairs into one LoRA adapter and linear head over a frozen encoder: one fit on every pair, after
small ones that measure how sure such a fit is of texts that it has not seen.

1. Calibrate: in up to three folds of the pairs (never the held-out gold), train the top layer alone on the others,
   and fit one temperature on all answers about held pairs.
2. Train: every pair, starting from the baseline's own head; the baseline uses every pair, so the adapter must too.

Why, and what was measured: docs/decisions/0038-one-fit.md. Everything random comes from the seed and sums are made by
one thread: the same job gives the same bytes on the same machine, whether or not it was interrupted.
"""

import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass
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
from gpu_runners.distill.label.calibration import Calibration
from gpu_runners.distill.label.dataset import Pair, read_pairs
from gpu_runners.distill.label.fit import Fit, n_steps_of, pick_precision
from gpu_runners.distill.label.folds import folds
from gpu_runners.distill.label.nets import Engine, first_layer, load_engine
from gpu_runners.distill.label.options import read_options
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.errors import JobStopped
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import best_device
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.label_adapter import AdapterConfig, Head

CALIBRATION_LAYERS = 1  # that a fold's fit trains; see docs/decisions/0038-one-fit.md
HELD = "held.logits"  # of a checkpoint


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    TRAIN = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters(checkpoint.JobCounters):
    """The state of a run: `fits` are done, and `step` optimiser steps of the one that follows them; `epoch_loss` is the
    sum over the current epoch."""

    fits: int
    step: int
    epoch_loss: float
    temperature: float
    log: list[dict[str, Any]]


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
    confidences_ppm, right = run.calibration.answers()
    return blob, DistillResult(
        adapter_sha256=hashlib.sha256(blob).hexdigest(),
        adapter_config=run.config().to_json(),
        base_model_sha256=base.sha256,
        n_pairs=len(pairs),
        n_parameters=adapter.n_parameters,
        temperature=run.calibration.temperature,
        training_log=run.log,
        active=run.active(),
        runner_ms=round((time.monotonic() - started) * 1000),
        resumed_from_epoch=resumed_from,
        held_confidences_ppm=confidences_ppm,
        held_right=right,
        n_tokens=sum(map(len, run.rows)) * options.epochs,
    )


class _Run:
    """The fits of one job, one after another: the folds', then the one on every pair."""

    def __init__(self, *, job: DistillJob, options: TrainOptions, pairs: list[Pair], base: Base, hooks: Hooks) -> None:
        self.job, self.options, self.base, self.hooks, self.pairs = job, options, base, hooks, pairs
        device = best_device()
        self.precision = pick_precision(options.precision, device)
        self.settings = sentence_settings(base, Use.CLASSIFICATION)
        self.tokenizer = TextTokenizer(
            base, max_tokens=options.max_tokens, prefix=self.settings.prefix, at_most=self.settings.max_tokens
        )
        self.rows = self.tokenizer.ids([pair.text for pair in pairs])
        self.engine: Engine = load_engine(base, device=device, pooling=self.settings.pooling, precision=self.precision)
        self.embedded = self.engine.embed(self.rows)
        self.baseline: Head = fit_head(self.embedded, pairs, n_labels=len(job.labels))
        self.folds = folds(pairs, share=options.validation_share, seed=options.seed)
        self.calibration = Calibration(pairs, self.rows, n_labels=len(job.labels))
        self.log: list[dict[str, Any]] = []
        self.epoch_loss = 0.0
        self.fits = 0
        self.fit = self._new_fit()
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    @property
    def phase(self) -> Phase:
        return Phase.CALIBRATE if self.fits < len(self.folds) else Phase.TRAIN

    def _new_fit(self) -> Fit:
        n_labels, options = len(self.job.labels), self.options
        members, head = np.arange(len(self.pairs)), self.baseline
        if self.phase is Phase.CALIBRATE:  # this head must not have seen the held pairs
            members, options = self.folds[self.fits].trained, dataclasses.replace(options, layers=CALIBRATION_LAYERS)
            head = fit_head(self.embedded[members], [self.pairs[i] for i in members], n_labels=n_labels)
        net = self.engine.net(self.rows, head, options)
        return Fit(net=net, pairs=self.pairs, rows=self.rows, members=members, n_labels=n_labels, options=options)

    def finish(self) -> adapters.Adapter:
        while self.phase is Phase.CALIBRATE:
            self._train()
            self.fits += 1
            self.fit = self._new_fit()
        self._train()
        return self.fit.net.adapter(self.baseline)

    def _train(self) -> None:
        while self.fit.step < self.fit.n_steps:
            loss = self.fit.advance()
            self.epoch_loss += loss
            if self.fit.step % self.fit.steps_per_epoch == 0:
                self._end_epoch(self.fit.step // self.fit.steps_per_epoch)
            self._report(loss)
            stop = self.hooks.should_stop()
            if stop or self._cadence.is_due():
                tensors = self.fit.tensors() | {HELD: torch.from_numpy(self.calibration.logits)}
                self._cadence.save(checkpoint.Snapshot(counters=self._counters(), tensors=tensors))
            if stop:
                raise JobStopped()

    def _end_epoch(self, epoch: int) -> None:
        train_loss = round(self.epoch_loss / self.fit.steps_per_epoch, 6)
        row: dict[str, Any] = {"fit": self.phase.value, "epoch": epoch, "train_loss": train_loss}
        self.epoch_loss = 0.0
        if self.phase is Phase.CALIBRATE:
            row["fold"] = self.fits + 1
            if epoch == self.options.epochs:
                row |= self.calibration.ask(self.fit.net, self.folds[self.fits])
        self.log.append(row)

    def _report(self, loss: float) -> None:
        """Time is expected by the layers that a step trains."""
        costs = [1] * len(self.folds) + [self._n_layers()]
        n_steps = [n_steps_of(len(fold.trained), self.options) for fold in self.folds]
        n_steps.append(n_steps_of(len(self.pairs), self.options))
        self._done_here += costs[self.fits]
        left = costs[self.fits] * (n_steps[self.fits] - self.fit.step)
        left += sum(cost * n for cost, n in list(zip(costs, n_steps, strict=True))[self.fits + 1 :])
        eta_s = (self.hooks.clock() - self._started) / self._done_here * left
        epoch = (self.fit.step - 1) // self.fit.steps_per_epoch + 1
        of_fold = f" {self.fits + 1} of {len(self.folds)}" if self.phase is Phase.CALIBRATE else ""
        note = f"{self.phase.value}{of_fold}, epoch {epoch} of {self.options.epochs}"
        step = sum(n_steps[: self.fits]) + self.fit.step
        self.hooks.on_step(StepDone(step=step, n_steps=sum(n_steps), loss=loss, eta_s=eta_s, note=note))

    def _n_layers(self) -> int:
        return self.engine.n_layers - first_layer(self.engine.n_layers, self.options.layers)

    def _counters(self) -> Counters:
        return Counters(
            fingerprint=self._fingerprint(),
            fits=self.fits,
            step=self.fit.step,
            epoch_loss=self.epoch_loss,
            temperature=self.calibration.temperature,
            log=self.log,
        )

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint; returns the number of epochs already done in all fits, 0 where the file is not this
        job's."""
        saved = checkpoint.read(path, Counters, fingerprint=self._fingerprint())
        if saved is None:
            return 0
        c, tensors = saved
        self.log, self.epoch_loss, self.fits = c.log, c.epoch_loss, c.fits
        self.calibration.temperature, self.calibration.logits = c.temperature, tensors[HELD].numpy()
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
            target_modules=list(self.engine.target_modules),
            normalize=True,
            scale=adapters.SCALE,
            max_tokens=self.tokenizer.max_tokens,
            prefix=self.settings.prefix,
        )

    def active(self) -> dict[str, Any]:
        """The settings that were really switched on, for the receipt."""
        return {
            "device": self.fit.net.device.type,
            "engine": self.engine.name,
            "layers": self._n_layers(),
            "precision": self.precision,
            "threads": 1,
            "optimizer": "torch.AdamW, fused",
            "batching": "length-bucketed",
            "deterministic": True,
            "pooling": self.settings.pooling.value,
            "prefix": self.settings.prefix,
            "n_train": len(self.pairs),
            "n_validation": sum(len(fold.held) for fold in self.folds),
            "folds": len(self.folds),
            "versions": {name: version(name) for name in (*self.engine.libraries, "tokenizers", "scikit-learn")},
        }

    def _fingerprint(self) -> str:
        job = self.job.to_json() | {
            "base_sha256": self.base.sha256,
            "reading": dataclasses.asdict(self.settings),
            "precision": self.precision,
            "device": best_device().type,
            "engine": self.engine.name,
        }
        del job["checkpoint_every_s"]
        return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
