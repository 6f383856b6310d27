"""Noise in the texts that train, other in each epoch: words that cannot be read, and texts without capitals.

A token that is masked must be told by those around it, as a value that no pair has (the masking of BERT's own training,
Devlin et al. 2019). Capitals are a help where they are; those who write later may leave them out.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpu_runners.distill.spans.dataset import Example
from gpu_runners.models.spans.kinds import drop_case

UNCASED = 0.3  # of the texts


def with_noise(
    examples_of: Callable[[int], Sequence[Example]], *, mask_share: float, mask_id: int | None, seed: int
) -> Callable[[int], list[Example]]:
    """The examples of an epoch with noise that follows from the seed and the epoch alone. `mask_share` of the tokens
    become `mask_id` (None: the tokenizer has no such token, and none is masked)."""

    def noisy(epoch: int) -> list[Example]:
        rng = random.Random(f"{seed}/noise/{epoch}")
        out = []
        for example in examples_of(epoch):
            if rng.random() < UNCASED:
                example = replace(example, kinds=tuple(tuple(map(drop_case, window)) for window in example.kinds))
            out.append(example if mask_id is None else _mask_tokens(example, rng, mask_share, mask_id))
        return out

    return noisy


def _mask_tokens(example: Example, rng: random.Random, share: float, mask_id: int) -> Example:
    windows = [list(window) for window in example.windows]
    for window, place in example.places:
        if rng.random() < share:
            windows[window][place] = mask_id
    return replace(example, windows=tuple(map(tuple, windows)))
