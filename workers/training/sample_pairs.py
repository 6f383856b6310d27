"""Pairs by the samples of a teacher: one for each different answer, and the teacher's distributions of its tokens."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from backend.domain.labeling.label_scores import DIGITS

LEAST_PROBABILITY = 1e-4  # of a soft target: 20 of them are a fifth of a per cent of a distribution at most

Pair = dict[str, Any]


def split_by_samples(pair: Pair, samples: Counter[str] | None) -> list[Pair]:
    """The pair once for each different answer, at its share of the weight; the pair itself where none is known."""
    if not samples:
        return [pair]
    n = samples.total()
    return [pair | {"output": answer, "weight": pair["weight"] * count / n} for answer, count in samples.items()]


def with_soft_targets(pair: Pair, choices: Sequence[dict[str, Any]]) -> Pair:
    """The pair with the distributions of the first choice that wrote its answer to the letter, where one did."""
    for choice in choices:
        if choice["text"].strip() == pair["output"] and choice.get("top_logprobs"):
            places = zip(choice["tokens"], choice["top_logprobs"], strict=True)
            return pair | {"soft_targets": [[token, _by_text(top)] for token, top in places]}
    return pair


def _by_text(top: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The log-prob of each text; tokens that show as one text, as parts of characters do, add up."""
    probabilities: dict[str, float] = {}
    for text, logprob in top:
        probabilities[text] = probabilities.get(text, 0.0) + math.exp(logprob)
    return {text: round(min(0.0, math.log(p)), DIGITS) for text, p in probabilities.items()}
