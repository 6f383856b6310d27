"""A generative task's model, ready to answer: the base under our engine, the artifact's adapter in its bank.

From a verified `.kolm` it reads `adapter.safetensors`, `adapter_config.json` and `prompt.json` (the system message,
what an answer is, how long it may get), and mounts `rules.json`, which answers first where it is sure, and
`recipes.json`, whose sources draft for the engine. Engines are shared by all artifacts of one base.
"""

import asyncio
import hashlib
import json
import logging
import math
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from gpu_runners.artifacts.pack_attachment import mounted_pack
from gpu_runners.artifacts.rules_first import RulesFirst, labels_of, predict_with_rules
from gpu_runners.engine.sync import Finished, generate_all
from gpu_runners.errors import JobFailed
from gpu_runners.models.answers import constraint_of
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, write_peft_folder
from gpu_runners.models.causal_base import CausalBase, check_fit
from gpu_runners.models.chat import prompt_ids, prompts_of
from gpu_runners.models.protocol import (
    AdapterRef,
    Constraint,
    Drafting,
    Engine,
    EngineFailed,
    GenerationRequest,
    Overloaded,
    Rejected,
)

log = logging.getLogger("kolm.serving")

ONE_BY_ONE = 4  # up to here each input is answered by itself and has its own honest latency


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrompt:
    """The artifact's prompt.json."""

    system: str
    answer: Mapping[str, Any]
    max_new_tokens: int

    @classmethod
    def from_members(cls, members: Mapping[str, bytes]) -> Self:
        """Raises JobFailed(invalid_artifact)."""
        try:
            data = json.loads(members["prompt.json"])
            prompt = cls(**data)
        except (KeyError, ValueError, TypeError) as error:
            raise _invalid("its prompt.json is missing or not a prompt") from error
        if not isinstance(prompt.system, str) or not isinstance(prompt.answer, dict):
            raise _invalid("its prompt.json has no system message or no answer")
        if type(prompt.max_new_tokens) is not int or prompt.max_new_tokens < 1:
            raise _invalid("its prompt.json has no max_new_tokens")
        return prompt

    def to_json(self) -> dict[str, Any]:
        return {"system": self.system, "answer": dict(self.answer), "max_new_tokens": self.max_new_tokens}


def unpack_adapter(members: Mapping[str, bytes], base: CausalBase, folder: Path) -> AdapterRef:
    """The adapter of a verified artifact as a PEFT folder. Raises JobFailed(invalid_adapter, base_mismatch)."""
    config = AdapterConfig.from_json(_json(members, "adapter_config.json"))
    check_fit(config, base)
    blob = members.get("adapter.safetensors", b"")
    write_peft_folder(folder, from_bytes(blob, config), config)
    key = hashlib.sha256(blob + members["adapter_config.json"]).hexdigest()
    return AdapterRef(key=key, folder=folder, number=1 + int(key[:7], 16))


class GenerativeModel:
    """`adapter` None: it is merged into the engine's base. `folder`, where adapter and pack lie, goes with the
    model."""

    def __init__(
        self,
        *,
        base: CausalBase,
        engine: Engine,
        adapter: AdapterRef | None,
        prompt: TaskPrompt,
        folder: Path,
        drafting: Drafting | None = None,
        rules: RulesFirst | None = None,
    ) -> None:
        self.base, self.engine, self.adapter, self.prompt = base, engine, adapter, prompt
        self.constraint: Constraint | None = constraint_of(prompt.answer)
        self.drafting, self.rules = drafting, rules
        self._tidy: Callable[[], object] = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @classmethod
    def from_members(cls, members: Mapping[str, bytes], *, base: CausalBase, engine: Engine) -> Self:
        """Only for members whose hashes were checked. The engine is shared with other artifacts of the base. Raises
        JobFailed."""
        prompt = TaskPrompt.from_members(members)
        constraint_of(prompt.answer)
        folder = Path(tempfile.mkdtemp(prefix="kolm-adapter-"))
        try:
            ref = unpack_adapter(members, base, folder)
        except JobFailed:
            shutil.rmtree(folder)
            raise
        return cls(
            base=base, engine=engine, adapter=ref, prompt=prompt, folder=folder, **_attach(members, base, folder)
        )

    @classmethod
    def merge_members(
        cls,
        members: Mapping[str, bytes],
        *,
        base: CausalBase,
        max_running: int = 32,
        draft_base: CausalBase | None = None,
    ) -> Self:
        """The only artifact of an engine of its own: its adapter is added to the weights and costs nothing more.
        `draft_base` may draft for it. Raises JobFailed."""
        from gpu_runners.engine.torch_engine import TorchEngine

        prompt = TaskPrompt.from_members(members)
        constraint_of(prompt.answer)
        with tempfile.TemporaryDirectory(prefix="kolm-adapter-") as folder:
            ref = unpack_adapter(members, base, Path(folder))
            try:
                engine = TorchEngine(base, merged=ref.folder, max_running=max_running, draft_base=draft_base)
            except Rejected as error:
                raise JobFailed(str(error), code="invalid_adapter") from error
        kept = Path(tempfile.mkdtemp(prefix="kolm-pack-"))
        return cls(base=base, engine=engine, adapter=None, prompt=prompt, folder=kept, **_attach(members, base, kept))

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """One row an input, in order: of a label task `label`, `confidence`, `latency_us`; else `output`,
        `finish_reason`, `n_tokens`, `latency_us`; and where a rule answered its number, `rule`. Raises
        JobFailed(context_too_long, busy, generation_failed)."""
        is_label = self.prompt.answer["type"] == "label"
        return predict_with_rules(self.rules, texts, is_label=is_label, model=self._predict)

    def request(self, text: str, i: int) -> GenerationRequest:
        """Make the request that `predict` sends to the engine."""
        return self._request(prompt_ids(self.base, self.prompt.system, text), i)

    def _request(self, prompt: Sequence[int], i: int) -> GenerationRequest:
        return GenerationRequest(
            id=str(i),
            prompt=tuple(prompt),
            max_new_tokens=self.prompt.max_new_tokens,
            adapter=self.adapter,
            constraint=self.constraint,
            drafting=self.drafting,
        )

    def _predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        requests = self._requests(texts)
        if len(requests) > ONE_BY_ONE:
            return self._rows(requests)
        return [row for request in requests for row in self._rows([request])]

    def _requests(self, texts: Sequence[str]) -> list[GenerationRequest]:
        """The requests for these texts. Raises JobFailed(bad_chat)."""
        prompts = prompts_of(self.base, self.prompt.system, texts)
        return [self._request(prompt, i) for i, prompt in enumerate(prompts)]

    def forget(self) -> None:
        """Take it out of a shared engine and off the disk."""
        if self.adapter is not None:
            asyncio.run(self.engine.forget(self.adapter.key))
        self._tidy()

    def _rows(self, requests: Sequence[GenerationRequest]) -> list[dict[str, Any]]:
        began = time.perf_counter_ns()
        try:
            answers = generate_all(self.engine, requests)
        except Rejected as error:
            if error.code != "bad_pack":
                raise JobFailed(str(error), code=error.code) from error
            log.warning("the engine refuses the recipe pack, the artifact answers without it: %s", error)
            self.drafting = None
            return self._rows([replace(request, drafting=None) for request in requests])
        except (Overloaded, EngineFailed) as error:
            code = "busy" if isinstance(error, Overloaded) else error.code
            raise JobFailed(str(error), code=code, retryable=True) from error
        latency_us = (time.perf_counter_ns() - began) // 1000 // len(requests)
        return [self._row(answer, latency_us) for answer in answers]

    def _row(self, answer: Finished, latency_us: int) -> dict[str, Any]:
        if self.prompt.answer["type"] == "label":
            confidence = round(math.exp(min(0.0, answer.logprob)), 6)
            return {"label": answer.text, "confidence": confidence, "latency_us": latency_us}
        return {
            "output": answer.text,
            "finish_reason": str(answer.finish_reason),
            "n_tokens": answer.counts.completion_tokens,
            "latency_us": latency_us,
        }


def _attach(members: Mapping[str, bytes], base: CausalBase, folder: Path) -> dict[str, Any]:
    """`drafting` and `rules` of a verified artifact."""
    pack = mounted_pack(members, tokenizer_sha256=base.tokenizer_sha256)
    return {
        "drafting": None if pack is None else pack.drafting(folder),
        "rules": RulesFirst.from_members(members, labels=labels_of(members)),
    }


def _json(members: Mapping[str, bytes], path: str) -> Any:
    try:
        return json.loads(members[path])
    except (KeyError, ValueError) as error:
        raise _invalid(f"its {path} is missing or not JSON") from error


def _invalid(why: str) -> JobFailed:
    return JobFailed(f"The artifact cannot be used: {why}.", code="invalid_artifact")
