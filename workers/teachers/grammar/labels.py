"""The label that the grammar teacher gives a text, as a probability over all labels.

Inside the grammar's language the answer is Bayes' rule on exact text probabilities, labels equally likely
beforehand. Outside it (a gold or captured message) a class-conditional word model answers: unigrams and bigrams of
stems, interpolated and smoothed, estimated from a fixed seeded sample of the grammar's messages and from what the
prompt says of each label. That part is a crude classifier and errs like one. Temperature T turns the posterior p
into p^(1/T), renormalised: the log-prob of a label is exact for the distribution it was drawn from.
"""

import functools
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.teachers.grammar.fallback import fallback_grammar
from workers.teachers.grammar.pcfg import Grammar

SAMPLES_PER_LABEL = 600
SAMPLE_SEED = 20260101
BIGRAM_SHARE = 0.35
SMOOTHING = 0.3
MEANING_WEIGHT = 3  # how often the words of a label's name and meaning count


@dataclass(frozen=True, slots=True, kw_only=True)
class WordModel:
    """Stem counts of one label."""

    unigrams: Mapping[str, int]
    bigrams: Mapping[tuple[str, str], int]
    n: int

    def logprob(self, stems: Sequence[str], n_known: int) -> float:
        """log P(stems | label) over a vocabulary of `n_known` stems and one for all unknown ones."""
        total = 0.0
        for before, stem in zip(["", *stems], stems, strict=False):
            unigram = (self.unigrams.get(stem, 0) + SMOOTHING) / (self.n + SMOOTHING * (n_known + 1))
            followed = self.unigrams.get(before, 0)
            pair = self.bigrams.get((before, stem), 0) / followed if followed else unigram
            total += math.log(BIGRAM_SHARE * pair + (1 - BIGRAM_SHARE) * unigram)
        return total


class Labeller:
    """Immutable but for caches; safe to share between threads."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._models = functools.lru_cache(maxsize=64)(self._estimate)

    def log_posterior(
        self, text: str, labels: tuple[str, ...], meanings: tuple[str, ...], *, temperature: float
    ) -> dict[str, float]:
        """{label: log-prob}, -inf where impossible; sums to one."""
        exact = self._exact(text, labels)
        return apply_temperature(exact if exact is not None else self._guess(text, labels, meanings), temperature)

    def knows(self, labels: Sequence[str]) -> bool:
        """Say whether all labels are the grammar file's or synonyms of them, and no two mean the same; if not, its
        messages say nothing about the task at hand."""
        own = {self._grammar.label_of(label) for label in labels}
        return len(own) == len(set(labels)) and own <= {s.label for s in self._grammar.slices.values()}

    def _exact(self, text: str, labels: tuple[str, ...]) -> dict[str, float] | None:
        """log P(text | label), or None outside the language of these labels."""
        if not self.knows(labels) or "\n" in text:
            return None
        scores = {
            label: logmean([self._grammar.logprob(start, text, temperature=1.0) for start in self._starts(label)])
            for label in labels
        }
        return scores if max(scores.values()) > -math.inf else None

    def _guess(self, text: str, labels: tuple[str, ...], meanings: tuple[str, ...]) -> dict[str, float]:
        models = self._models(labels, meanings)
        known = {stem for model in models for stem in model.unigrams}
        stems = stems_of(text)[:400]
        return {label: model.logprob(stems, len(known)) for label, model in zip(labels, models, strict=True)}

    def _estimate(self, labels: tuple[str, ...], meanings: tuple[str, ...]) -> tuple[WordModel, ...]:
        from_file = self.knows(labels)
        return tuple(
            count_words(
                self._messages(label) if from_file else _fallback_messages(label, meaning),
                f"{label} {meaning}",
            )
            for label, meaning in zip(labels, meanings, strict=True)
        )

    def _messages(self, label: str) -> list[str]:
        starts = self._starts(label)
        rng = random.Random(f"{SAMPLE_SEED}|{self._grammar.label_of(label)}")
        return [
            self._grammar.sample(starts[i % len(starts)], temperature=1.0, rng=rng) for i in range(SAMPLES_PER_LABEL)
        ]

    def _starts(self, label: str) -> list[str]:
        """The start symbols of the label's slices, without those that are part of another: these say nothing new."""
        own = self._grammar.label_of(label)
        return [s.start for s in self._grammar.slices.values() if s.label == own and not s.part_of]


def _fallback_messages(label: str, meaning: str) -> list[str]:
    grammar, start = fallback_grammar(label, meaning, label)
    rng = random.Random(f"{SAMPLE_SEED}|{label}")
    return [grammar.sample(start, temperature=1.0, rng=rng) for _ in range(SAMPLES_PER_LABEL)]


def count_words(messages: Sequence[str], meaning: str) -> WordModel:
    unigrams: Counter[str] = Counter()
    bigrams: Counter[tuple[str, str]] = Counter()
    for text in [*messages, *[meaning] * MEANING_WEIGHT]:
        stems = stems_of(text)
        unigrams.update(stems)
        bigrams.update(itertools.pairwise(stems))
    return WordModel(unigrams=unigrams, bigrams=bigrams, n=sum(unigrams.values()))


def stems_of(text: str) -> list[str]:
    """Words in lower case, digits as one stem, the first five letters of each: crude, but "refunded" meets
    "refunds"."""
    return ["0" if word.isdigit() else word[:5] for word in re.findall(r"[^\W_]+", text.lower().replace("'", ""))]


def logmean(logs: Sequence[float]) -> float:
    top = max(logs, default=-math.inf)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in logs) / len(logs))


def apply_temperature(scores: Mapping[str, float], temperature: float) -> dict[str, float]:
    """Normalised log-probs of scores sharpened by 1/temperature; at 0 uniform over the best."""
    top = max(scores.values())
    if temperature <= 0:
        best = [label for label, score in scores.items() if score == top]
        return {label: -math.log(len(best)) if label in best else -math.inf for label in scores}
    scaled = {label: (score - top) / temperature for label, score in scores.items()}
    total = math.log(math.fsum(math.exp(v) for v in scaled.values()))
    return {label: v - total for label, v in scaled.items()}
