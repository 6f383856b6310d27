"""The naive alternative: the same heads trained on the states of the frozen encoder, which are computed once."""

from collections.abc import Mapping, Sequence, Set

import torch

from backend.domain.jobs.span_jobs import SpanOptions
from gpu_runners.distill.label.adamw import AdamW
from gpu_runners.distill.label.dataset import batches
from gpu_runners.distill.label.fit import learning_rate_factor
from gpu_runners.distill.label.nets import LoraBody
from gpu_runners.distill.spans.dataset import Example
from gpu_runners.distill.spans.net import Gathered, Heads, gather_states, loss_of
from gpu_runners.models.label_adapter import Head

EPOCHS = 20
LEARNING_RATE = 1e-2  # of 3e-3, 1e-2 and 3e-2 the best on SNIPS' training side
BATCH = 32
MOST_BYTES = 1 << 30  # of states that are kept; of more pairs the first so many are trained on


def fit_frozen_heads(
    body: LoraBody,
    sizes: Mapping[str, int],
    examples: Sequence[Example],
    options: SpanOptions,
    *,
    width: int,
    many: Set[int],
) -> dict[str, Head]:
    """Train the heads; `body` is one whose LoRA matrices change nothing yet."""
    kept = _gather_frozen(body, examples, width)
    heads = Heads(sizes, width=width, device=body.device)
    optimizer = AdamW(heads.trained)
    lengths = [len(own.tokens) for own in kept]
    plans = [batches(lengths, size=BATCH, seed=options.seed, epoch=epoch) for epoch in range(EPOCHS)]
    n_steps, step = sum(map(len, plans)), 0
    for plan in plans:
        for chosen in plan:
            tokens = torch.cat([kept[i].tokens for i in chosen])
            means = torch.cat([kept[i].means for i in chosen])
            part = [examples[i] for i in chosen]
            loss = loss_of(heads.logits(Gathered(tokens=tokens, means=means)), part, many=many)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            factor = learning_rate_factor(step, n_steps=n_steps, warmup_share=options.warmup_share)
            optimizer.step(LEARNING_RATE * factor)
            step += 1
    return heads.arrays()


def _gather_frozen(body: LoraBody, examples: Sequence[Example], width: int) -> list[Gathered]:
    """The states of the first examples that fit the memory set aside for them."""
    kept: list[Gathered] = []
    n_bytes = 0
    with torch.no_grad():
        for example in examples:
            n_bytes += 4 * width * (len(example.places) + 1)
            if n_bytes > MOST_BYTES and kept:
                break
            states, mask = body.states(example.windows, dropout=0.0)
            kept.append(gather_states(states, mask, [(len(example.windows), example.places)]))
    return kept
