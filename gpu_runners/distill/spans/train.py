"""Distil an extraction's pairs into one LoRA adapter with heads for spans and classes over a frozen encoder.

1. Align: each pair's answer becomes spans of its input and classes (`backend.domain.extraction.alignment`), and these
   the targets of the encoder's tokens.
2. Frozen: the states of the encoder as it is, on which the naive alternative is trained, and on which a logistic
   regression for each closed set is where its head begins.
3. Calibrate: one fit without a fifth of the pairs (never the held-out gold), of half as many passes, asked about them:
   what a confidence of such a model is worth.
4. Train: every pair, from the encoder as it is.

Everything random comes from the seed and sums are made by one thread: the same job gives the same bytes on the same
machine, whether or not it was interrupted.
"""

import dataclasses
import hashlib
import json
import time
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from backend.domain.encoders.card_prefixes import Use
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.plan import ExtractionPlan, Way
from backend.domain.jobs.span_jobs import DistillSpansJob, DistillSpansResult, SpanOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.label.fit import pick_precision
from gpu_runners.distill.label.nets import Engine, load_engine
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.distill.spans.calibration import Judged, judge, split_held
from gpu_runners.distill.spans.dataset import align_pairs, example_of, read_pairs
from gpu_runners.distill.spans.fit import Fit
from gpu_runners.distill.spans.frozen_heads import FrozenStates
from gpu_runners.distill.spans.net import Heads, SpanNet
from gpu_runners.distill.spans.options import read_options
from gpu_runners.distill.spans.swapping import Swapping
from gpu_runners.errors import JobFailed, JobStopped
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import best_device
from gpu_runners.models.encoder_tokens import sentence_settings
from gpu_runners.models.spans import adapter as adapters
from gpu_runners.models.spans.adapter import SpanAdapter, SpanConfig, head_sizes
from gpu_runners.models.spans.decoding import PLAIN, Calibration
from gpu_runners.models.spans.tokens import SpanTokenizer

TRAINER = 4  # counts the changes after which a checkpoint of before is no other's to go on with


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    TRAIN = "train"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counters(checkpoint.JobCounters):
    """The state of a run: `step` of the fit of this phase, the loss of the current epoch, and what calibrated."""

    phase: str
    step: int
    epoch_loss: float
    calibration: dict[str, list[int]]
    log: list[dict[str, Any]]


def distill_spans(
    job: DistillSpansJob, dataset: bytes, *, base: Base, resume: Path | None = None, hooks: Hooks | None = None
) -> tuple[bytes, DistillSpansResult]:
    """The adapter blob and its result. Raises JobFailed (invalid_dataset, invalid_options, diverged, base_unsupported,
    base_wrong_architecture) and JobStopped."""
    started = time.monotonic()
    options = read_options(job.options)
    with deterministic(options.seed):
        run = _Run(job, dataset, options=options, base=base, hooks=hooks or Hooks())
        resumed_from = run.restore(resume) if resume is not None else 0
        adapter = run.finish()
    blob = adapters.to_bytes(adapter)
    return blob, DistillSpansResult(
        adapter_sha256=hashlib.sha256(blob).hexdigest(),
        adapter_config=run.config().to_json(),
        base_model_sha256=base.sha256,
        calibration=run.calibration.to_json(),
        n_pairs=len(run.pairs),
        n_aligned=sum(not alignment.missing for alignment in run.alignments),
        n_parameters=adapter.n_parameters,
        training_log=run.log,
        active=run.active(),
        runner_ms=round((time.monotonic() - started) * 1000),
        resumed_from_epoch=resumed_from,
        n_tokens=sum(example.n_ids for example in run.examples) * options.epochs,
    )


class _Run:
    """The fits of one job, one after another."""

    def __init__(self, job: DistillSpansJob, dataset: bytes, *, options: SpanOptions, base: Base, hooks: Hooks) -> None:
        self.job, self.options, self.base, self.hooks = job, options, base, hooks
        self.plan = _plan_of(job)
        self.assembler = Assembler(job.schema, self.plan)
        self.pairs = read_pairs(dataset)
        device = best_device()
        self.precision = pick_precision(options.precision, device)
        self.settings = sentence_settings(base, Use.CLASSIFICATION)
        self.tokenizer = SpanTokenizer(base, max_tokens=options.max_tokens, prefix=self.settings.prefix)
        self.alignments = align_pairs(self.plan, self.assembler.leaves, self.pairs)
        tokens = self.tokenizer.read([pair.text for pair in self.pairs])
        self.examples = [
            example_of(self.plan, self.assembler.leaves, *parts)
            for parts in zip(self.pairs, self.alignments, tokens, strict=True)
        ]
        self.engine: Engine = load_engine(base, device=device, pooling=self.settings.pooling, precision=self.precision)
        self.sizes = head_sizes(self.plan, has_lists=any(leaf.list_path for leaf in self.assembler.leaves))
        self.many = frozenset(i for i in self.plan.class_rules() if self.plan.rules[i].way is Way.MANY)
        self.trained, self.held = split_held(self.pairs, share=options.validation_share, seed=options.seed)
        self.frozen = FrozenStates(self.engine.lora(rank=1, alpha=1), self.examples, width=self.engine.width)
        self.calibration: Calibration = PLAIN
        self.log: list[dict[str, Any]] = []
        self.epoch_loss = 0.0
        self.phase = Phase.CALIBRATE if len(self.held) else Phase.TRAIN
        self.fit = self._new_fit()
        self._done_here, self._started = 0, hooks.clock()
        self._cadence = checkpoint.Cadence(hooks, every_s=job.checkpoint_every_s)

    def _new_fit(self) -> Fit:
        members = [int(i) for i in self.trained] if self.phase is Phase.CALIBRATE else range(len(self.examples))
        begun = self.frozen.first_heads(self.sizes, members, many=self.many)
        torch.manual_seed(self.options.seed)
        lora = self.engine.lora(rank=self.options.rank, alpha=self.options.alpha)
        heads = Heads(self.sizes, width=self.engine.width, device=lora.device, begun=begun)
        net = SpanNet(lora, heads, reads_kinds=self.engine.takes_added)
        swapping = Swapping(
            self.plan,
            self.assembler.leaves,
            self.tokenizer,
            [self.pairs[i] for i in members],
            [self.alignments[i] for i in members],
            [self.examples[i] for i in members],
            share=self.options.swap_share,
            seed=self.options.seed,
        )
        return Fit(net, swapping.of_epoch, self._options_of(self.phase), many=self.many)

    def _options_of(self, phase: Phase) -> SpanOptions:
        """The options of a fit: the one that calibrates goes over its pairs half as often."""
        if phase is Phase.TRAIN:
            return self.options
        return dataclasses.replace(self.options, epochs=max(1, self.options.epochs // 2))

    def finish(self) -> SpanAdapter:
        while True:
            self._train()
            if self.phase is Phase.TRAIN:
                break
            self._calibrate()
            self.fit = self._new_fit_of(Phase.TRAIN)
        frozen = self.frozen.fit_heads(self.sizes, self.options, many=self.many)
        net = self.fit.net
        return SpanAdapter(lora=net.lora.pairs(), heads=net.heads.arrays(), baseline=frozen, kinds=net.kinds())

    def _new_fit_of(self, phase: Phase) -> Fit:
        self.phase = phase
        return self._new_fit()

    def _calibrate(self) -> None:
        held = [int(i) for i in self.held]
        judged: Judged = judge(
            self.fit.net, self.assembler, [self.pairs[i] for i in held], [self.examples[i] for i in held]
        )
        self.calibration = judged.calibration()
        self.log[-1] |= {"n_validation": judged.n, "validation_f1_ppm": judged.mean_f1_ppm}

    def _train(self) -> None:
        while not self.fit.is_done:
            loss = self.fit.advance()
            self.epoch_loss += loss
            if self.fit.is_epoch_done:
                mean = round(self.epoch_loss / self.fit.steps_an_epoch, 6)
                self.log.append({"fit": self.phase.value, "epoch": self.fit.epoch, "train_loss": mean})
                self.epoch_loss = 0.0
            self._report(loss)
            stop = self.hooks.should_stop()
            if stop or self._cadence.is_due():
                self._cadence.save(checkpoint.Snapshot(counters=self._counters(), tensors=self.fit.tensors()))
            if stop:
                raise JobStopped()

    def _report(self, loss: float) -> None:
        per_epoch = -(-len(self.examples) // self.options.batch_size)
        to_come = per_epoch * self.options.epochs if self.phase is Phase.CALIBRATE else 0
        before = 0
        if self.phase is Phase.TRAIN and len(self.held):
            n_first = self._options_of(Phase.CALIBRATE).epochs
            before = -(-len(self.trained) // self.options.batch_size) * n_first
        n_steps = before + self.fit.n_steps + to_come
        step = before + self.fit.step
        self._done_here += 1
        eta_s = (self.hooks.clock() - self._started) / self._done_here * (n_steps - step)
        n_epochs = self._options_of(self.phase).epochs
        note = f"{self.phase.value}, epoch {min(self.fit.epoch + 1, n_epochs)} of {n_epochs}"
        self.hooks.on_step(StepDone(step=step, n_steps=n_steps, loss=loss, eta_s=eta_s, note=note))

    def _counters(self) -> Counters:
        return Counters(
            fingerprint=self._fingerprint(),
            phase=self.phase.value,
            step=self.fit.step,
            epoch_loss=self.epoch_loss,
            calibration=self.calibration.to_json(),
            log=self.log,
        )

    def restore(self, path: Path) -> int:
        """Go on from a checkpoint; returns the number of epochs already done in all fits, 0 where the file is not this
        job's."""
        saved = checkpoint.read(path, Counters, fingerprint=self._fingerprint())
        if saved is None:
            return 0
        c, tensors = saved
        self.log, self.epoch_loss = c.log, c.epoch_loss
        self.calibration = Calibration.from_json(c.calibration)
        self.fit = self._new_fit_of(Phase(c.phase))
        self.fit.restore(tensors, step=c.step)
        return len(self.log)

    def config(self) -> SpanConfig:
        return SpanConfig(
            format=adapters.FORMAT,
            base=self.base.name,
            base_sha256=self.base.sha256,
            rank=self.options.rank,
            alpha=self.options.alpha,
            target_modules=list(self.engine.target_modules),
            max_tokens=self.tokenizer.max_tokens,
            prefix=self.settings.prefix,
        )

    def active(self) -> dict[str, Any]:
        """The settings that were really switched on."""
        return {
            "device": self.fit.net.device.type,
            "engine": self.engine.name,
            "precision": self.precision,
            "threads": 1,
            "optimizer": "torch.AdamW, fused",
            "objective": "cross-entropy of tags and classes",
            "batching": "length-bucketed",
            "deterministic": True,
            "prefix": self.settings.prefix,
            "window": self.tokenizer.max_tokens,
            "kinds": self.engine.takes_added,
            "layers_of_tags": len(self.plan.layers),
            "n_train": len(self.pairs),
            "n_validation": len(self.held),
            "epochs": self.options.epochs,
            "learning_rate": self.options.learning_rate,
            "versions": {name: version(name) for name in (*self.engine.libraries, "tokenizers")},
        }

    def _fingerprint(self) -> str:
        """The job's, of all that its checkpoints depend on."""
        parts = self.job.to_json() | {
            "base_sha256": self.base.sha256,
            "prefix": self.settings.prefix,
            "precision": self.precision,
            "device": best_device().type,
            "engine": self.engine.name,
            "trainer": TRAINER,
        }
        del parts["checkpoint_every_s"]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plan_of(job: DistillSpansJob) -> ExtractionPlan:
    try:
        return ExtractionPlan.from_json(job.plan)
    except ValueError as error:
        raise JobFailed(f"The job has {error}.", code="invalid_job") from error
