"""The naive alternative: the same heads trained on the states of the frozen encoder, which are computed once."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np
import torch
from scipy.special import logsumexp

from backend.domain.jobs.span_jobs import SpanOptions
from gpu_runners.distill.label.adamw import AdamW
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import Pair as Labelled
from gpu_runners.distill.label.dataset import batches
from gpu_runners.distill.label.fit import learning_rate_factor
from gpu_runners.distill.label.nets import LoraBody
from gpu_runners.distill.spans.dataset import Example
from gpu_runners.distill.spans.net import Gathered, Heads, gather_states, loss_of
from gpu_runners.models.label_adapter import SCALE, Head
from gpu_runners.models.spans.adapter import CLASSES, ELEMENTS, OPENS, TAGS
from gpu_runners.models.tensor_files import Array

EPOCHS = 20
LEARNING_RATE = 1e-2  # of 3e-3, 1e-2 and 3e-2 the best on SNIPS' training side
BATCH = 32
MOST_BYTES = 1 << 30  # of states that are kept; of more pairs the first so many are trained on


class FrozenStates:
    """The states of the first examples that fit the memory set aside for them."""

    def __init__(self, body: LoraBody, examples: Sequence[Example], *, width: int) -> None:
        self.examples, self.width, self.device = examples, width, body.device
        self.kept: list[Gathered] = []
        n_bytes = 0
        with torch.no_grad():
            for start in range(0, len(examples), BATCH):
                chosen = examples[start : start + BATCH]
                n_bytes += sum(4 * width * (len(example.places) + 1) for example in chosen)
                if n_bytes > MOST_BYTES and self.kept:
                    break
                states, mask = body.states([window for one in chosen for window in one.windows], dropout=0.0)
                gathered = gather_states(states, mask, [(len(one.windows), one.places) for one in chosen])
                tokens = torch.split(gathered.tokens, [len(one.places) for one in chosen])
                means = torch.split(gathered.means, 1)
                self.kept += [Gathered(tokens=own, means=mean) for own, mean in zip(tokens, means, strict=True)]

    def first_heads(self, sizes: Mapping[str, int], members: Iterable[int], *, many: Set[int]) -> dict[str, Head]:
        """Fit a logistic regression for each closed set on those of the examples that are members, of a set of which
        several classes may hold one for each class: where training begins, as a label student's does
        (docs/decisions/0006-two-fits.md). Heads of tokens begin at how often each of their rows is right."""
        there = [i for i in members if i < len(self.kept)]
        heads = _prior_heads(sizes, [self.examples[i] for i in there], width=self.width)
        for name, rows in sizes.items():
            rule = int(name.removeprefix(CLASSES)) if name.startswith(CLASSES) else -1
            asked = [i for i in there if rule in self.examples[i].classes]
            if rule < 0 or not asked:
                continue
            means = torch.cat([self.kept[i].means for i in asked]).cpu().numpy()
            classes = [self.examples[i].classes[rule] for i in asked]
            weights = [self.examples[i].weight for i in asked]
            if rule in many:
                heads[name] = _fit_members(means, classes, weights, rows=rows)
            else:
                heads[name] = _fit_classes(means, [one[0] for one in classes], weights, rows=rows)
        return heads

    def fit_heads(self, sizes: Mapping[str, int], options: SpanOptions, *, many: Set[int]) -> dict[str, Head]:
        """Train the heads on all examples that are kept."""
        begun = self.first_heads(sizes, range(len(self.kept)), many=many)
        heads = Heads(sizes, width=self.width, device=self.device, begun=begun)
        optimizer = AdamW(heads.trained)
        lengths = [len(own.tokens) for own in self.kept]
        plans = [batches(lengths, size=BATCH, seed=options.seed, epoch=epoch) for epoch in range(EPOCHS)]
        n_steps, step = sum(map(len, plans)), 0
        for plan in plans:
            for chosen in plan:
                tokens = torch.cat([self.kept[i].tokens for i in chosen])
                means = torch.cat([self.kept[i].means for i in chosen])
                logits = heads.logits(Gathered(tokens=tokens, means=means))
                loss = loss_of(logits, [self.examples[i] for i in chosen], many=many)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                factor = learning_rate_factor(step, n_steps=n_steps, warmup_share=options.warmup_share)
                optimizer.step(LEARNING_RATE * factor)
                step += 1
        return heads.arrays()


def _prior_heads(sizes: Mapping[str, int], examples: Sequence[Example], *, width: int) -> dict[str, Head]:
    """Heads of tokens that know the shares of their rows and no more. From zero, the first steps push all tokens
    towards what is common, and of some tasks the states never come apart again."""
    heads = {}
    for name, rows in sizes.items():
        counts = np.full(max(rows, 2), 0.5)
        for example in examples:
            np.add.at(counts, [one for one in _targets(name, example) if one >= 0], 1)
        shares = np.log(counts / counts.sum()).astype(np.float32)
        bias = shares[1:] - shares[0] if name == OPENS else shares
        if not name.startswith(CLASSES):
            heads[name] = Head(weight=np.zeros((rows, width), np.float32), bias=bias)
    return heads


def _targets(name: str, example: Example) -> Sequence[int]:
    """The targets of a head of tokens; NOT_ASKED, which is negative, among them."""
    if name.startswith(TAGS):
        return example.tags[int(name.removeprefix(TAGS))]
    if name.startswith(ELEMENTS):
        return example.elements[int(name.removeprefix(ELEMENTS))]
    return example.opens if name == OPENS else ()


def _fit_classes(means: Array, classes: Sequence[int], weights: Sequence[float], *, rows: int) -> Head:
    """A logistic regression over the classes that the pairs have; the others begin as improbable as half a pair."""
    there = sorted(set(classes))
    weight = np.zeros((rows, means.shape[1]), np.float32)
    bias = np.full(rows, math.log(0.5 / len(classes)), np.float32)
    if len(there) == 1:
        bias[there] = 0
        return Head(weight=weight, bias=bias)
    pairs = [Labelled(text="", label=there.index(one), weight=w) for one, w in zip(classes, weights, strict=True)]
    head = fit_head(means, pairs, n_labels=len(there))
    weight[there] = head.weight
    bias += float(logsumexp(SCALE * means @ head.weight.T + head.bias, axis=1).mean())
    bias[there] = head.bias
    return Head(weight=weight, bias=bias)


def _fit_members(means: Array, classes: Sequence[tuple[int, ...]], weights: Sequence[float], *, rows: int) -> Head:
    """A logistic regression for each class on its own; of a class that all or none of the pairs have, its log-odds."""
    weight, bias = np.zeros((rows, means.shape[1]), np.float32), np.zeros(rows, np.float32)
    for number in range(rows):
        is_there = [number in one for one in classes]
        n_there = sum(is_there)
        if n_there in (0, len(classes)):
            bias[number] = math.log((n_there + 0.5) / (len(classes) - n_there + 0.5))
            continue
        pairs = [Labelled(text="", label=int(there), weight=w) for there, w in zip(is_there, weights, strict=True)]
        head = fit_head(means, pairs, n_labels=2)
        weight[number], bias[number] = head.weight[1] - head.weight[0], head.bias[1] - head.bias[0]
    return Head(weight=weight, bias=bias)
