"""One optimisation: LoRA layers and a head over a frozen body, on given pairs, from a given head.

Deterministic and resumable: what happens at a step follows from the parameters, Adam's moments, the generator's state
and the step number, and these are what `tensors()` hands out and `restore()` takes back.
"""

import copy
import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backend.domain.jobs.runner_jobs import TrainOptions
from gpu_runners.distill import checkpoint
from gpu_runners.distill.label.dataset import Pair, batches
from gpu_runners.errors import JobFailed
from gpu_runners.models.encoder import LabelNet, width_of
from gpu_runners.models.label_adapter import Head
from gpu_runners.models.merging import linear_names

CLIP_NORM = 1.0


def learning_rate_factor(step: int, *, n_steps: int, warmup_share: float) -> float:
    """Linear warm-up, then linear decay; in (0, 1] for step 0 .. n_steps - 1."""
    warm = max(1, round(warmup_share * n_steps))
    return (step + 1) / warm if step < warm else (n_steps - step) / max(1, n_steps - warm)


def pick_precision(wanted: str, device: torch.device) -> str:
    """`auto` is bf16 where the device multiplies it natively (twice as fast on Zen 5), fp32 elsewhere: emulated bf16 is
    slower than fp32."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"


class Fit:
    """`body` is copied, never changed. `rows` are the pairs' token ids."""

    def __init__(
        self,
        *,
        body: nn.Module,
        pairs: Sequence[Pair],
        rows: Sequence[Sequence[int]],
        head: Head,
        options: TrainOptions,
        precision: str,
        pooling: str,
    ) -> None:
        self.options, self.pairs, self.rows, self.precision = options, pairs, rows, precision
        self.device = next(body.parameters()).device
        torch.manual_seed(options.seed)
        adapted = _with_lora(copy.deepcopy(body), options)
        net = LabelNet(adapted, width=width_of(body), n_labels=len(head.bias), pooling=pooling)
        self.net = net.to(self.device)
        self.net.set_head(head)
        self.trained = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(list(self.trained.values()), lr=options.learning_rate)
        self.steps_per_epoch = math.ceil(len(rows) / options.batch_size)
        self.n_steps = self.steps_per_epoch * options.epochs
        self.step = 0
        self._batches: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def advance(self) -> float:
        """One optimiser step; its loss. Raises JobFailed(diverged)."""
        self.net.train()
        factor = learning_rate_factor(self.step, n_steps=self.n_steps, warmup_share=self.options.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * factor
        chosen = self._batch()
        labels = torch.tensor([self.pairs[i].label for i in chosen], device=self.device)
        weights = torch.tensor([self.pairs[i].weight for i in chosen], device=self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            embedded = self.net.embed(self.net.pad([self.rows[i] for i in chosen]))
        losses = nn.functional.cross_entropy(self.net.logits(embedded), labels, reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise JobFailed(
                f"The training loss became {value} at step {self.step}; lower train.learning_rate.", code="diverged"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.trained.values()), CLIP_NORM)
        self.optimizer.step()
        self.step += 1
        return value

    def _batch(self) -> NDArray[np.int64]:
        epoch, n = divmod(self.step, self.steps_per_epoch)
        if self._batches[0] != epoch:
            lengths = [len(row) for row in self.rows]
            self._batches = (epoch, batches(lengths, size=self.options.batch_size, seed=self.options.seed, epoch=epoch))
        return self._batches[1][n]

    def tensors(self) -> dict[str, Tensor]:
        """The run's state. A layer that no text goes through gets no gradient, and Adam keeps no moments for it."""
        out: dict[str, Tensor] = {}
        for name, parameter in self.trained.items():
            out[f"param.{name}"] = parameter
            if moments := self.optimizer.state.get(parameter):
                out |= {f"adam_m.{name}": moments["exp_avg"], f"adam_v.{name}": moments["exp_avg_sq"]}
        return out | checkpoint.rng_tensors(self.device)

    def restore(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(tensors[f"param.{name}"])
                if f"adam_m.{name}" not in tensors:
                    continue
                self.optimizer.state[parameter] = {
                    "step": torch.tensor(float(step)),
                    "exp_avg": tensors[f"adam_m.{name}"].to(self.device),
                    "exp_avg_sq": tensors[f"adam_v.{name}"].to(self.device),
                }
        self.step = step
        checkpoint.set_rng(tensors, self.device)


def _with_lora(body: nn.Module, options: TrainOptions) -> nn.Module:
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=list(linear_names(body)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft 0.21 asks transformers 5.23 by a deprecated name
        return get_peft_model(body, config)
