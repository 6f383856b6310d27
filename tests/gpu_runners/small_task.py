"""A small task of our own: four kinds of mail to a shop, and what training on forty of them left."""

import dataclasses
import hashlib
import json
from typing import Any
from uuid import UUID

from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.jobs.runner_jobs import DistillJob, DistillResult, TrainOptions
from gpu_runners.models.bases import MINILM
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members

LABELS = ["billing", "delivery", "returns", "other"]
_TEXTS = {
    "billing": [
        "why was i charged {} for order {}",
        "my invoice shows {} too much on {}",
        "the card payment of {} failed for {}",
    ],
    "delivery": [
        "where is my parcel {} number {}",
        "the courier lost box {} of order {}",
        "order {} has not arrived since {}",
    ],
    "returns": [
        "i want to send back item {} from {}",
        "how do i return {} of order {}",
        "refund me for the broken part {} of {}",
    ],
    "other": [
        "what are your opening hours on day {} in {}",
        "do you hire {} people in team {}",
        "is shop {} open at {}",
    ],
}


def task_rows(n_each: int, *, start: int = 0) -> list[dict[str, Any]]:
    rows = []
    for i in range(start, start + n_each):
        for label in LABELS:
            patterns = _TEXTS[label]
            rows.append({"input": patterns[i % len(patterns)].format(i, 7 * i + 3), "label": label, "weight": 1.0})
    return rows


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def small_job(dataset: bytes, *, checkpoint_every_s: float = 1e9, **options: Any) -> DistillJob:
    """A job on the data with the options that matter."""
    train = {"epochs": 2, "precision": "fp32"} | options
    return DistillJob(
        base_model=MINILM,
        labels=LABELS,
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        train=TrainOptions(**train).to_json(),
        checkpoint_every_s=checkpoint_every_s,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    job: DistillJob
    dataset: bytes
    blob: bytes
    result: DistillResult


def kolm_of(trained: Trained, *, tenant: str | None = None, **beside: bytes) -> bytes:
    """A signed artifact around the trained adapter, with the members that packaging gives it; `beside` are documents by
    their name without the ending. `tenant`: its UUID as hex."""
    content = members() | {
        "adapter.safetensors": trained.blob,
        "adapter_config.json": canonical_json(trained.result.adapter_config),
        "labels.json": canonical_json(LABELS),
        "calibration.json": canonical_json({"temperature_ppm": round(trained.result.temperature * 1_000_000)}),
    }
    content |= {f"{name}.json": data for name, data in beside.items()}
    base = {"id": trained.job.base_model, "sha256": trained.result.base_model_sha256}
    signed = fields(base=base)
    if tenant is not None:
        signed["tenant_digest"] = sha256_hex(b"kolm/tenant/" + UUID(hex=tenant).bytes)
    return build_kolm(content, manifest_fields=signed, key=KEY)
