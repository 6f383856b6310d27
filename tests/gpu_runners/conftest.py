"""A small task of our own, and the real MiniLM: forty pairs about parcels and invoices train in about a second an
epoch."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from backend.domain.runner_jobs import DistillJob, DistillResult, TrainOptions
from gpu_runners.distill.bases import MINILM, Base, open_base
from gpu_runners.distill.train import distill

LABELS = ["billing", "delivery", "returns", "other"]
_TEXTS = {
    "billing": "why was i charged {} for order {}|my invoice shows {} too much on {}|the card payment of {} failed for {}",
    "delivery": "where is my parcel {} number {}|the courier lost box {} of order {}|order {} has not arrived since {}",
    "returns": "i want to send back item {} from {}|how do i return {} of order {}|refund me for the broken part {} of {}",
    "other": "what are your opening hours on day {} in {}|do you hire {} people in team {}|is shop {} open at {}",
}


def task_rows(n_each: int, *, start: int = 0) -> list[dict[str, Any]]:
    rows = []
    for i in range(start, start + n_each):
        for label in LABELS:
            patterns = _TEXTS[label].split("|")
            rows.append({"input": patterns[i % len(patterns)].format(i, 7 * i + 3), "label": label, "weight": 1.0})
    return rows


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    job: DistillJob
    dataset: bytes
    blob: bytes
    result: DistillResult


@pytest.fixture(scope="session")
def base() -> Base:
    return open_base(MINILM)


@pytest.fixture(scope="session")
def dataset() -> bytes:
    return jsonl(task_rows(10))


@pytest.fixture(scope="session")
def make_job(dataset: bytes) -> Callable[..., DistillJob]:
    """A job on `dataset` with the one option that matters."""

    def make(*, checkpoint_every_s: float = 1e9, **options: Any) -> DistillJob:
        train = {"epochs": 2, "precision": "fp32"} | options
        return DistillJob(
            base_model=MINILM,
            labels=LABELS,
            dataset_sha256=hashlib.sha256(dataset).hexdigest(),
            train=TrainOptions(**train).to_json(),
            checkpoint_every_s=checkpoint_every_s,
        )

    return make


@pytest.fixture(scope="session")
def trained(make_job: Callable[..., DistillJob], dataset: bytes, base: Base) -> Trained:
    job = make_job()
    blob, result = distill(job, dataset, base=base)
    return Trained(job=job, dataset=dataset, blob=blob, result=result)
