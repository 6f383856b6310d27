"""Texts to unit rows with the pinned MiniLM on the caller's own machine: the same rows as the service's embedder to
1e-5 (tested), and the same identity, because the weights are the same bytes.

Two engines give them. On one core of the machine it was measured on (BANKING77, 2026-11-21), numpy starts in 1.4 s and
takes 13 ms a text; torch, where it is installed, starts in 7 s and takes 8 ms: it is worth it from TORCH_FROM texts on.
Other bases than a plain BERT need torch.
"""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.models.bases import MINILM, Base, open_base
from gpu_runners.models.encoder_tokens import TextTokenizer, sentence_settings
from gpu_runners.models.numpy_bert import NumpyBert, can_run
from gpu_runners.models.tensor_files import Array

MAX_TOKENS = 256  # of a text, where no file of the base says it; MiniLM's own sentence_bert_config.json says the same
MAX_CHARACTERS = 32_768  # 256 tokens never reach so far; the tokenizer is spared the rest of a very long text
BATCH_TOKENS = 4_096  # padded tokens a forward pass: 50 MB of activations in numpy
BATCH_ROWS = 64
TOKENIZED_AT_ONCE = 4_096
TORCH_FROM = 2_000

OnProgress = Callable[[int, int], None]


class _Engine(Protocol):
    width: int

    def embed(self, rows: Sequence[Sequence[int]], pooling: Pooling) -> Array:
        """(b, d) float32 unit rows of b rows of token ids."""
        ...


class TextEmbedder:
    """One loaded base. Not safe to share between threads: its tokenizer is not."""

    def __init__(self, base: Base, engine: _Engine) -> None:
        settings = sentence_settings(base, Use.CLUSTERING)
        most = settings.max_tokens or MAX_TOKENS
        self.tokenizer = TextTokenizer(base, max_tokens=most, prefix=settings.prefix, at_most=most)
        self._engine, self._pooling = engine, settings.pooling
        self.identity = f"{base.name}@sha256:{_weights_sha256(base.folder)}"

    def embed(self, texts: Sequence[str], *, on_progress: OnProgress | None = None) -> Array:
        """(n, d) float32, unit rows, one per text in order. Texts that the model reads alike (this one sees no
        capitals) are embedded once and share their row to the last bit. `on_progress(done, total)` counts different
        readings."""
        ids = self._token_ids(texts)
        readings = [tokens.tobytes() for tokens in ids]
        first = {reading: at for at, reading in reversed(list(enumerate(readings)))}
        place = {reading: at for at, reading in enumerate(first)}
        rows = self._embed_distinct([ids[at] for at in first.values()], on_progress or _ignore)
        return rows[[place[reading] for reading in readings]]

    def _embed_distinct(self, ids: Sequence[Sequence[int]], on_progress: OnProgress) -> Array:
        out = np.empty((len(ids), self._engine.width), dtype=np.float32)
        order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))  # longest first: the end comes sooner
        done = 0
        while done < len(order):
            batch = order[done : done + min(BATCH_ROWS, max(1, BATCH_TOKENS // len(ids[order[done]])))]
            out[batch] = self._engine.embed([ids[i] for i in batch], self._pooling)
            done += len(batch)
            on_progress(done, len(order))
        return out

    def _token_ids(self, texts: Sequence[str]) -> list["array[int]"]:
        """Tokenize into arrays: 100,000 texts of 256 tokens are 100 MB so, and 900 MB as lists."""
        out: list[array[int]] = []
        for start in range(0, len(texts), TOKENIZED_AT_ONCE):
            cut = [text[:MAX_CHARACTERS] for text in texts[start : start + TOKENIZED_AT_ONCE]]
            out += [array("i", ids) for ids in self.tokenizer.ids(cut)]
        return out


def load_text_embedder(*, n_texts: int = 0, base_dir: Path | None = None, name: str = MINILM) -> TextEmbedder:
    """The embedder for about `n_texts` texts. Raises JobFailed (unknown_base) and ImportError without the runner
    extra."""
    base = open_base(name, base_dir=base_dir)
    if can_run(base) and (n_texts < TORCH_FROM or not _has_torch()):
        return TextEmbedder(base, NumpyBert.load(base))
    return TextEmbedder(base, _TorchEngine(base))


class _TorchEngine:
    """The frozen encoder without a head, on the GPU where there is one."""

    def __init__(self, base: Base) -> None:
        from gpu_runners.models.encoder import LabelNet, best_device, load_body, width_of

        body = load_body(base)
        self.width = width_of(body)
        self._net = LabelNet(body, width=self.width, n_labels=1, pooling=Pooling.MEAN).eval().to(best_device())

    def embed(self, rows: Sequence[Sequence[int]], pooling: Pooling) -> Array:
        import torch

        self._net.pooling = pooling
        with torch.inference_mode():
            out: Array = self._net.embed(self._net.pad(rows)).cpu().numpy()
        return out


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None and find_spec("transformers") is not None


def _weights_sha256(folder: Path) -> str:
    """The digest as `workers.embedding.sentence` counts it: the bytes of weights and tokenizer, by path."""
    digest = hashlib.sha256()
    for file in sorted(
        [*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model.bin"), *folder.rglob("tokenizer.json")]
    ):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _ignore(done: int, total: int) -> None:
    """Nobody asked."""
