"""Signed artifacts with small random causal adapters, the grants that open them, and an engine that says what it is
told to."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json, sha256_hex
from backend.domain.planning.adapter_sizes import linear_shapes
from backend.domain.recipes.feedback import PackFeedback
from backend.domain.serving.wire import Grant, sign_grant
from gpu_runners.models.bases import Base
from gpu_runners.models.causal_adapter import FORMAT, AdapterConfig, CausalAdapter, to_bytes
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.protocol import Counts, Delta, FinishReason, GenerationRequest
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, keyring, members
from tests.gpu_runners.serving.small_backend import KEY as GRANT_KEY

ALICE, BOB = UUID(int=0xA11CE).hex, UUID(int=0xB0B).hex


def paper_base(name: str = "paper-base") -> CausalBase:
    """A base that is described and never loaded."""
    return CausalBase(
        base=Base(name=name, folder=Path("/nowhere"), sha256=sha256_hex(name.encode())),
        tokenizer=None,
        tokenizer_sha256=sha256_hex(f"tokenizer of {name}".encode()),
        special_tokens=(),
        eos_ids=(0,),
        pad_id=0,
        context=512,
        vocab_size=64,
        hidden_size=16,
    )


def adapter_config(base: CausalBase, **changed: Any) -> AdapterConfig:
    given: dict[str, Any] = {
        "format": FORMAT,
        "base": base.name,
        "base_sha256": base.sha256,
        "tokenizer_sha256": base.tokenizer_sha256,
        "rank": 4,
        "alpha": 8,
        "variant": "lora",
        "target_modules": ["q_proj", "v_proj"],
        "max_tokens": 256,
    }
    return AdapterConfig(**(given | changed))


def random_adapter(seed: int, *, rank: int = 4, shapes: Mapping[str, tuple[int, int]], scale: float) -> CausalAdapter:
    """`shapes` are (in, out) by module path."""
    rng = np.random.default_rng(seed)
    lora = {
        path: (
            rng.normal(0, scale, (rank, n_in)).astype(np.float32),
            rng.normal(0, scale, (n_out, rank)).astype(np.float32),
        )
        for path, (n_in, n_out) in shapes.items()
    }
    return CausalAdapter(lora=lora, magnitude={})


PAPER_SHAPES = {"model.layers.0.self_attn.q_proj": (16, 16), "model.layers.0.self_attn.v_proj": (16, 16)}


def attention_shapes(base: CausalBase) -> dict[str, tuple[int, int]]:
    """q and v of every layer."""
    config = json.loads((base.folder / "config.json").read_text())
    shapes = linear_shapes(config)
    return {
        f"model.layers.{layer}.self_attn.{name}": shapes[name]
        for layer in range(config["num_hidden_layers"])
        for name in ("q_proj", "v_proj")
    }


def kolm_of(
    base: CausalBase,
    *,
    seed: int = 0,
    tenant: str = ALICE,
    shapes: Mapping[str, tuple[int, int]] = PAPER_SHAPES,
    scale: float = 0.5,
    prompt: Mapping[str, Any] | None = None,
    base_sha256: str | None = None,
    beside: Mapping[str, bytes] | None = None,
    **config: Any,
) -> bytes:
    """A signed `.kolm` of `tenant`, with further members `beside`."""
    own = adapter_config(base, **config)
    said = prompt or {"system": "Answer.", "answer": {"type": "text"}, "max_new_tokens": 32}
    content = {name: data for name, data in members().items() if name != "labels.json"} | {
        "adapter.safetensors": to_bytes(random_adapter(seed, rank=own.rank, shapes=shapes, scale=scale)),
        "adapter_config.json": canonical_json(own.to_json()),
        "prompt.json": canonical_json(said),
        **(beside or {}),
    }
    signed = fields(
        task_type="text",
        tenant_digest=hashlib.sha256(b"kolm/tenant/" + UUID(hex=tenant).bytes).hexdigest(),
        base={"id": base.name, "sha256": base_sha256 or base.sha256},
    )
    return build_kolm(content, manifest_fields=signed, key=KEY)


def pinned_keyring(folder: Path) -> Path:
    path = folder / "keyring.json"
    path.write_text(json.dumps(keyring()))
    return path


def grant_for(data: bytes, *, tenant: str = ALICE, request: str = "req-1", **changed: Any) -> Grant:
    given: dict[str, Any] = {
        "tenant": tenant,
        "artifact": "art_" + hashlib.sha256(data).hexdigest()[:26],
        "sha256": hashlib.sha256(data).hexdigest(),
        "deployment": "support-replies",
        "api_key": "",
        "request": request,
        "cache_salt": f"salt of {tenant}",
        "max_concurrent": 64,
        "idle_s": 0,
        "pinned": False,
        "expires_at": int(time.time()) + 600,
    }
    return Grant(**(given | changed))


def signed(grant: Grant) -> str:
    return sign_grant(grant, GRANT_KEY)


@dataclass
class ScriptedEngine:
    """One token a step: the request's adapter, spelled out. `delay_s` a step; `requests` are those it was given."""

    n_tokens: int = 5
    delay_s: float = 0.0
    requests: list[GenerationRequest] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    fails_after: int | None = None
    is_closed: bool = False
    is_merged: bool = False
    n_running: int = 0
    found: list[tuple[str, PackFeedback]] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 0, "completion_tokens": 0})

    @property
    def about(self) -> Mapping[str, Any]:
        return {"name": "scripted", "adapter_slots": 4} | ({"adapters": "merged"} if self.is_merged else {})

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        self.n_running += 1
        self.sums["prompt_tokens"] += len(request.prompt)
        try:
            for n in range(1, self.n_tokens + 1):
                await asyncio.sleep(self.delay_s)
                if self.fails_after is not None and n > self.fails_after:
                    raise RuntimeError("the scripted engine broke")
                self.sums["completion_tokens"] += 1
                name = "base" if request.adapter is None else request.adapter.key[:6]
                yield Delta(
                    text=f"{name} ",
                    token_ids=(n,),
                    finish_reason=FinishReason.STOP if n == self.n_tokens else None,
                    counts=Counts(prompt_tokens=len(request.prompt), completion_tokens=n),
                )
        finally:
            self.n_running -= 1

    def counters(self) -> Mapping[str, int]:
        return {**self.sums, "running": self.n_running}

    def pack_feedback(self) -> list[tuple[str, PackFeedback]]:
        found, self.found = self.found, []
        return found

    async def forget(self, key: str) -> None:
        self.forgotten.append(key)

    async def close(self) -> None:
        self.is_closed = True
