"""The one network of a label task: a frozen text encoder, mean pooling, unit length, and a linear head.

    logits = 16 * unit(mean_t h_t) @ W.T + b

The 16 is part of the model: unit vectors alone give logits within [-1, 1] * |w|, and training would spend its first
epochs growing W.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpu_runners.models.bases import Base
from gpu_runners.models.encoder_tokens import pad
from gpu_runners.models.label_adapter import SCALE, Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A padded batch: ids and mask, both (b, t) int64."""

    ids: Tensor
    mask: Tensor


class LabelNet(nn.Module):
    """`body` is the encoder (with or without LoRA layers); `head.weight` is (n_labels, d), `head.bias` (n_labels,)."""

    def __init__(self, body: nn.Module, *, width: int, n_labels: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, n_labels)
        self._pad_id = int(getattr(body.config, "pad_token_id", 0) or 0)

    def set_head(self, head: Head) -> None:
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(head.weight))
            self.head.bias.copy_(torch.from_numpy(head.bias))

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        ids, mask = pad(rows, pad_id=self._pad_id)
        return Tokens(ids=torch.from_numpy(ids), mask=torch.from_numpy(mask))

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

    logging.disable_progress_bar()
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


def embed_all(net: LabelNet, rows: Sequence[Sequence[int]], *, batch_size: int = 32) -> Tensor:
    """(n, d) float32, unit rows, in the order given; batches are cut from the rows sorted by length."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    out = torch.empty((len(rows), net.head.in_features))
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            out[torch.tensor(chosen)] = net.embed(net.pad([rows[i] for i in chosen])).cpu()
    return out


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
