"""Candidate pools with a known truth: what a simulated teacher writes about a task of real intents.

A pool has n candidates: an intent by Zipf(0.5), one of 20 real training sentences of it by Zipf(1.2) (the collapse: a
few sentences again and again), and one of ten edited variants of that sentence. Its label is wrong for 12 % of the
sentences, in all their variants alike, and for 8 % of the candidates; mostly it is then the nearest intent. The
verifier sees the truth through noise. What a seed draws (intents, sentences, variants) is the same in every scenario.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.banking77_data import read_banking77
from tests.bench.selection_quality_texts import TextRows, variants_of

N_VARIANTS = 10
NEAREST_SHARE = 0.7  # of the wrong labels; the others are any other intent of the task


class Verifier(StrEnum):
    MIXED = "mixed"
    USELESS = "useless"
    EXCELLENT = "excellent"
    SURFACE = "surface"


# weight of correctness, weight of similarity to the labelled intent's centroid (z-scored), standard deviation of noise
VERIFIERS = {
    Verifier.MIXED: (1.0, 0.35, 1.25),
    Verifier.USELESS: (0.0, 0.0, 1.0),
    Verifier.EXCELLENT: (1.0, 0.05, 0.33),
    Verifier.SURFACE: (0.0, 1.0, 0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table; the defaults are the main one."""

    name: str
    data: str = "banking77"
    n: int = 240
    k: int = 80
    n_intents: int = 10
    confusable: bool = True
    n_modes: int = 20
    mode_zipf: float = 1.2
    mode_noise: float = 0.12
    row_noise: float = 0.08
    off_spec: float = 0.0
    verifier: Verifier = Verifier.MIXED
    sliced: bool = False


CLEAN = {"mode_noise": 0.0, "row_noise": 0.0}
NOISY = {"mode_noise": 0.24, "row_noise": 0.145}
OFF_SPEC = {"off_spec": 0.25, "sliced": True, **CLEAN}
UNCOLLAPSED = {"n_modes": 100, "mode_zipf": 0.0}
SCENARIOS = (
    Scenario(name="main"),
    Scenario(name="main, CLINC150", data="clinc150"),
    Scenario(name="no label noise", **CLEAN),
    Scenario(name="no label noise, CLINC150", data="clinc150", **CLEAN),
    Scenario(name="no collapse", **UNCOLLAPSED),
    Scenario(name="no noise, no collapse", **UNCOLLAPSED, **CLEAN),
    Scenario(name="useless verifier", verifier=Verifier.USELESS),
    Scenario(name="excellent verifier", verifier=Verifier.EXCELLENT),
    Scenario(name="surface verifier", verifier=Verifier.SURFACE),
    Scenario(name="35 % noise", **NOISY),
    Scenario(name="35 % noise, CLINC150", data="clinc150", **NOISY),
    Scenario(name="slices, label noise", sliced=True),
    Scenario(name="slices, off-spec", **OFF_SPEC),
    Scenario(name="slices, off-spec, CLINC150", data="clinc150", **OFF_SPEC),
    Scenario(name="heavy collapse", mode_zipf=2.0),
    Scenario(name="N = 960", n=960, k=320),
    Scenario(name="N = 60", n=60, k=20),
    Scenario(name="K = N/6", k=40),
    Scenario(name="K = N/2", k=120),
    Scenario(name="K = 2N/3", k=160),
    Scenario(name="random intents", confusable=False),
    Scenario(name="30 intents, N = 720", n_intents=30, n=720, k=240),
)
COMPILES = tuple(  # as slices of a compile are, N a slice and K = N/3; no part of the table, run by name
    Scenario(name=f"{name} of {n}", n=10 * n, k=10 * n // 3, **how)
    for n in (12, 48)
    for name, how in (
        ("noisy slices", {"sliced": True}),
        ("clean slices", {"sliced": True, **CLEAN}),
        ("off-spec slices", OFF_SPEC),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A data set by intent, its training sentences' centroids `(intents, 384)` float32, unit rows."""

    train: Mapping[str, tuple[str, ...]]
    test: Mapping[str, tuple[str, ...]]
    intents: tuple[str, ...]
    centroids: NDArray[np.float32]
    rows: TextRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`labels` and `truth` (n,) index `intents`; the truth of an off-spec candidate is -1. Nothing but `texts`, `rows`,
    `labels` and `scores` is shown to a selection method."""

    texts: tuple[str, ...]
    rows: NDArray[np.float32]
    labels: NDArray[np.int64]
    truth: NDArray[np.int64]
    scores: NDArray[np.float64]
    modes: NDArray[np.int64]
    intents: tuple[str, ...]
    test_rows: NDArray[np.float32]
    test_truth: NDArray[np.int64]
    test_texts: tuple[str, ...]


def read_corpus(folder: Path, name: str) -> Corpus:
    """Raises FileNotFoundError where the data set is not below `folder`."""
    if name == "banking77":
        data = read_banking77(folder)
        sides = [[(q.text.replace("\n", " ").strip(), q.intent) for q in side] for side in (data.train, data.test)]
    else:
        with (folder / "clinc150" / "data_full.json").open(encoding="utf-8") as file:
            full = json.load(file)
        sides = [[(text, intent) for text, intent in full[side]] for side in ("train", "test")]
    train, test = map(_by_intent, sides)
    rows = TextRows(name)
    rows.embed([text for side in sides for text, _ in side])
    intents = tuple(sorted(train))
    centroids = np.stack([rows.of(train[intent]).mean(axis=0) for intent in intents])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    return Corpus(train=train, test=test, intents=intents, centroids=centroids, rows=rows)


def _by_intent(pairs: list[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for text, intent in pairs:
        found.setdefault(intent, {})[text] = None
    return {intent: tuple(texts) for intent, texts in found.items()}


def draw_pool(corpus: Corpus, scenario: Scenario, seed: int) -> Pool:
    """The pool of one seed. Each kind of chance has a stream of its own, so that scenarios differ in what they name."""
    streams = [np.random.default_rng([seed, kind]) for kind in range(6)]
    chosen = _task(corpus, scenario, streams[0])
    intents = tuple(corpus.intents[i] for i in chosen)
    centroids = corpus.centroids[chosen]
    truth, modes, texts = _texts(corpus, scenario, intents, seed, streams[1])
    corpus.rows.embed(texts)
    labels = _labels(scenario, truth, modes, corpus.rows.of(texts), centroids, streams[2])
    if scenario.off_spec:
        texts, truth = _off_spec(corpus, scenario, intents, texts, truth, streams[3])
        corpus.rows.embed(texts)
    rows = corpus.rows.of(texts)
    test = [(text, i) for i, intent in enumerate(intents) for text in corpus.test[intent]]
    return Pool(
        texts=tuple(texts),
        rows=rows,
        labels=labels,
        truth=truth,
        scores=_scores(scenario, labels == truth, (rows * centroids[labels]).sum(axis=1), streams[4]),
        modes=np.where(truth >= 0, modes, -np.arange(len(modes)) - 1),
        intents=intents,
        test_rows=corpus.rows.of([text for text, _ in test]),
        test_truth=np.array([i for _, i in test]),
        test_texts=tuple(text for text, _ in test),
    )


def _task(corpus: Corpus, scenario: Scenario, rng: np.random.Generator) -> NDArray[np.int64]:
    """A drawn intent with its nearest by centroid, or any; in drawn order, which the Zipf weights follow."""
    drawn = rng.permutation(len(corpus.intents))
    if not scenario.confusable:
        return drawn[: scenario.n_intents]
    near = np.argsort(-(corpus.centroids @ corpus.centroids[drawn[0]]), kind="stable")[: scenario.n_intents]
    return rng.permutation(near)


def _texts(
    corpus: Corpus, scenario: Scenario, intents: tuple[str, ...], seed: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    n = scenario.n
    truth = rng.choice(len(intents), size=n, p=_zipf(len(intents), 0.5))
    ranks = rng.random(n)
    which = rng.integers(N_VARIANTS, size=n)
    texts, modes = [], np.zeros(n, dtype=np.int64)
    for i, intent in enumerate(intents):
        sentences = corpus.train[intent]
        order = np.random.default_rng([seed, 100, corpus.intents.index(intent)]).permutation(len(sentences))
        weights = _zipf(min(scenario.n_modes, len(sentences)), scenario.mode_zipf)
        mine = truth == i
        modes[mine] = order[np.minimum(np.searchsorted(np.cumsum(weights), ranks[mine]), len(weights) - 1)]
    for i, mode, variant in zip(truth.tolist(), modes.tolist(), which.tolist(), strict=True):
        texts.append(_variants(corpus.train[intents[i]][mode])[variant])
    return truth, truth * 1000 + modes, texts


@cache
def _variants(sentence: str) -> list[str]:
    return variants_of(sentence, N_VARIANTS, np.random.default_rng(list(sentence.encode())))


def _zipf(n: int, exponent: float) -> NDArray[np.float64]:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def _labels(
    scenario: Scenario,
    truth: NDArray[np.int64],
    modes: NDArray[np.int64],
    rows: NDArray[np.float32],
    centroids: NDArray[np.float32],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    def mistaken(at: int) -> int:
        """A wrong label of row `at`."""
        others = np.array([i for i in range(len(centroids)) if i != truth[at]])
        if rng.random() < NEAREST_SHARE:
            return int(others[np.argmax(centroids[others] @ rows[at])])
        return int(rng.choice(others))

    labels = truth.copy()
    names, first = np.unique(modes, return_index=True)
    for mode, at in zip(names.tolist(), first.tolist(), strict=True):
        if rng.random() < scenario.mode_noise:
            labels[modes == mode] = mistaken(at)
    for at in np.flatnonzero(rng.random(len(truth)) < scenario.row_noise).tolist():
        labels[at] = mistaken(at)
    return labels


def _off_spec(
    corpus: Corpus,
    scenario: Scenario,
    intents: tuple[str, ...],
    texts: list[str],
    truth: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[list[str], NDArray[np.int64]]:
    """A share of the texts replaced by sentences of intents outside the task; the label stays the slice's."""
    outside = [text for intent in corpus.intents if intent not in intents for text in corpus.train[intent]]
    replaced, changed = list(texts), truth.copy()
    for at in np.flatnonzero(rng.random(len(texts)) < scenario.off_spec).tolist():
        replaced[at], changed[at] = outside[int(rng.integers(len(outside)))], -1
    return replaced, changed


def _scores(
    scenario: Scenario, correct: NDArray[np.bool_], similarity: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float64]:
    truth_weight, similarity_weight, noise = VERIFIERS[scenario.verifier]
    z = (similarity - similarity.mean()) / similarity.std()
    raw = truth_weight * correct + similarity_weight * z + noise * rng.standard_normal(len(z))
    return np.asarray(1 / (1 + np.exp(-raw)))
