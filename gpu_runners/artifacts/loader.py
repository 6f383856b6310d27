"""The way from bytes to a model that answers: verified first, base checked, a few kept warm.

Nothing of an artifact is parsed, let alone run, before `kolm_verify.load_verified` has re-derived its bytes and checked
its signature.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from backend.domain.artifact.kolm_verify import Kolm, load_verified, read_keyring
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.errors import JobFailed
from gpu_runners.memory import give_memory_back
from gpu_runners.models.bases import Base, open_base
from gpu_runners.models.causal_adapter import is_causal
from gpu_runners.models.encoder_runtimes import Runtime
from gpu_runners.models.onnx.runtime import answering_runtime

if TYPE_CHECKING:  # torch and transformers, which label tasks on BERT bases do without
    from gpu_runners.artifacts.generative_model import GenerativeModel
    from gpu_runners.engine.torch_engine import TorchEngine
    from gpu_runners.models.causal_base import CausalBase

    Model = LabelModel | SpanModel | GenerativeModel

Opened = TypeVar("Opened")


class Loader:
    """Models by the sha256 of their `.kolm`, at most `keep`, over at most `keep_bases` bases, each of which is loaded
    once. Least recently used out first, a base with all models on it. One thread at a time. `n_texts` is how many texts
    a model will answer, None: as many as come (`answering_runtime`)."""

    def __init__(
        self,
        *,
        keyring: Path | None,
        base_dir: Path | None,
        allow_untrusted: bool = False,
        keep: int = 8,
        keep_bases: int = 3,
        n_texts: int | None = None,
    ) -> None:
        self._keyring, self._base_dir, self._allow_untrusted, self._keep = keyring, base_dir, allow_untrusted, keep
        self._keep_bases, self._n_texts = keep_bases, n_texts
        self._models: OrderedDict[str, Model] = OrderedDict()
        self._models_on: OrderedDict[str, set[str]] = OrderedDict()  # a base's name: the sha256 of the models on it
        self._runtimes: dict[str, tuple[Base, Runtime]] = {}
        self._engines: dict[str, tuple[CausalBase, TorchEngine]] = {}

    def get(self, sha256: str, fetch: Callable[[], bytes]) -> "tuple[Model, int]":
        """(model, milliseconds it took to load; 0 when it was warm). Raises JobFailed for bytes that are not `sha256`,
        not trusted or do not fit."""
        if sha256 in self._models:
            self._models.move_to_end(sha256)
            self._models_on.move_to_end(next(name for name, models in self._models_on.items() if sha256 in models))
            return self._models[sha256], 0
        started = time.monotonic()
        data = fetch()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise JobFailed(
                f"The blob store gave other bytes for {sha256[:12]}….", code="blob_mismatch", retryable=True
            )
        model = self.load(data)
        if isinstance(model, LabelModel | SpanModel):
            model.warm_up()  # its first pass is part of the load, not of an answer that is billed
        self._models[sha256] = model
        self._models_on[next(reversed(self._models_on))].add(sha256)  # the base that was just used
        while len(self._models) > self._keep:
            self._forget_model(next(iter(self._models)))
        return model, round((time.monotonic() - started) * 1000)

    def _forget_model(self, sha256: str) -> None:
        model = self._models.pop(sha256)
        for models in self._models_on.values():
            models.discard(sha256)
        if not isinstance(model, LabelModel | SpanModel):
            model.forget()

    def load(self, data: bytes) -> "Model":
        """Raises KolmFileError for what is altered or not trusted. The keyring is read each time: a key may have been
        revoked since."""
        keyring, _ = read_keyring(str(self._keyring)) if self._keyring is not None else (None, None)
        return self.model_of(load_verified(data, keyring, allow_untrusted=self._allow_untrusted))

    def model_of(self, kolm: Kolm) -> "Model":
        """The model of an artifact that `load_verified` gave out."""
        wanted = kolm.manifest["base"]
        if is_causal(kolm.members):
            from gpu_runners.artifacts.generative_model import GenerativeModel

            causal, engine = self.engine(wanted["id"])
            check_base_digest(wanted, causal.base)
            return GenerativeModel.from_members(kolm.members, base=causal, engine=engine)
        is_extraction = "extraction.json" in kolm.members
        if kolm.manifest["task_type"] != "label" and not is_extraction:
            raise JobFailed(
                f"This runner answers label tasks, span students and causal adapters, not "
                f"{kolm.manifest['task_type']!r}.",
                code="unsupported_task",
            )
        base, runtime = self.base(wanted["id"])
        check_base_digest(wanted, base)
        if is_extraction:
            return SpanModel.from_members(kolm.members, base=base, runtime=runtime)
        return LabelModel.from_members(kolm.members, base=base, runtime=runtime)

    def base(self, name: str) -> tuple[Base, Runtime]:
        if name not in self._runtimes:
            base = self._open(lambda: open_base(name, base_dir=self._base_dir))
            self._runtimes[name] = (base, answering_runtime(base, n_texts=self._n_texts))
        self._use(name)
        return self._runtimes[name]

    def engine(self, name: str) -> "tuple[CausalBase, TorchEngine]":
        """A causal base and the engine that all its artifacts share here."""
        from gpu_runners.engine.torch_engine import TorchEngine
        from gpu_runners.models.causal_base import open_causal_base

        if name not in self._engines:
            base = self._open(lambda: open_causal_base(name, base_dir=self._base_dir))
            self._engines[name] = (base, TorchEngine(base))
        self._use(name)
        return self._engines[name]

    def _use(self, name: str) -> None:
        self._models_on.setdefault(name, set())
        self._models_on.move_to_end(name)

    def _open(self, opening: Callable[[], Opened]) -> Opened:
        """A base whose weights are to be loaded now. The oldest one makes room, all of them where they fill the base
        cache; a base that cannot be had sends none away."""
        try:
            base = opening()
        except JobFailed as refused:
            if refused.code != "base_cache_full" or not self._models_on:
                raise
            self._forget_bases(0)
            base = opening()
        self._forget_bases(self._keep_bases - 1)
        return base

    def _forget_bases(self, most: int) -> None:
        """Keep at most so many."""
        if len(self._models_on) <= most:
            return
        while len(self._models_on) > most:
            self._forget_base(next(iter(self._models_on)))
        give_memory_back()  # here, where nothing refers to their engines any more

    def _forget_base(self, name: str) -> None:
        for sha256 in list(self._models_on[name]):
            self._forget_model(sha256)
        del self._models_on[name]
        bases: list[Base] = []
        if name in self._engines:
            causal, engine = self._engines.pop(name)
            engine.stop()
            bases.append(causal.base)
        if name in self._runtimes:
            bases.append(self._runtimes.pop(name)[0])
        for base in bases:
            if base.hold is not None:
                base.hold.release()

    def close(self) -> None:
        for _, engine in self._engines.values():
            engine.stop()


def merged_model(
    kolm: Kolm, *, base_dir: Path | None, max_running: int = 32, draft: str | None = None
) -> "GenerativeModel":
    """The one generative artifact of a process (`kolm run`, `kolm serve`), without the cost of a bank. `draft` names
    the base that drafts for it; where it is None, the artifact's spec does. Raises JobFailed."""
    from gpu_runners.artifacts.generative_model import GenerativeModel
    from gpu_runners.artifacts.pack_attachment import draft_base_name
    from gpu_runners.models.causal_base import open_causal_base
    from gpu_runners.models.draft_bases import draft_base

    wanted = kolm.manifest["base"]
    causal = open_causal_base(wanted["id"], base_dir=base_dir)
    check_base_digest(wanted, causal.base)
    name = draft or draft_base_name(kolm.members)
    small = draft_base(causal, name, base_dir=base_dir) if name else None
    return GenerativeModel.merge_members(kolm.members, base=causal, max_running=max_running, draft_base=small)


def check_base_digest(wanted: Mapping[str, str], base: Base) -> None:
    """Raises JobFailed(base_mismatch) unless the base's bytes are those that the manifest names."""
    if base.sha256 != wanted["sha256"]:
        raise JobFailed(
            f"The artifact needs the base {wanted['id']!r} with digest {wanted['sha256'][:12]}…; here it is "
            f"{base.sha256[:12]}….",
            code="base_mismatch",
        )
