"""Keep of a training what is needed later: a run's state, the config, which is signed, and the facts of a receipt."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from backend.domain.encoders.sentence_settings import SentenceSettings
from backend.domain.jobs.runner_jobs import DistillJob, TrainOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.label.folds import Fold
from gpu_runners.distill.label.nets import Engine
from gpu_runners.models import label_adapter as adapters
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import best_device
from gpu_runners.models.label_adapter import AdapterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters(checkpoint.JobCounters):
    """The state of a run: `fits` are done, in `steps_before` optimiser steps, and `step` of the one that follows them;
    `epoch_loss` is the sum over the `epoch_steps` of the current epoch."""

    fits: int
    steps_before: int
    step: int
    epoch_loss: float
    epoch_steps: int
    log: list[dict[str, Any]]


def adapter_config(
    base: Base, options: TrainOptions, settings: SentenceSettings, *, max_tokens: int, engine: Engine
) -> AdapterConfig:
    return AdapterConfig(
        format=adapters.FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        rank=options.rank,
        alpha=options.alpha,
        pooling=settings.pooling.value,
        target_modules=list(engine.target_modules),
        normalize=True,
        scale=adapters.SCALE,
        max_tokens=max_tokens,
        prefix=settings.prefix,
    )


def active_settings(
    settings: SentenceSettings,
    engine: Engine,
    *,
    device: torch.device,
    precision: str,
    layers: int,
    n_contrastive: int,
    folds: Sequence[Fold],
    n_train: int,
    options: TrainOptions,
) -> dict[str, Any]:
    """The settings that were really switched on; `layers` have LoRA matrices, none of a frozen head."""
    return {
        "device": device.type,
        "engine": engine.name,
        "layers": layers,
        "precision": precision,
        "threads": 1,
        "optimizer": "torch.AdamW, fused",
        "objective": "contrastive, then cross-entropy" if n_contrastive and layers else "cross-entropy",
        "batching": "length-bucketed, learned pairs rest",
        "deterministic": True,
        "pooling": settings.pooling.value,
        "prefix": settings.prefix,
        "n_train": n_train,
        "epochs": options.epochs if layers else 0,
        "contrastive_epochs": n_contrastive if layers else 0,
        "learning_rate": options.learning_rate if layers else 0.0,
        "n_validation": sum(len(fold.held) for fold in folds),
        "folds": len(folds),
        "versions": {name: version(name) for name in (*engine.libraries, "tokenizers", "scikit-learn")},
    }


TRAINER = 4  # counts the changes after which a checkpoint of before is no other's to go on with


def fingerprint(job: DistillJob, base: Base, settings: SentenceSettings, *, precision: str, engine: Engine) -> str:
    """The job's, of all that its checkpoints depend on."""
    parts = job.to_json() | {
        "base_sha256": base.sha256,
        "reading": dataclasses.asdict(settings),
        "precision": precision,
        "device": best_device().type,
        "engine": engine.name,
        "trainer": TRAINER,
    }
    del parts["checkpoint_every_s"]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
