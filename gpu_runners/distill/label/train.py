"""Distil labelled pairs into one LoRA adapter and linear head over a frozen encoder: one fit on every pair, after a
small one that measures how sure such a fit is of texts that it has not seen.

1. Calibrate: train the top layers alone on all but a share of the pairs (never the held-out gold), and fit one
   temperature on that share.
2. Train: every pair, starting from the baseline's own head; the baseline uses every pair, so the adapter must too.

Why, and what was measured: docs/decisions/0036-one-fit.md. Everything random comes from the seed and sums are made by
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
from numpy.typing import NDArray

from backend.domain.encoders.card_prefixes import Use
from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, TrainOptions
from backend.domain.labeling.calibration import fit_temperature
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import Pair, read_pairs, split, targets_of
from gpu_runners.distill.label.fit import Fit, n_steps_of, pick_precision
from gpu_runners.distill.label.nets import Engine, by_length, first_layer, load_engine
from gpu_runners.distill.label.options import read_options
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.errors import JobStopped
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import best_device
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.label_adapter import AdapterConfig, Head

CALIBRATION_LAYERS = 2  # of the calibration's fit; see docs/decisions/0036-one-fit.md


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    TRAIN = "train"


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
    )


class _Run:
    """The fits of one job and what passes between them: the temperature."""

    def __init__(self, *, job: DistillJob, options: TrainOptions, pairs: list[Pair], base: Base, hooks: Hooks) -> None:
        self.job, self.options, self.base, self.hooks = job, options, base, hooks
        device = best_device()
        self.precision = pick_precision(options.precision, device)
        self.train_pairs, self.held_pairs = split(pairs, share=options.validation_share, seed=options.seed)
        self.all_pairs = self.train_pairs + self.held_pairs
        self.settings = sentence_settings(base, Use.CLASSIFICATION)
        self.tokenizer = TextTokenizer(
            base, max_tokens=options.max_tokens, prefix=self.settings.prefix, at_most=self.settings.max_tokens
        )
        self.rows = self.tokenizer.ids([pair.text for pair in self.all_pairs])
        self.engine: Engine = load_engine(base, device=device, pooling=self.settings.pooling, precision=self.precision)
        self.embedded = self.engine.embed(self.rows)
        self.baseline: Head = fit_head(self.embedded, self.all_pairs, n_labels=len(job.labels))
        self.log: list[dict[str, Any]] = []
        self.temperature, self.epoch_loss = 1.0, 0.0
        self.phase = Phase.CALIBRATE if self.held_pairs else Phase.TRAIN
        self.fit = self._new_fit()
        self._steps_before = 0
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    def _new_fit(self) -> Fit:
        n_labels, options = len(self.job.labels), self.options
        if self.phase is Phase.TRAIN:
            pairs, head = self.all_pairs, self.baseline
        else:  # this head must not have seen the held pairs
            pairs, options = self.train_pairs, dataclasses.replace(options, layers=self._calibration_layers())
            head = fit_head(self.embedded[: len(pairs)], pairs, n_labels=n_labels)
        net = self.engine.net(self.rows, head, options)
        return Fit(net=net, pairs=pairs, rows=self.rows[: len(pairs)], n_labels=n_labels, options=options)

    def _calibration_layers(self) -> int:
        return min(self.options.layers, CALIBRATION_LAYERS) or CALIBRATION_LAYERS

    def finish(self) -> adapters.Adapter:
        if self.phase is Phase.CALIBRATE:
            self._train()
            self._steps_before, self.phase = self.fit.step, Phase.TRAIN
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
            logits, n_labels = self._held_logits(), len(self.job.labels)
            targets = targets_of(self.held_pairs, n_labels).astype(np.float64)
            weights = np.array([pair.weight for pair in self.held_pairs])
            self.temperature, validation_loss = fit_temperature(logits, targets, weights=weights)
            labels = np.array([pair.label for pair in self.held_pairs])
            row |= {
                "validation_loss": round(validation_loss, 6),
                "validation_correct": int((logits.argmax(axis=1) == labels).sum()),
                "temperature": self.temperature,
            }
        self.log.append(row)

    def _held_logits(self) -> NDArray[np.float64]:
        """(n, n_labels), of the pairs that this fit does not train on."""
        first = len(self.train_pairs)
        out = np.empty((len(self.held_pairs), len(self.job.labels)))
        with torch.inference_mode():
            for chosen in by_length(self.rows[first:]):
                out[chosen] = self.fit.net.logits([first + i for i in chosen], dropout=False).cpu().numpy()
        return out

    def _report(self, loss: float) -> None:
        self._done_here += 1
        ahead = 0 if self.phase is Phase.TRAIN else n_steps_of(len(self.all_pairs), self.options)
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
            "layers": self.engine.n_layers - first_layer(self.engine.n_layers, self.options.layers),
            "precision": self.precision,
            "threads": 1,
            "optimizer": "torch.AdamW, fused",
            "batching": "length-bucketed",
            "deterministic": True,
            "pooling": self.settings.pooling.value,
            "prefix": self.settings.prefix,
            "n_train": len(self.all_pairs),
            "n_validation": len(self.held_pairs),
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
