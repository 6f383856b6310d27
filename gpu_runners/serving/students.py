"""The students on encoders that a server answers with: opened from verified artifacts over bases that are loaded once,
and asked in threads beside the event loop."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.serving.deployments import StudentKind
from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer, model_answer
from gpu_runners.artifacts.label_model import LabelModel
from gpu_runners.artifacts.loader import Loader
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.files import weight_files
from gpu_runners.models.bases import Base

KINDS = [str(StudentKind.LABEL), str(StudentKind.SPANS)]  # that this release loads
_MOST_BASES = 3  # in memory
_MOST_THREADS = 4
_TOKENIZER = 16  # bytes in memory of a byte of tokenizer.json; MiniLM's takes 14
_WEIGHT = (
    5  # bytes of a weight in numpy: a float, and query, key and value once more as one matrix; ONNX Runtime takes 4.2
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A verified student in memory; `n_bytes` is the most that it takes beside its base."""

    key: str
    tenant_digest: str
    model: EncoderModel
    n_bytes: int

    def is_sound(self, *, to_the_byte: bool) -> bool:
        """Nobody else writes to this process's memory."""
        return True

    def forget(self) -> None:
        """The memory goes with the last call that holds it."""


class Students:
    """`is_served` says of a base's name whether artifacts on it are answered here."""

    def __init__(self, *, base_dir: Path | None, is_served: Callable[[str], bool]) -> None:
        self._loader = Loader(keyring=None, base_dir=base_dir, keep_bases=_MOST_BASES)
        self._is_served, self._turn = is_served, threading.Lock()
        n_threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1))
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="students")
        self._about: dict[str, dict[str, Any]] = {}
        self._n_bytes: dict[str, int] = {}  # of a student, by its base

    def open(self, kolm: Kolm, *, key: str) -> Student:
        """The student of an artifact that `load_verified` gave out. Takes seconds for a base's first. Raises
        JobFailed."""
        name = str(kolm.manifest["base"]["id"])
        if not self._is_served(name):
            raise JobFailed(f"The base {name[:80]!r} is not served here.", code="unknown_base")
        with self._turn:
            model = self._loader.model_of(kolm)
            if name not in self._n_bytes:
                self._n_bytes[name] = own_bytes(self._loader.base(name)[0])
        assert isinstance(model, LabelModel | SpanModel)
        self._about[name] = {"name": "encoder", "device": model.device}
        n_bytes = self._n_bytes[name]
        return Student(key=key, tenant_digest=str(kolm.manifest["tenant_digest"]), model=model, n_bytes=n_bytes)

    async def answer(self, student: Student, text: str) -> StudentAnswer:
        """The answer to one input, computed beside the event loop."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, model_answer, student.model, text)
        return await work

    def about(self) -> dict[str, dict[str, Any]]:
        """Describe what answers, by base, as ServerRegistration has it; {} before the first artifact."""
        return dict(self._about)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def own_bytes(base: Base) -> int:
    """The most that a student takes beside its base: layers and a tokenizer of its own. Embeddings are shared."""
    n_weights = 0
    for file in weight_files(base.folder):
        with safe_open(base.folder / file, framework="numpy") as tensors:
            layers = [name for name in tensors.keys() if "embeddings" not in name]  # noqa: SIM118 - no mapping
            n_weights += sum(prod(tensors.get_slice(name).get_shape()) for name in layers)
    return _WEIGHT * n_weights + _TOKENIZER * (base.folder / "tokenizer.json").stat().st_size
