"""A small json task of our own, mails that order things, and the span student that training on forty of them left."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from backend.domain.answers.json_values import answer_text
from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.extraction.learning import learn_plan
from backend.domain.jobs.span_jobs import DistillSpansJob, DistillSpansResult, SpanOptions
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.models.bases import MINILM, open_base
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "description": "as it is written"},
        "city": {"type": "string"},
        "urgency": {"enum": ["soon", "someday"]},
    },
    "required": ["item", "city", "urgency"],
}
ITEMS = ("lamp", "kettle", "chair", "table", "mirror", "clock", "carpet", "shelf", "sofa", "vase")
CITIES = ("Berlin", "Lyon", "Oslo", "Porto", "Ghent", "Turin", "Malmö")
PATTERNS = (
    ("please send a {item} to {city} at once", "soon"),
    ("a {item} for {city}, there is no hurry", "someday"),
    ("we urgently need the {item} in {city}", "soon"),
    ("whenever you can: {item}, {city}", "someday"),
)


def order_pairs(n: int, *, start: int = 0) -> list[tuple[str, dict[str, str]]]:
    pairs = []
    for i in range(start, start + n):
        pattern, urgency = PATTERNS[i % len(PATTERNS)]
        item, city = ITEMS[i % len(ITEMS)], CITIES[i % len(CITIES)]
        answer = {"item": item, "city": city, "urgency": urgency}
        pairs.append((pattern.format(item=item, city=city), answer))
    return pairs


@dataclass(frozen=True, kw_only=True)
class TrainedSpans:
    job: DistillSpansJob
    blob: bytes
    result: DistillSpansResult


@cache
def trained_spans() -> TrainedSpans:
    """Trained once a process: it takes some seconds."""
    pairs = order_pairs(48)
    rows = [{"input": text, "output": answer_text(answer, SCHEMA), "weight": 1.0} for text, answer in pairs]
    dataset = "".join(json.dumps(row) + "\n" for row in rows).encode()
    job = DistillSpansJob(
        base_model=MINILM,
        schema=SCHEMA,
        plan=learn_plan(SCHEMA, pairs).to_json(),
        dataset_sha256=hashlib.sha256(dataset).hexdigest(),
        options=SpanOptions(epochs=8).to_json(),
        checkpoint_every_s=1e9,
    )
    blob, result = distill_spans(job, dataset, base=open_base(MINILM))
    return TrainedSpans(job=job, blob=blob, result=result)


def spans_kolm(*, tenant: str | None = None, **beside: bytes) -> bytes:
    """A signed artifact around the student, with the members that packaging gives it; `beside` are documents by their
    name without the ending. `tenant`: its UUID as hex."""
    trained = trained_spans()
    content = {path: data for path, data in members().items() if path != "labels.json"} | {
        "adapter.safetensors": trained.blob,
        "adapter_config.json": canonical_json(trained.result.adapter_config),
        "extraction.json": canonical_json(trained.job.plan),
        "calibration.json": canonical_json(trained.result.calibration),
        "spec.json": canonical_json({"name": "orders", "output": {"type": "json", "schema": SCHEMA}}),
    }
    content |= {f"{name}.json": data for name, data in beside.items()}
    base = {"id": MINILM, "sha256": trained.result.base_model_sha256}
    signed = fields(name="orders", task_type="json", base=base)
    if tenant is not None:
        signed["tenant_digest"] = sha256_hex(b"kolm/tenant/" + UUID(hex=tenant).bytes)
    return build_kolm(content, manifest_fields=signed, key=KEY)
