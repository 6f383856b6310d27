"""A small extraction: forty mails to a shop, of which a span student learns something in seconds."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from backend.domain.answers.json_values import answer_text
from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.extraction.learning import learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.jobs.span_jobs import DistillSpansJob, DistillSpansResult, SpanOptions
from gpu_runners.models.bases import MINILM
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members

LINE = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["item"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"enum": ["buy", "cancel"]},
        "city": {"type": ["string", "null"]},
        "lines": {"type": "array", "items": LINE},
        "tags": {"type": "array", "items": {"enum": ["rush", "gift"]}},
    },
    "required": ["action", "city", "lines"],
}
ITEMS = ("red cups", "pens", "wool hats", "lamps", "rugs", "oak chairs", "bowls", "maps", "kites", "tin boxes")
CITIES = ("Oslo", "Lima", "New York", "Cairo", "Rome")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSpans:
    job: DistillSpansJob
    dataset: bytes
    plan: ExtractionPlan
    blob: bytes
    result: DistillSpansResult


def span_pairs(n: int) -> list[tuple[str, dict[str, Any]]]:
    """Mails with one line or two, some to a city, some with a wish."""
    pairs = []
    for i in range(n):
        verb = ("buy", "cancel")[i % 2]
        items = [(ITEMS[i % 10], 2 + i % 7)] + ([(ITEMS[(i + 3) % 10], 11 + i % 5)] if i % 3 == 0 else [])
        city = CITIES[i % 5] if i % 4 else None
        tags = ["rush"] * (i % 5 == 0) + ["gift"] * (i % 7 == 0)
        text = f"please {verb} " + " and ".join(f"{count} {item}" for item, count in items)
        text += (f" in {city}" if city else "") + (", quickly" if "rush" in tags else "")
        text += " as a present" if "gift" in tags else ""
        lines = [{"item": item, "count": count} for item, count in items]
        pairs.append((text, {"action": verb, "city": city, "lines": lines} | ({"tags": tags} if tags else {})))
    return pairs


def span_dataset(pairs: list[tuple[str, dict[str, Any]]], schema: dict[str, Any] = SCHEMA) -> bytes:
    rows = ({"input": text, "output": answer_text(answer, schema), "weight": 1.0} for text, answer in pairs)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def span_job(
    pairs: list[tuple[str, dict[str, Any]]], *, checkpoint_every_s: float = 1e9, base: str = MINILM, **options: Any
) -> tuple[DistillSpansJob, bytes, ExtractionPlan]:
    """A job on these pairs, with its dataset and plan."""
    plan, data = learn_plan(SCHEMA, pairs), span_dataset(pairs)
    chosen = SpanOptions(**({"epochs": 3, "precision": "fp32", "rank": 4, "alpha": 8} | options))
    job = DistillSpansJob(
        base_model=base,
        schema=SCHEMA,
        plan=plan.to_json(),
        dataset_sha256=hashlib.sha256(data).hexdigest(),
        options=chosen.to_json(),
        checkpoint_every_s=checkpoint_every_s,
    )
    return job, data, plan


def span_kolm(trained: TrainedSpans, *, tenant: str | None = None, **beside: bytes) -> bytes:
    """A signed artifact around the trained adapter, with the members that packaging gives it; `beside` are documents by
    their name without the ending. `tenant`: its UUID as hex."""
    base = {"id": trained.job.base_model, "sha256": trained.result.base_model_sha256}
    return packed_spans(
        trained.blob,
        config=trained.result.adapter_config,
        plan=trained.plan,
        calibration=trained.result.calibration,
        base=base,
        beside=beside,
        tenant=tenant,
    )


def packed_spans(
    blob: bytes,
    *,
    config: dict[str, Any],
    plan: ExtractionPlan,
    calibration: dict[str, Any],
    base: dict[str, str],
    beside: dict[str, bytes],
    schema: dict[str, Any] = SCHEMA,
    tenant: str | None = None,
) -> bytes:
    """A signed artifact of the adapter `blob`."""
    content = members() | {
        "adapter.safetensors": blob,
        "adapter_config.json": canonical_json(config),
        "extraction.json": canonical_json(plan.to_json()),
        "calibration.json": canonical_json(calibration),
        "spec.json": canonical_json({"name": "mails", "output": {"type": "json", "schema": schema}}),
    }
    content |= {f"{name}.json": data for name, data in beside.items()}
    content.pop("labels.json")
    signed = fields(base=base, task_type="json", name="mails")
    if tenant is not None:
        signed["tenant_digest"] = sha256_hex(b"kolm/tenant/" + UUID(hex=tenant).bytes)
    return build_kolm(content, manifest_fields=signed, key=KEY)
