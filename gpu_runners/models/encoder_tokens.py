"""Text to token ids, by the base's own `tokenizer.json`. Needs no torch."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gpu_runners.models.bases import Base


def read_config(base: Base) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((base.folder / "config.json").read_text())
    return config


class TextTokenizer:
    """Cuts at `max_tokens`, or at what the base can read at once if that is less."""

    def __init__(self, base: Base, *, max_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(
            min(max_tokens, int(read_config(base).get("max_position_embeddings", max_tokens)))
        )

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [text.encode("utf-8", "replace").decode() for text in texts]  # it takes no lone surrogates
        return [encoding.ids for encoding in self._tokenizer.encode_batch(clean)]


def pad(rows: Sequence[Sequence[int]], *, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(ids, mask), both (n, longest)."""
    width = max(1, max(len(row) for row in rows))
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return ids, mask
