"""Signed generative artifacts around random adapters of a random base."""

from collections.abc import Mapping
from typing import Any

from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json
from gpu_runners.models.causal_adapter import to_bytes
from gpu_runners.models.causal_base import CausalBase
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.gpu_runners.small_base import random_adapter

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["size", "n"],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "json": {"type": "json", "schema": SCHEMA},
    "label": {"type": "label", "labels": ["tea", "coffee"]},
    "text": {"type": "text"},
}


def generative_kolm(
    base: CausalBase,
    task_type: str = "json",
    *,
    seed: int = 3,
    beside: Mapping[str, bytes] | None = None,
    **changed: Any,
) -> bytes:
    """`changed` are members of prompt.json, `beside` further members of the artifact."""
    adapter, config = random_adapter(base, seed=seed)
    prompt = {"system": "of tea and coffee", "answer": ANSWERS[task_type], "max_new_tokens": 40} | changed
    content = members() | {
        "adapter.safetensors": to_bytes(adapter),
        "adapter_config.json": canonical_json(config.to_json()),
        "prompt.json": canonical_json(prompt),
    }
    content |= beside or {}
    content.pop("labels.json")
    wanted = {"id": base.name, "sha256": base.sha256}
    return build_kolm(content, manifest_fields=fields(base=wanted, task_type=task_type, name="orders"), key=KEY)
