"""Candidate pools whose number of clusters is known, from BANKING77 and CLINC150 sentences.

A `mode` cluster is one real sentence in text-edited variants (openings, endings, synonyms, one typo), as a collapsed
teacher writes them; an `intent` cluster is one intent's different real sentences. `far` clusters come from intents
drawn at random; `near` ones overlap: modes of one intent, intents that are each other's nearest. `seed` is the case of
seed 000, eleven paraphrases and an outlier; `seed clean` takes it at its word: no misspelling, a distant outlier.
"""

import csv
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.minilm import minilm

Rows = NDArray[np.float64]

COUNTS = (2, 3, 4, 5, 6, 8)
SIZES = (36, 120)
N_INTENTS = 30  # of each data set, at even and at odd places of a shuffled list: half to fit on, half to report
N_SENTENCES = 40  # of each intent, at least as many as the largest intent cluster has
N_VARIANTS = 40  # of each sentence that stands for a mode
N_MODES = 5  # sentences of each intent that stand for modes
N_NEAR = 10  # intents that a clean outlier is not taken from
MIN_WORDS = 5  # of such a sentence: one typo in a shorter one leaves no sentence that the embedder knows
DATA_SETS = ("banking77", "clinc150")

OPENINGS = (
    "hi, {}", "hello, {}", "hey, {}", "please help, {}", "quick question: {}", "so {}", "um, {}", "excuse me, {}",
    "good morning, {}", "ok, {}", "one thing: {}", "can you help me? {}", "i was wondering, {}", "sorry, {}",
)  # fmt: skip
ENDINGS = (
    "{}, please", "{} thanks", "{}, thank you", "{} asap", "{}, if possible", "{} now", "{}?", "{}!", "{} today",
    "{}, can you help", "{} cheers", "{}, many thanks",
)  # fmt: skip
SYNONYMS = (
    ("how do i", "how can i"), ("how can i", "how would i"), ("can i", "could i"), ("can you", "could you"),
    ("what is", "what's"), ("what's", "what is"), ("i'd like to", "i want to"), ("i want to", "i would like to"),
    ("i need to", "i have to"), ("tell me", "let me know"), ("why is", "how come"), ("my", "the"), ("a", "one"),
    ("money", "cash"), ("card", "bank card"), ("purchase", "buy"), ("payment", "charge"), ("help", "assist"),
    ("get", "obtain"), ("show", "display"), ("find", "locate"), ("change", "alter"), ("start", "begin"),
    ("please", "kindly"), ("want", "wish"), ("account", "acct"), ("i'm", "i am"), ("i am", "i'm"),
    ("don't", "do not"), ("doesn't", "does not"), ("didn't", "did not"), ("isn't", "is not"), ("i've", "i have"),
    ("need", "require"), ("give me", "get me"), ("do you", "would you"), ("when", "at what time"),
    ("how long", "how much time"), ("the", "that"), ("for", "regarding"), ("is there", "is there any"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`kind` mode or intent with `distance` far or near; or `kind` one or seed with `distance` mode or intent."""

    kind: str
    distance: str
    truth: int
    zipf: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.distance}"


CASES = (
    *(
        Case(kind=kind, distance=distance, truth=truth, zipf=zipf)
        for kind in ("mode", "intent")
        for distance in ("far", "near")
        for truth in COUNTS
        for zipf in (False, True)
    ),
    *(
        Case(kind=kind, distance=distance, truth=truth)
        for kind, truth in (("seed", 2), ("one", 1))
        for distance in ("mode", "intent")
    ),
    Case(kind="seed", distance="clean", truth=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`rows` (n, 384) float64 unit rows of `truth` clusters, whose sizes are `sizes`, biggest first."""

    case: Case
    truth: int
    sizes: tuple[int, ...]
    k_forced: int  # more than there are
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Half of a data set: sentences of intents, and the embedding of any text."""

    sentences: dict[str, tuple[str, ...]]
    modes: dict[str, tuple[tuple[str, ...], ...]]  # variants of N_MODES sentences of each intent
    neighbours: dict[str, tuple[str, ...]]  # the other intents, nearest centroid first
    embed: Callable[[Sequence[str]], Rows]

    @property
    def varied(self) -> tuple[str, ...]:
        """The intents that have modes."""
        return tuple(intent for intent, modes in self.modes.items() if modes)


def read_sentences(folder: Path, name: str) -> dict[str, list[str]]:
    """Intent -> training sentences. Raises FileNotFoundError where the data set is not below `folder`."""
    of: dict[str, list[str]] = defaultdict(list)
    if name == "banking77":
        with (folder / name / "train.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                of[row["category"]].append(" ".join(row["text"].split()))
    else:
        data = json.loads((folder / name / "data_full.json").read_text(encoding="utf-8"))
        for text, intent in data["train"]:
            of[intent].append(text)
    return of


def variants_of(sentence: str, n: int, rng: random.Random) -> tuple[str, ...]:
    """Up to n different texts that say the same; the sentence itself is the first."""
    found = {sentence.lower(): sentence}
    for _ in range(20 * n):
        text = _edited(sentence, rng)
        found.setdefault(text.lower(), text)
        if len(found) == n:
            break
    return tuple(found.values())


def is_spelt_as(variant: str, sentence: str) -> bool:
    """Whether every word is the sentence's or one that edits put in: no letters are swapped."""
    edits = " ".join([*OPENINGS, *ENDINGS, *(new for _, new in SYNONYMS)])
    return words_of(variant) <= words_of(f"{sentence} {edits}")


def words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'’-]+", text.lower()))


def _edited(sentence: str, rng: random.Random) -> str:
    text = sentence.lower().rstrip("?.! ")
    swaps = [(old, new) for old, new in SYNONYMS if f" {old} " in f" {text} "]
    for old, new in rng.sample(swaps, min(len(swaps), rng.choice((0, 0, 1, 1, 2)))):
        text = f" {text} ".replace(f" {old} ", f" {new} ", 1).strip()
    if rng.random() < 0.12:
        text = _mistyped(text, rng)
    if rng.random() < 0.3:
        text = rng.choice(ENDINGS).format(text)
    if rng.random() < 0.3:
        text = rng.choice(OPENINGS).format(text)
    return text


def _mistyped(text: str, rng: random.Random) -> str:
    """One pair of letters in one of the longer words swapped."""
    words = text.split()
    long = [i for i, word in enumerate(words) if len(word) > 4]
    if long:
        i = rng.choice(long)
        at = rng.randrange(1, len(words[i]) - 2)
        word = words[i]
        words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)


def read_corpus(folder: Path, name: str, half: int, embed: Callable[[Sequence[str]], Rows]) -> Corpus:
    """Half 0 is for fitting thresholds, half 1 for reporting: they share no intent and no sentence."""
    everything = read_sentences(folder, name)
    rng = random.Random(f"{name}")
    intents = sorted(intent for intent, texts in everything.items() if len(texts) >= N_SENTENCES)
    rng.shuffle(intents)
    sentences, modes = {}, {}
    for intent in intents[half::2][:N_INTENTS]:
        texts = sorted(set(everything[intent]))
        sentences[intent] = tuple(rng.sample(texts, min(len(texts), N_SENTENCES)))
        varied = [variants_of(text, N_VARIANTS, rng) for text in sentences[intent][:N_MODES]]
        modes[intent] = tuple(variants for variants in varied if len(variants[0].split()) >= MIN_WORDS)
    names = sorted(sentences)
    centroids = np.stack([embed(sentences[intent]).mean(axis=0) for intent in names])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    near = np.argsort(-(centroids @ centroids.T), axis=1)
    neighbours = {
        intent: tuple(names[j] for j in row if names[j] != intent) for intent, row in zip(names, near, strict=True)
    }
    return Corpus(sentences=sentences, modes=modes, neighbours=neighbours, embed=embed)


def split(n: int, truth: int, *, zipf: bool) -> tuple[int, ...]:
    """n items over `truth` clusters, equally or as 1/rank, each at least 2."""
    weights = 1 / np.arange(1, truth + 1) if zipf else np.ones(truth)
    sizes = np.maximum(2, np.floor(weights / weights.sum() * n).astype(int))
    sizes[0] += n - sizes.sum()
    return tuple(sizes.tolist())


def _clusters(corpus: Corpus, case: "Case", rng: random.Random) -> list[Sequence[str]]:
    """The texts that each cluster is drawn from."""
    intents = sorted(corpus.sentences if case.kind == "intent" else corpus.varied)
    first = rng.choice(intents)
    if case.kind == "mode" and case.distance == "near":
        around = [mode for i in (first, *corpus.neighbours[first]) for mode in corpus.modes[i]]
        return rng.sample(around[: max(case.truth, N_MODES)], case.truth)
    near = [first, *corpus.neighbours[first][: case.truth - 1]]
    chosen = near if case.distance == "near" else rng.sample(intents, case.truth)
    if case.kind == "mode":
        return [rng.choice(corpus.modes[intent]) for intent in chosen]
    return [corpus.sentences[intent] for intent in chosen]


def draw_pool(corpus: Corpus, case: Case, draw: int) -> Pool:
    """The pool of one draw; every other draw is of the smaller size."""
    rng = random.Random(f"{case} {draw}")
    n = SIZES[draw % len(SIZES)]
    if case.kind == "seed":
        near, far = rng.sample(sorted(corpus.varied), 2)
        many = corpus.sentences[near] if case.distance == "intent" else rng.choice(corpus.modes[near])
        if case.distance == "clean":
            many = [text for text in many if is_spelt_as(text, many[0])]
            far = rng.choice(corpus.neighbours[near][N_NEAR:])
        texts, sizes, k_forced = [*rng.sample(many, 11), rng.choice(corpus.sentences[far])], (11, 1), 4
    elif case.kind == "one":
        intent = rng.choice(sorted(corpus.varied))
        many = corpus.sentences[intent] if case.distance == "intent" else rng.choice(corpus.modes[intent])
        n = min(n if draw % 4 < 2 else n // 3, len(many))
        texts, sizes, k_forced = rng.sample(many, n), (n,), n // 3
    else:
        drawn = _clusters(corpus, case, rng)
        wanted = split(n, case.truth, zipf=case.zipf)
        sizes = tuple(min(size, len(texts)) for size, texts in zip(wanted, drawn, strict=True))
        texts = [t for size, of in zip(sizes, drawn, strict=True) for t in rng.sample(of, size)]
        k_forced = max(len(texts) // 3, case.truth + 1)
    return Pool(case=case, truth=len(sizes), sizes=sizes, k_forced=k_forced, rows=_unit(corpus.embed(texts)))


def _unit(rows: Rows) -> Rows:
    wide = rows.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


class EmbeddedTexts:
    """MiniLM rows of texts, each embedded once and kept in a file."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._rows: dict[str, NDArray[np.float32]] = {}
        if kept.exists():
            with np.load(kept, allow_pickle=False) as file:
                self._rows = dict(zip(file["texts"].tolist(), file["rows"], strict=True))

    def __call__(self, texts: Sequence[str]) -> Rows:
        if new := sorted(set(texts) - self._rows.keys()):
            self._rows |= dict(zip(new, minilm().embed(new), strict=True))
        return np.stack([self._rows[text] for text in texts]).astype(np.float64)

    def keep(self) -> None:
        np.savez(self._kept, texts=np.array(list(self._rows)), rows=np.stack(list(self._rows.values())))
