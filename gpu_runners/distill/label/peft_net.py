"""Any encoder of transformers with peft's LoRA layers: the way of every family that `frozen_bert` does not compute."""

import copy
import re
import warnings
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill.label.nets import Rows, first_layer
from gpu_runners.models.bases import Base
from gpu_runners.models.encoder import LabelNet, body_states, embed_all, load_body, takes_added, width_of
from gpu_runners.models.encoder_tokens import pad
from gpu_runners.models.label_adapter import Adapter, Head
from gpu_runners.models.merging import from_peft, linear_names, lora_pairs
from gpu_runners.models.tensor_files import Array


class PeftEngine:
    name = "peft"
    libraries = ("torch", "transformers", "peft")

    def __init__(self, body: nn.Module, *, pooling: Pooling, precision: str) -> None:
        self.body, self.pooling, self.precision = body, pooling, precision
        self.n_layers, self.width = int(getattr(body.config, "num_hidden_layers", 0)), width_of(body)
        self.target_modules: Sequence[str] = linear_names(body)
        self.takes_added = takes_added(body)

    @classmethod
    def load(cls, base: Base, *, device: torch.device, pooling: Pooling, precision: str) -> "PeftEngine":
        return cls(load_body(base).to(device), pooling=pooling, precision=precision)

    def embed(self, rows: Rows) -> Array:
        net = LabelNet(self.body, width=width_of(self.body), n_labels=2, pooling=self.pooling)
        embedded: Array = embed_all(net.to(next(self.body.parameters()).device), rows).numpy()
        return embedded

    def net(self, rows: Rows, head: Head, options: TrainOptions) -> "PeftNet":
        return PeftNet(self, rows, head, options)

    def lora(self, *, rank: int, alpha: int) -> "PeftLora":
        return PeftLora(self, rank=rank, alpha=alpha)


class PeftNet:
    """`engine.body` is copied, never changed. Its own dropout is on while it trains, as its family was trained."""

    def __init__(self, engine: PeftEngine, rows: Rows, head: Head, options: TrainOptions) -> None:
        self._rows, self._precision = rows, engine.precision
        self.device = next(engine.body.parameters()).device
        torch.manual_seed(options.seed)
        targets = _targets(engine.body, first_layer(engine.n_layers, options.layers))
        adapted = _with_lora(
            copy.deepcopy(engine.body), targets, rank=options.rank, alpha=options.alpha, dropout=options.dropout
        )
        net = LabelNet(adapted, width=width_of(engine.body), n_labels=len(head.bias), pooling=engine.pooling)
        self.net = net.to(self.device)
        self.net.set_head(head)
        self.trained = {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    def logits(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        return self.net.logits(self.vectors(chosen, dropout=dropout))

    def vectors(self, chosen: Sequence[int], *, dropout: bool) -> Tensor:
        self.net.train(dropout)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16"):
            return self.net.embed(self.net.pad([self._rows[i] for i in chosen]))

    def set_head(self, head: Head) -> None:
        self.net.set_head(head)

    def adapter(self, baseline: Head) -> Adapter:
        return from_peft(self.net, baseline=baseline)


class PeftLora:
    """LoRA on all linear layers of a body, for heads on its states."""

    def __init__(self, engine: PeftEngine, *, rank: int, alpha: int) -> None:
        self.device, self._precision = next(engine.body.parameters()).device, engine.precision
        body = copy.deepcopy(engine.body)
        self._body = _with_lora(body, list(linear_names(body)), rank=rank, alpha=alpha, dropout=0.0).to(self.device)
        self._pad_id = int(getattr(engine.body.config, "pad_token_id", 0) or 0)
        self.trained = {name: p for name, p in self._body.named_parameters() if p.requires_grad}

    def states(self, rows: Rows, *, dropout: float, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(b, t, d) float32 and the (b, t) mask. The body's own dropout is on where `dropout` is above 0."""
        self._body.train(dropout > 0)
        ids, mask = (torch.from_numpy(one).to(self.device) for one in pad(rows, pad_id=self._pad_id))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16"):
            states = body_states(self._body, ids, mask, added).float()
        return states, mask

    def pairs(self) -> dict[str, tuple[Array, Array]]:
        return lora_pairs(self._body)


def _with_lora(body: nn.Module, targets: list[str], *, rank: int, alpha: int, dropout: float) -> nn.Module:
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=targets,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 asks transformers 5.23 by a deprecated name
        return cast(nn.Module, get_peft_model(cast(Any, body), config))


def _targets(body: nn.Module, first: int) -> list[str]:
    """The linear layers from layer `first` on; all of them where layers are not numbered so (some families share
    one)."""
    paths = [name for name, module in body.named_modules() if isinstance(module, nn.Linear)]
    number = re.compile(r"\.(\d+)\.")
    top = [path for path in paths if (at := number.search(path)) and int(at[1]) >= first]
    return top if first and top else list(linear_names(body))
