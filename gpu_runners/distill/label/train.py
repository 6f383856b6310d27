"""Distil labelled pairs into one LoRA adapter and linear head over a frozen encoder: one fit on every pair, after
small ones that measure how sure such a fit is of texts that it has not seen.

1. Calibrate: in up to three folds of the pairs (never the held-out gold), train the top layer alone on the others (all
   layers where pairs are few), and fit one temperature on all answers about held pairs. The frozen head answers them
   too. Where it is ahead and the job names no student, the folds are trained once more with all their layers; where it
   still is, it is the student.
2. Train: every pair, starting from the baseline's own head; the baseline uses every pair, so the adapter must too. Of
   a frozen head nothing is left to train. A contrastive adapter, which is what few pairs train, goes over half of its
   passes by the contrastive objective.

Why, and what was measured: docs/decisions/0038-one-fit.md, 0042 and 0048. Everything random comes from the seed and
sums are made by one thread: the same job gives the same bytes on the same machine, whether or not it was interrupted.
"""

import dataclasses
import hashlib
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backend.domain.encoders.card_prefixes import Use
from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, TrainOptions
from backend.domain.jobs.students import AUTO, Standing, Student, is_few, standings, trained_by
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.calibration import Asked, Calibration
from gpu_runners.distill.label.contrastive import LEAST_BATCH
from gpu_runners.distill.label.dataset import Pair, read_pairs
from gpu_runners.distill.label.fit import Fit, n_steps_of, pick_precision
from gpu_runners.distill.label.folds import Fold, folds
from gpu_runners.distill.label.nets import Engine, first_layer, load_engine
from gpu_runners.distill.label.options import read_options
from gpu_runners.distill.label.record import Counters, active_settings, adapter_config, fingerprint
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.errors import JobStopped
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import best_device
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.label_adapter import AdapterConfig, Head

CALIBRATION_LAYERS = 1  # that a fold's fit trains; see docs/decisions/0038-one-fit.md
HELD = "held.logits."  # of a checkpoint, and whose


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    TRAIN = "train"


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
    confidences_ppm, right = run.calibration.answers(run.student)
    return blob, DistillResult(
        adapter_sha256=hashlib.sha256(blob).hexdigest(),
        adapter_config=run.config().to_json(),
        base_model_sha256=base.sha256,
        n_pairs=len(pairs),
        n_parameters=adapter.n_parameters,
        temperature=run.calibration.temperature(run.student),
        training_log=run.log,
        active=run.active(),
        runner_ms=round((time.monotonic() - started) * 1000),
        resumed_from_epoch=resumed_from,
        held_confidences_ppm=confidences_ppm,
        held_right=right,
        n_tokens=sum(map(len, run.rows)) * (1 if run.student is Student.FROZEN else options.epochs),
        student=run.student.value,
        competition=[one.to_json() for one in run.standings()],
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
        self.student = trained_by(options.student, len(pairs))
        self.n_contrastive = options.epochs // 2 if self.student is Student.CONTRASTIVE else 0
        asked = Asked.WHOLE if is_few(len(pairs)) else Asked.TOP
        self.plan: list[tuple[Fold, Asked]] = [(fold, asked) for fold in self.folds]
        self.calibration = Calibration(pairs, self.rows, n_labels=len(job.labels), adapter=self.student)
        self.log: list[dict[str, Any]] = []
        self.epoch_loss, self.epoch_steps = 0.0, 0
        self.fits, self.steps_before = 0, 0
        self.fit = self._new_fit()
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    @property
    def phase(self) -> Phase:
        return Phase.CALIBRATE if self.fits < len(self.plan) else Phase.TRAIN

    def _new_fit(self) -> Fit:
        n_labels, options = len(self.job.labels), self.options
        members, head = np.arange(len(self.pairs)), self.baseline
        if self.phase is Phase.CALIBRATE:  # this head must not have seen the held pairs
            fold, asked = self.plan[self.fits]
            members = fold.trained
            head = fit_head(self.embedded[members], [self.pairs[i] for i in members], n_labels=n_labels)
            self.calibration.ask_head(self.embedded, head, fold)
            if asked is Asked.TOP:
                options = dataclasses.replace(options, layers=CALIBRATION_LAYERS)
        if self.n_contrastive:  # which learns from the pairs of texts in a batch
            options = dataclasses.replace(options, batch_size=max(options.batch_size, LEAST_BATCH))
        return Fit(
            net=self.engine.net(self.rows, head, options),
            pairs=self.pairs,
            rows=self.rows,
            members=members,
            n_labels=n_labels,
            options=options,
            n_contrastive=self.n_contrastive,
        )

    def finish(self) -> adapters.Adapter:
        while self.phase is Phase.CALIBRATE:
            if self.student is not Student.FROZEN:
                self._train()
            self.fits, self.steps_before = self.fits + 1, self.steps_before + self.fit.step
            self._decide()
            self.fit = self._new_fit()
        if self.student is Student.FROZEN:
            return adapters.Adapter(lora={}, head=self.baseline, baseline=self.baseline)
        self._train()
        return self.fit.net.adapter(self.baseline)

    def _decide(self) -> None:
        """Choose the student once all folds have answered; train them once more, whole, where the frozen head beats
        their top layers."""
        if self.options.student != AUTO or not self.folds or self.fits % len(self.folds):
            return
        of = self.plan[self.fits - 1][1]
        if self.calibration.is_head_ahead(of):
            if of is Asked.WHOLE:
                self.student = Student.FROZEN
            else:
                self._look_again()

    def _look_again(self) -> None:
        self.plan += [(fold, Asked.WHOLE) for fold in self.folds]

    def standings(self) -> tuple[Standing, ...]:
        return standings(self.calibration.right(), self.calibration.log_losses(), self.student)

    def _train(self) -> None:
        while not self.fit.is_done:
            loss = self.fit.advance()
            self.epoch_loss, self.epoch_steps = self.epoch_loss + loss, self.epoch_steps + 1
            if self.fit.is_epoch_done:
                self._end_epoch(self.fit.epoch + 1)
            self._report(loss)
            stop = self.hooks.should_stop()
            if stop or self._cadence.is_due():
                held = {HELD + of: torch.from_numpy(logits) for of, logits in self.calibration.logits.items()}
                tensors = self.fit.tensors() | held
                self._cadence.save(checkpoint.Snapshot(counters=self._counters(), tensors=tensors))
            if stop:
                raise JobStopped()

    def _end_epoch(self, epoch: int) -> None:
        train_loss = round(self.epoch_loss / self.epoch_steps, 6)
        row: dict[str, Any] = {
            "fit": self.phase.value, "epoch": epoch, "train_loss": train_loss, "n_trained": self.fit.n_trained
        }  # fmt: skip
        row |= {"objective": "contrastive"} if self.fit.is_contrastive else {}
        self.epoch_loss, self.epoch_steps = 0.0, 0
        if self.phase is Phase.CALIBRATE:
            fold, asked = self.plan[self.fits]
            row |= {"fold": self.fits % len(self.folds) + 1, "layers": self._layers_of(asked)}
            if epoch == self.options.epochs:
                row |= self.calibration.ask(self.fit.net, fold, asked)
        self.log.append(row)

    def _report(self, loss: float) -> None:
        """Time is expected by the layers that a step trains. Pairs rest, so that fewer steps come than are expected."""
        costs = [self._layers_of(asked) for _, asked in self.plan] + [self._n_layers()]
        to_come = [n_steps_of(len(fold.trained), self.options) for fold, _ in self.plan]
        to_come.append(n_steps_of(len(self.pairs), self.options))
        to_come = [self.fit.n_steps - self.fit.step, *to_come[self.fits + 1 :]]
        self._done_here += costs[self.fits]
        left = sum(cost * n for cost, n in zip(costs[self.fits :], to_come, strict=True))
        eta_s = (self.hooks.clock() - self._started) / self._done_here * left
        of_fold = f" {self.fits + 1} of {len(self.plan)}" if self.phase is Phase.CALIBRATE else ""
        note = f"{self.phase.value}{of_fold}, epoch {self.fit.epoch + 1} of {self.options.epochs}"
        step = self.steps_before + self.fit.step
        self.hooks.on_step(StepDone(step=step, n_steps=step + sum(to_come), loss=loss, eta_s=eta_s, note=note))

    def _layers_of(self, asked: Asked) -> int:
        return CALIBRATION_LAYERS if asked is Asked.TOP else self._n_layers()

    def _n_layers(self) -> int:
        return self.engine.n_layers - first_layer(self.engine.n_layers, self.options.layers)

    def _counters(self) -> Counters:
        return Counters(
            fingerprint=self._fingerprint(),
            fits=self.fits,
            steps_before=self.steps_before,
            step=self.fit.step,
            epoch_loss=self.epoch_loss,
            epoch_steps=self.epoch_steps,
            log=self.log,
        )

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint; returns the number of epochs already done in all fits, 0 where the file is not this
        job's."""
        saved = checkpoint.read(path, Counters, fingerprint=self._fingerprint())
        if saved is None:
            return 0
        c, tensors = saved
        self.log, self.fits, self.steps_before = c.log, c.fits, c.steps_before
        self.epoch_loss, self.epoch_steps = c.epoch_loss, c.epoch_steps
        self.calibration.logits = {of: tensors[HELD + of].numpy() for of in Asked}
        if self.options.student == AUTO and len(self.folds) <= self.fits and self.calibration.is_head_ahead(Asked.TOP):
            self._look_again()  # as the process did that saved the checkpoint
        self.fit = self._new_fit()
        self.fit.restore(tensors, step=c.step)
        return len(self.log)

    def config(self) -> AdapterConfig:
        return adapter_config(
            self.base, self.options, self.settings, max_tokens=self.tokenizer.max_tokens, engine=self.engine
        )

    def active(self) -> dict[str, Any]:
        return active_settings(
            self.settings,
            self.engine,
            device=self.fit.net.device,
            precision=self.precision,
            layers=0 if self.student is Student.FROZEN else self._n_layers(),
            n_contrastive=self.n_contrastive,
            folds=self.folds,
            n_train=len(self.pairs),
            options=self.options,
        )

    def _fingerprint(self) -> str:
        return fingerprint(self.job, self.base, self.settings, precision=self.precision, engine=self.engine)
