"""The one network of a label task: a frozen text encoder, mean pooling, unit length, and a linear head.

    logits = 16 * unit(mean_t h_t) @ W.T + b

The 16 is part of the model: unit vectors alone give logits within [-1, 1] * |w|, and training would spend its first
epochs growing W.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from gpu_runners.distill.bases import Base

SCALE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A padded batch: ids and mask, both (b, t) int64."""

    ids: Tensor
    mask: Tensor


class TextTokenizer:
    """Text to token ids by the base's own `tokenizer.json`, cut at `max_tokens`."""

    def __init__(self, base: Base, *, max_tokens: int, pad_id: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(base.folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._pad_id = pad_id

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [
            text.encode("utf-8", "replace").decode() for text in texts
        ]  # lone surrogates would panic in the Rust tokenizer
        return [encoding.ids for encoding in self._tokenizer.encode_batch(clean)]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        width = max(1, max(len(row) for row in rows))
        ids = torch.full((len(rows), width), self._pad_id, dtype=torch.int64)
        mask = torch.zeros((len(rows), width), dtype=torch.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
            mask[i, : len(row)] = 1
        return Tokens(ids=ids, mask=mask)


class LabelNet(nn.Module):
    """`body` is the encoder (with or without LoRA layers); `head.weight` is (n_labels, d), `head.bias` (n_labels,)."""

    def __init__(self, body: nn.Module, *, width: int, n_labels: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, n_labels)

    def embed(self, tokens: Tokens) -> Tensor:
        """(b, d) float32, unit rows."""
        device = self.head.weight.device
        mask = tokens.mask.to(device)
        hidden = self.body(input_ids=tokens.ids.to(device), attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        return nn.functional.normalize(mean, dim=-1)

    def forward(self, tokens: Tokens) -> Tensor:
        """(b, n_labels) float32 logits."""
        return self.logits(self.embed(tokens))

    def logits(self, embedded: Tensor) -> Tensor:
        return SCALE * (embedded @ self.head.weight.T) + self.head.bias


def load_body(base: Base) -> nn.Module:
    """The frozen encoder in float32 and eval mode, without its pooler (mean pooling makes it dead weight)."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    body: nn.Module = AutoModel.from_pretrained(
        str(base.folder), use_safetensors=True, local_files_only=True, dtype=torch.float32
    )
    if getattr(body, "pooler", None) is not None:
        body.register_module("pooler", None)
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    return body.eval()


def width_of(body: nn.Module) -> int:
    return int(body.config.hidden_size)  # type: ignore[union-attr,arg-type]


def tokenizer_for(base: Base, body: nn.Module, *, max_tokens: int) -> TextTokenizer:
    config = body.config
    limit = int(getattr(config, "max_position_embeddings", max_tokens))
    return TextTokenizer(base, max_tokens=min(max_tokens, limit), pad_id=int(getattr(config, "pad_token_id", 0) or 0))


def embed_all(
    net: LabelNet, tokenizer: TextTokenizer, rows: Sequence[Sequence[int]], *, batch_size: int = 32
) -> Tensor:
    """(n, d) float32, unit rows, in the order given; batches are cut from the rows sorted by length."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    out = torch.empty((len(rows), net.head.in_features))
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            out[torch.tensor(chosen)] = net.embed(tokenizer.pad([rows[i] for i in chosen])).cpu()
    return out


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
