"""The one network of a label task: a frozen text encoder, its pooling, unit length, and a linear head.

    logits = 16 * unit(pool_t h_t) @ W.T + b

`pool` is what the encoder was trained with (`backend.domain.encoders`): the mean over the real tokens, the first
token's state, and so on.

The 16 is part of the model: unit vectors alone give logits within [-1, 1] * |w|, and training would spend its first
epochs growing W.
"""

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from backend.domain.encoders.sentence_settings import Pooling
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.files import load_failed, wrong_architecture
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

    def __init__(self, body: nn.Module, *, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.body, self.pooling = body, Pooling(pooling)
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
        return nn.functional.normalize(pool(hidden, mask, self.pooling), dim=-1)

    def forward(self, tokens: Tokens) -> Tensor:
        """(b, n_labels) float32 logits."""
        return self.logits(self.embed(tokens))

    def logits(self, embedded: Tensor) -> Tensor:
        return SCALE * (embedded @ self.head.weight.T) + self.head.bias


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """(b, d) of the last layer's (b, t, d) states and the (b, t) mask, padded on the right."""
    weights = mask.unsqueeze(-1).float()
    match pooling:
        case Pooling.CLS:
            return hidden[:, 0]
        case Pooling.LAST_TOKEN:
            last = mask.sum(1).clamp(min=1) - 1
            return hidden[torch.arange(len(hidden), device=hidden.device), last]
        case Pooling.MAX:
            return hidden.masked_fill(weights == 0, float("-inf")).amax(1)
        case Pooling.WEIGHTED_MEAN:
            weights = weights * torch.arange(1, hidden.shape[1] + 1, device=hidden.device).view(1, -1, 1)
    total = (hidden * weights).sum(1)
    n = weights.sum(1).clamp(min=1.0)
    return total / (n.sqrt() if pooling is Pooling.MEAN_SQRT_LEN else n)


def load_body(base: Base, *, keep_pooler: bool = False) -> nn.Module:
    """The frozen encoder in float32 and eval mode, without its pooler (a layer that no pooling here reads, and that
    files for other libraries keep). Raises
    JobFailed: base_wrong_architecture where tensors are missing (they would be random) or the config cannot be
    computed, base_unsupported for one that is no encoder alone."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        body, loaded = AutoModel.from_pretrained(
            str(base.folder),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a config makes a model's own code raise
        raise load_failed(base.name, base.folder, error) from error
    if getattr(body.config, "is_encoder_decoder", False) or not hasattr(body.config, "hidden_size"):
        raise JobFailed(
            f"The base {base.name!r} is a {body.config.model_type}, not an encoder of texts alone. Use an encoder "
            "(BERT, RoBERTa, MPNet, ModernBERT and their like).",
            code="base_unsupported",
        )
    lacking = sorted(name for name in loaded["missing_keys"] if "pooler" not in name)
    if lacking:
        raise wrong_architecture(base.name, f"its weights lack {lacking[0]} and {len(lacking) - 1} more tensors")
    if getattr(body, "pooler", None) is not None and not keep_pooler:
        body.register_module("pooler", None)
    for parameter in body.parameters():
        parameter.requires_grad_(False)
    frozen: nn.Module = body.eval()
    return frozen


def takes_added(body: nn.Module) -> bool:
    """Say whether `body_states` can add to the embeddings of its words."""
    return "inputs_embeds" in inspect.signature(body.forward).parameters


def body_states(body: nn.Module, ids: Tensor, mask: Tensor, added: Tensor | None = None) -> Tensor:
    """(b, t, d) states of the last layer of (b, t) ids, padded on the right. `added`, (n, d) of the real tokens, one
    row after another, is added to the embeddings of the words."""
    if added is None:
        return cast(Tensor, body(input_ids=ids, attention_mask=mask).last_hidden_state)
    words = body.get_input_embeddings()(ids)  # type: ignore[operator]
    spread = torch.zeros_like(words).masked_scatter(mask.bool().unsqueeze(-1), added.to(words.dtype))
    return cast(Tensor, body(inputs_embeds=words + spread, attention_mask=mask).last_hidden_state)


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
