"""The public label sets of the label benches, and the pools that are drawn from them.

Three come from $KOLM_DATA (default ../shared/data): 20 intents of BANKING77, 30 of CLINC150, SNIPS' 7. The others are
files `{name}.jsonl` of rows {"text", "label", "split"} below $KOLM_LABEL_DATA, which `set_files` writes, each with its
digest here: Subj (Pang and Lee 2004), TweetEval's emotion and offensive (Barbieri et al. 2020); untouched until the
rules of rows and votes were frozen, customer reviews (Hu and Liu 2004), HWU64 (Liu et al. 2019) and AG News (Zhang et
al. 2015, of the published test split alone); and held back until those of the trainer were, TREC's questions (Li and
Roth 2002), film reviews (Pang and Lee 2005) and TweetEval's irony. A set whose file is missing is left out with a word.
"""

import csv
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deploy.embedded.home import ROOT
from tests.bench.banking77_data import data_folder
from tests.bench.minilm import minilm

DEVELOPMENT = ("subj", "emotion", "offensive", "banking20", "clinc30", "snips7")
UNTOUCHED = ("cr", "hwu64", "agnews")
HELD_BACK = ("trec", "mr", "irony")
DIGESTS = {
    "agnews": "bccd288f25ac3959a67cd47563149c92eee2d21c8894a0e04a7bf2a6de97e712",
    "cr": "7bb93c59e7645a29fbb8c6e0942f33a279515575c14ff70fd6686db0ec8baaa3",
    "emotion": "c2ad9e046b79fdc69a7f8fbf8938b885dc51d256416f7429895cfd1fa4013a2c",
    "hwu64": "52820e45db8aede35178393c95fdfb2a71d33b7a0c46cfec5a5ac7c356748521",
    "irony": "e55d70ec1fe26c2f818d76093463218a68002bd45f501e7cfe6add8e3115e876",
    "mr": "e4ced2c4ff7f1fecb31f577ba93e5b49393b89962ce4e2890d5c40cd603007c6",
    "offensive": "4b3830cf38200d4a19abc9f75b6527368080891154915d98c1f072af453807ef",
    "subj": "63d0225386fac8b100564553aa5ac59f5bfdfb4823b8c63d759ca3e78e62c139",
    "trec": "5684c9f864ebbbc313d9a3eaae215eea169358eebe0fb860f94872f647f7e535",
}
MOST_TRAINED, MOST_TESTED = 4_000, 2_000  # rows of a set that are embedded
Row = tuple[str, str, str]  # text, label, split


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSet:
    """A set, embedded by the model that ships: unit rows, the training side first."""

    name: str
    texts: tuple[str, ...]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    rows: NDArray[np.float64]
    n_train: int

    @property
    def test(self) -> slice:
        return slice(self.n_train, len(self.texts))


def read_sets(names: Iterable[str]) -> Iterator[LabelSet]:
    """The sets that are there, in the order of the names."""
    for name in names:
        try:
            yield embed_set(name, read_rows(name))
        except FileNotFoundError as missing:
            print(f"{name} is left out: {missing.filename} is not there", file=sys.stderr)


def read_rows(name: str) -> list[Row]:
    """Raises FileNotFoundError, and ValueError for a file that is not the one measured."""
    match name:
        case "banking20":
            return list(_unique(_banking(data_folder() / "banking77")))
        case "clinc30":
            return list(_unique(_clinc(data_folder() / "clinc150" / "data_full.json")))
        case "snips7":
            return list(_unique(_snips(data_folder() / "snips")))
    folder = os.environ.get("KOLM_LABEL_DATA") or data_folder() / "labels"
    data = (Path(folder) / f"{name}.jsonl").read_bytes()
    if hashlib.sha256(data).hexdigest() != DIGESTS[name]:
        raise ValueError(f"{name}.jsonl is not the file that was measured.")
    parsed = (json.loads(line) for line in data.decode().splitlines())
    return [(row["text"], row["label"], row["split"]) for row in parsed]


def embed_set(name: str, rows: Sequence[Row]) -> LabelSet:
    """Embed the set, once a machine: build/label-sets holds what was embedded."""
    train, test = ([row for row in rows if row[2] == side] for side in ("train", "test"))
    random.Random(1).shuffle(train)
    kept = train[:MOST_TRAINED] + test[:MOST_TESTED]
    texts = [text for text, _, _ in kept]
    key = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    cached = ROOT / "build" / "label-sets" / f"{name}-{key}.npy"
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        np.save(cached, np.stack(list(minilm().embed(texts))))
    names = tuple(sorted({label for _, label, _ in kept}))
    index = {label: i for i, label in enumerate(names)}
    return LabelSet(
        name=name,
        texts=tuple(texts),
        labels=np.array([index[label] for _, label, _ in kept]),
        names=names,
        rows=np.load(cached).astype(np.float64),
        n_train=len(train[:MOST_TRAINED]),
    )


def draw_pool(data: LabelSet, seed: int, n: int = 1_000, *, zipf: bool = False) -> NDArray[np.int64]:
    """Indices of `n` training rows: what a customer captured. `zipf`: the classes' shares fall as 1 / rank, in an order
    that the seed decides."""
    rng = np.random.default_rng([seed, 11])
    if not zipf:
        return np.sort(rng.permutation(data.n_train)[:n])
    shares = 1 / (1 + rng.permutation(len(data.names)))
    weights = (
        shares[data.labels[: data.n_train]] / np.bincount(data.labels[: data.n_train])[data.labels[: data.n_train]]
    )
    size = min(n, int((weights > 0).sum()))
    return np.sort(rng.choice(data.n_train, size=size, replace=False, p=weights / weights.sum()))


def _unique(rows: Iterable[Row]) -> Iterator[Row]:
    seen = set()
    for text, label, split in rows:
        plain = " ".join(text.split())
        if plain and plain not in seen:
            seen.add(plain)
            yield plain, label, split


def _banking(folder: Path) -> Iterator[Row]:
    sides = {side: list(csv.DictReader((folder / f"{side}.csv").read_text("utf-8").splitlines())) for side in _SIDES}
    kept = set(random.Random(20).sample(sorted({row["category"] for row in sides["train"]}), 20))
    for side, rows in sides.items():
        yield from ((row["text"], row["category"], side) for row in rows if row["category"] in kept)


def _clinc(file: Path) -> Iterator[Row]:
    data = json.loads(file.read_text("utf-8"))
    kept = set(random.Random(30).sample(sorted({label for _, label in data["train"]}), 30))
    for part, side in (("train", "train"), ("val", "train"), ("test", "test")):
        yield from ((text, label, side) for text, label in data[part] if label in kept)


def _snips(folder: Path) -> Iterator[Row]:
    for part, side in (("train", "train"), ("validate", "test")):
        for line in (folder / f"{part}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            yield row["text"], row["intent"], side


_SIDES = ("train", "test")
