"""The start of the engine that this machine runs a base on, with the settings of `plan`. Loading takes seconds to
minutes and happens in a thread; model libraries are imported here and not before."""

import asyncio
import importlib.util
import logging

from backend.domain.serving.pairings import PAIRINGS, pick_draft
from gpu_runners.engine.planning.base_facts import BaseFacts
from gpu_runners.engine.planning.devices import DeviceKind, detect
from gpu_runners.engine.planning.plan import EnginePlan, Needs, Speculation, plan
from gpu_runners.errors import JobFailed
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.draft_bases import draft_base
from gpu_runners.models.protocol import Engine, Rejected
from gpu_runners.serving.adapter_loading import Adapter
from gpu_runners.serving.server_config import EngineKind, ServerConfig

log = logging.getLogger("kolm.server")


class EngineMaker:
    """`MakeEngine` of a server with these settings."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config

    async def __call__(self, adapter: Adapter) -> Engine:
        """Raises JobFailed."""
        planned = await asyncio.to_thread(self.choose_plan, adapter.base)
        for note in planned.notes:
            log.info("%s: %s", adapter.base.name, note)
        if self._kind() is EngineKind.VLLM:
            from gpu_runners.engine.vllm_engine import VllmEngine

            return await VllmEngine.start(adapter.base, planned, folder=self._config.state / "tokenizers")
        merged = adapter.ref.folder if self._config.dedicated else None
        try:
            return await asyncio.to_thread(self._torch_engine, adapter.base, planned, merged)
        except Rejected as error:
            raise JobFailed(str(error), code=error.code) from error

    def choose_plan(self, base: CausalBase) -> EnginePlan:
        config = self._config
        draft, draft_folder = self._draft(base)
        needs = Needs(
            slots=1 if config.dedicated else config.slots,
            ram_adapters=4 * config.slots,
            max_rank=config.max_rank,
            max_context=config.max_context,
            max_running=config.max_running,
            single_tenant=bool(config.dedicated),
            speculation=config.speculation if self._kind() is EngineKind.VLLM else Speculation.NONE,
            draft=draft,
            draft_folder=draft_folder,
        )
        return plan(BaseFacts.of(base.name, base.folder), detect(), needs)

    def _kind(self) -> EngineKind:
        if self._config.engine is not EngineKind.AUTO:
            return self._config.engine
        return EngineKind.TORCH if importlib.util.find_spec("vllm") is None else EngineKind.VLLM

    def _draft(self, base: CausalBase) -> tuple[str, str]:
        """(name, folder) of the base that drafts for `base`: the one that was named, else the paired one; ("", "")
        where there is none that fits: a draft in other tokens is no draft."""
        name = self._config.draft or PAIRINGS.get(base.name, "")
        if self._config.speculation is not Speculation.DRAFT_MODEL or not name:
            return "", ""
        draft = open_causal_base(name, base_dir=self._config.base_dir)
        picked = pick_draft(
            base.name,
            base.tokenizer_sha256,
            draft.tokenizer_sha256,
            named=name,
            vocab_size_target=base.vocab_size,
            vocab_size_draft=draft.vocab_size,
        )
        if picked.draft is None or picked.widths_differ:
            why = "another width of output" if picked.widths_differ else picked.reason
            log.warning("%r does not draft for %r: %s", name, base.name, why)
            return "", ""
        return name, str(draft.folder)

    def _torch_engine(self, base: CausalBase, planned: EnginePlan, merged: object) -> Engine:
        from gpu_runners.engine.torch_engine import TorchEngine

        return TorchEngine(
            base,
            device="cpu" if planned.device is DeviceKind.CPU else "cuda",
            max_running=planned.max_running,
            max_waiting=self._config.max_waiting,
            n_slots=planned.slots,
            keep_adapters=planned.ram_adapters,
            merged=merged,  # type: ignore[arg-type]
            draft_base=self._drafting_base(base),
        )

    def _drafting_base(self, base: CausalBase) -> CausalBase | None:
        """The base that drafts for artifacts whose pack wants a model's drafts, where this server is configured with
        one."""
        if self._config.speculation is not Speculation.RECIPES or not self._config.draft:
            return None
        return draft_base(base, self._config.draft, base_dir=self._config.base_dir)
