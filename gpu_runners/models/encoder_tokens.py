"""Text to token ids, by the base's own `tokenizer.json`, and what its files say of texts. Needs no torch."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from backend.domain.encoders.card_prefixes import Use
from backend.domain.encoders.sentence_settings import (
    SentenceSettings,
    UnsupportedEncoder,
    read_settings,
    readable_tokens,
)
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.files import read_optional
from gpu_runners.models.bases import Base


def read_config(base: Base) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((base.folder / "config.json").read_text())
    return config


def sentence_settings(base: Base, use: Use) -> SentenceSettings:
    """The settings with which this base wants its texts, by its own files. Raises JobFailed: base_unsupported,
    base_truncated."""
    try:
        settings = read_settings(base.name, use, lambda file: read_optional(base.folder, file))
    except UnsupportedEncoder as refused:
        raise JobFailed(refused.message, code=refused.code) from refused
    capital, small = (row.ids for row in bare_tokenizer(base).encode_batch(["A", "a"]))
    if settings.lowercase and capital != small:
        raise JobFailed(
            f"The encoder {base.name!r} wants lower case and its tokenizer.json keeps capitals. Use another base.",
            code="base_unsupported",
        )
    return settings


class TextTokenizer:
    """Reads `prefix` and the text as one, and cuts the text at `max_tokens` (special tokens included; the prefix's own
    come on top), or at what the base can read at once if that is less. `at_most` counts the prefix too."""

    def __init__(self, base: Base, *, max_tokens: int, prefix: str = "", at_most: int | None = None) -> None:
        self._tokenizer, self._prefix = bare_tokenizer(base), prefix
        n_prefix = len(self._tokenizer.encode(prefix, add_special_tokens=False).ids) if prefix else 0
        limits = (max_tokens + n_prefix, at_most, readable_tokens(read_config(base)))
        cut = min(limit for limit in limits if limit is not None)
        self.max_tokens = cut - n_prefix  # what is left for the text: given back as `max_tokens`, the cut is the same
        if self.max_tokens < min(8, max_tokens):
            raise JobFailed(
                f"The encoder {base.name!r} reads {cut} tokens, and its prefix {prefix[:40]!r} takes {n_prefix} of "
                "them. Use another base.",
                code="base_unsupported",
            )
        self.cut = cut
        self._tokenizer.enable_truncation(cut)

    def to_json(self) -> str:
        """A tokenizer.json that cuts at `cut` tokens, prefix and special tokens included; it puts no prefix."""
        text: str = self._tokenizer.to_str()
        return text

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [(self._prefix + text).encode("utf-8", "replace").decode() for text in texts]  # no lone surrogates
        return [encoding.ids for encoding in self._tokenizer.encode_batch(clean)]


def bare_tokenizer(base: Base) -> Tokenizer:
    """The base's tokenizer, which pads and cuts nothing."""
    tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def pad(rows: Sequence[Sequence[int]], *, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(ids, mask), both (n, longest)."""
    width = max(1, max(len(row) for row in rows))
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return ids, mask
