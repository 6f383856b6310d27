"""Artifacts of the exports' tests: a label student over a random encoder, and causal ones over a base of any shape."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.extraction.learning import learn_plan
from gpu_runners.exports.folder import Original
from gpu_runners.models import causal_adapter
from gpu_runners.models.bases import open_base
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.label_adapter import FORMAT, SCALE, Adapter, AdapterConfig, Head, to_bytes
from gpu_runners.models.spans import adapter as spans
from gpu_runners.models.spans.kinds import N_FEATURES
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.gpu_runners.small_encoders import make_encoder
from tests.gpu_runners.small_spans import SCHEMA, packed_spans, span_pairs
from tests.gpu_runners.small_task import LABELS

WIDTH = 32  # of the random encoders
_PLACES = {  # adapted layers of the families, with the widths of what goes in
    "bert": {"encoder.layer.1.attention.self.query": 32, "encoder.layer.1.output.dense": 48},
    "modernbert": {"layers.1.attn.Wo": 32},
}


def original_of(data: bytes) -> Original:
    return Original(kolm=read_kolm(data), sha256=sha256_hex(data))


def random_label_kolm(base_dir: Path, family: str, pooling: str, *, lora: bool = True) -> bytes:
    """A student over a random encoder of the family, with a prefix and a short cut."""
    base = open_base(make_encoder(base_dir / "encoder", family, pooling=pooling).name, base_dir=base_dir)
    rng = np.random.default_rng(3)

    def random(*shape: int) -> Any:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    places = _PLACES["modernbert" if family == "modernbert" else "bert"] if lora else {}
    head = Head(weight=random(len(LABELS), WIDTH), bias=random(len(LABELS)))
    pairs = {place: (random(4, wide), random(WIDTH, 4)) for place, wide in places.items()}
    config = AdapterConfig(
        format=FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        rank=4,
        alpha=8,
        target_modules=["dense", "query"],
        pooling=pooling,
        normalize=True,
        scale=SCALE,
        max_tokens=24,
        prefix="query: ",
    )
    content = members() | {
        "adapter.safetensors": to_bytes(Adapter(lora=pairs, head=head, baseline=head)),
        "adapter_config.json": canonical_json(config.to_json()),
        "labels.json": canonical_json(LABELS),
        "calibration.json": canonical_json({"temperature_ppm": 700_000}),
    }
    return build_kolm(content, manifest_fields=fields(base={"id": base.name, "sha256": base.sha256}), key=KEY)


def random_span_kolm(
    base_dir: Path,
    family: str,
    *,
    schema: dict[str, Any] = SCHEMA,
    examples: Sequence[tuple[str, dict[str, Any]]] = span_pairs(40),
) -> bytes:
    """A student of `small_spans.SCHEMA`, or another, over a random encoder of the family, with a prefix and a short
    window."""
    base = open_base(make_encoder(base_dir / "encoder", family).name, base_dir=base_dir)
    rng = np.random.default_rng(4)

    def random(*shape: int) -> Any:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    plan = learn_plan(schema, examples)
    sizes = spans.head_sizes(plan, has_lists=True)
    heads = {name: Head(weight=random(rows, WIDTH), bias=random(rows)) for name, rows in sizes.items()}
    places = _PLACES["modernbert" if family == "modernbert" else "bert"]
    pairs = {place: (random(4, wide), random(WIDTH, 4)) for place, wide in places.items()}
    config = spans.SpanConfig(
        format=spans.FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        rank=4,
        alpha=8,
        target_modules=["dense", "query"],
        max_tokens=34,
        prefix="query: ",
    )
    return packed_spans(
        spans.to_bytes(spans.SpanAdapter(lora=pairs, heads=heads, baseline=heads, kinds=random(N_FEATURES, WIDTH))),
        config=config.to_json(),
        plan=plan,
        calibration={},
        base={"id": base.name, "sha256": base.sha256},
        beside={},
        schema=schema,
    )


def random_text_kolm(
    base: CausalBase,
    *,
    variant: str = "lora",
    size: float = 0.05,
    max_new_tokens: int = 24,
    beside: dict[str, bytes] | None = None,
    layers: str = "model.layers.",
) -> bytes:
    """A student of a text task whose adapter, with random numbers of this size, changes what the base says."""
    from safetensors import safe_open

    rng = np.random.default_rng(5)
    pairs, magnitude = {}, {}
    with safe_open(base.folder / "model.safetensors", "pt") as tensors:
        for name in sorted(tensors.keys()):
            module = name.removesuffix(".weight")
            if module.startswith(layers) and module.endswith(("q_proj", "k_proj", "v_proj", "down_proj")):
                tall, wide = tensors.get_slice(name).get_shape()
                a, b = (rng.normal(0, size, shape).astype(np.float32) for shape in ((4, wide), (tall, 4)))
                pairs[module] = (a, b)
                magnitude[module] = np.ones(tall, np.float32)
    config = causal_adapter.AdapterConfig(
        format=causal_adapter.FORMAT,
        base=base.name,
        base_sha256=base.sha256,
        tokenizer_sha256=base.tokenizer_sha256,
        rank=4,
        alpha=8,
        variant=variant,
        target_modules=sorted({module.rpartition(".")[2] for module in pairs}),
        max_tokens=256,
    )
    adapter = causal_adapter.CausalAdapter(lora=pairs, magnitude=magnitude if variant == "dora" else {})
    prompt = {"system": "Answer about the order.", "answer": {"type": "text"}, "max_new_tokens": max_new_tokens}
    content = members() | {
        "adapter.safetensors": causal_adapter.to_bytes(adapter),
        "adapter_config.json": canonical_json(config.to_json()),
        "prompt.json": canonical_json(prompt),
        **(beside or {}),
    }
    content.pop("labels.json")
    wanted = {"id": base.name, "sha256": base.sha256}
    return build_kolm(content, manifest_fields=fields(base=wanted, task_type="text", name="orders"), key=KEY)
