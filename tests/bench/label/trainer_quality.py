"""Is an adapter of the lean trainer as good as one of peft's, with all layers or the top ones, and how hot are its
confidences? Fits on random rows with right labels, on the public label sets.

    python -m tests.bench.label.trainer_quality [--sets NAME ...] [--k K ...] [--seeds N] [--arms ARM ...]
    python -m tests.bench.label.trainer_quality --table

The sets are files `{name}.jsonl` of rows {"text", "label", "split"} below $KOLM_LABEL_DATA (default:
$KOLM_DATA/labels); a set that is not there is left out with a word. An arm is `peft` or `lean`, then the number of top
layers that train (0: all), then `-held` where it is fitted on the pairs that are not kept out (15 %) and asked about
those, or `-folds`: fitted as a calibration is, each time asked about the third that it did not see. Every fit is a
file in FOLDER; what is there is not run again. The table has the accuracy of every fit, and its expected calibration
error by each temperature: none, of what was held, of what folds held, of cross-validated heads on the frozen vectors,
and the best on the test rows themselves.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.special import log_softmax, softmax

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import TrainOptions
from backend.domain.labeling.calibration import ece, fit_temperature
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import Pair
from gpu_runners.distill.label.fit import Fit
from gpu_runners.distill.label.folds import folds
from gpu_runners.distill.label.frozen_bert import FrozenBert
from gpu_runners.distill.label.nets import Engine, LeanEngine, by_length
from gpu_runners.distill.label.peft_net import PeftEngine
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.models.bases import MINILM, Base, open_base
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import SCALE
from gpu_runners.models.tensor_files import Array
from tests.bench.banking77_data import data_folder

SETS = ("subj", "emotion", "banking20", "clinc30")
ARMS = ("lean0", "lean3", "lean2", "lean0-held", "lean1-folds", "peft0")
MOST_TESTED = 600
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a set: training first, test rows after `n_train`."""

    texts: list[str]
    labels: list[int]
    n_labels: int
    n_train: int


def read_set(name: str) -> Rows:
    """Raises FileNotFoundError."""
    folder = Path(os.environ.get("KOLM_LABEL_DATA") or data_folder() / "labels")
    rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text("utf-8").splitlines()]
    names = sorted({row["label"] for row in rows})
    train, test = ([row for row in rows if row["split"] == side] for side in ("train", "test"))
    kept = np.random.default_rng(1).permutation(len(test))[:MOST_TESTED]
    ordered = train + [test[i] for i in kept]
    labels = [names.index(row["label"]) for row in ordered]
    return Rows(texts=[row["text"] for row in ordered], labels=labels, n_labels=len(names), n_train=len(train))


def draw(rows: Rows, k: int, seed: int) -> list[Pair]:
    """`k` training rows at random, one at least of each label."""
    order = np.random.default_rng([seed, k]).permutation(rows.n_train).tolist()
    first = {rows.labels[i]: i for i in reversed(order)}
    chosen = [*first.values(), *(i for i in order if i not in set(first.values()))][:k]
    return [Pair(text=rows.texts[i], label=rows.labels[i], weight=1.0) for i in chosen]


def engine_of(kind: str, base: Base) -> Engine:
    if kind == "lean":
        return LeanEngine(FrozenBert.load(base, device=CPU, dtype=torch.float32), pooling=Pooling.MEAN)
    return PeftEngine.load(base, device=CPU, pooling=Pooling.MEAN, precision="fp32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm's fit: which set, how many pairs, which draw."""

    set: str
    k: int
    seed: int
    arm: str

    @property
    def kind(self) -> str:
        return self.arm[:4]

    @property
    def layers(self) -> int:
        return int(self.arm[4])

    def file(self, folder: Path) -> Path:
        return folder / f"{self.set}-{self.k}-{self.seed}-{self.arm}.npz"


class World:
    """What fits share: engines, token ids and frozen embeddings of a set."""

    def __init__(self, name: str, base: Base) -> None:
        self.rows, self._base = read_set(name), base
        self._tokenizer = TextTokenizer(base, max_tokens=128)
        self._engines: dict[str, Engine] = {}

    def run(self, cell: Cell) -> dict[str, Array]:
        """Logits and labels of the rows that the fits are asked about, CPU seconds of their steps."""
        pairs = draw(self.rows, cell.k, cell.seed)
        if cell.kind not in self._engines:
            self._engines[cell.kind] = engine_of(cell.kind, self._base)
        engine = self._engines[cell.kind]
        options = TrainOptions(layers=cell.layers, seed=7 + cell.seed, precision="fp32")
        if cell.arm.endswith("-held"):
            of = folds(pairs, share=0.15, seed=7)[:1]
        else:
            of = folds(pairs, share=0.33, seed=7)
        if "-" in cell.arm:
            parts = [([pairs[i] for i in fold.trained], [pairs[i] for i in fold.held]) for fold in of]
        else:
            first = self.rows.n_train
            asked = zip(self.rows.texts[first:], self.rows.labels[first:], strict=True)
            parts = [(pairs, [Pair(text=text, label=label, weight=1.0) for text, label in asked])]
        out = [self._asked(engine, trained, held, options) for trained, held in parts]
        embedded = engine.embed(self._tokenizer.ids([pair.text for pair in pairs]))
        beside = {"embedded": embedded, "train_labels": np.array([pair.label for pair in pairs])}
        return {key: np.concatenate([one[key] for one in out]) for key in out[0]} | beside

    def _asked(self, engine: Engine, pairs: list[Pair], held: list[Pair], options: TrainOptions) -> dict[str, Array]:
        n, n_labels = len(pairs), self.rows.n_labels
        ids = self._tokenizer.ids([pair.text for pair in [*pairs, *held]])
        head = fit_head(engine.embed(ids[:n]), pairs, n_labels=n_labels)
        with deterministic(options.seed):
            began = time.process_time()
            net = engine.net(ids, head, options)
            fit = Fit(net=net, pairs=pairs, rows=ids[:n], members=np.arange(n), n_labels=n_labels, options=options)
            while not fit.is_done:
                fit.advance()
            took = time.process_time() - began
            logits = np.empty((len(held), n_labels), np.float32)
            with torch.inference_mode():
                for chosen in by_length(ids[n:]):
                    logits[chosen] = net.logits([n + i for i in chosen], dropout=False).numpy()
        return {"logits": logits, "labels": np.array([pair.label for pair in held]), "cpu_s": np.array([took])}


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    for seed in range(args.seeds):
        for k in args.k:
            for arm in args.arms:
                for name in args.sets:
                    yield Cell(set=name, k=k, seed=seed, arm=arm)


def temperature(logits: Array, labels: Array) -> float:
    return fit_temperature(logits.astype(np.float64), np.eye(logits.shape[1])[labels])[0]


def of_heads(embedded: Array, labels: Array, n_labels: int) -> float:
    """The temperature of heads on frozen vectors, asked about the same share of the pairs as a calibration's fits."""
    pairs = [Pair(text=str(i), label=int(label), weight=1.0) for i, label in enumerate(labels)]
    every, logits = folds(pairs, share=0.33, seed=7), []
    for fold in every:
        head = fit_head(embedded[fold.trained], [pairs[i] for i in fold.trained], n_labels=n_labels)
        logits.append(SCALE * embedded[fold.held] @ head.weight.T + head.bias)
    return temperature(np.concatenate(logits), labels[np.concatenate([fold.held for fold in every])])


def best(logits: Array, labels: Array) -> float:
    log_loss = partial(_log_loss, logits=logits, labels=labels)
    return float(min(np.geomspace(0.25, 8, 120), key=log_loss))


def _log_loss(t: float, *, logits: Array, labels: Array) -> float:
    return float(-log_softmax(logits / t, axis=1)[np.arange(len(labels)), labels].mean())


def print_table(folder: Path) -> None:
    print("| set, K, draw | arm | CPU s | accuracy | temperature: ECE |\n|---|---|---|---|---|")
    for file in sorted(folder.glob("*.npz")):
        name, k, draw, *arm = file.stem.split("-")
        if len(arm) > 1:  # of a temperature
            continue
        cell = f"{name}-{k}-{draw}"
        data = np.load(file)
        logits, labels = data["logits"].astype(np.float64), data["labels"]
        ways = {"none": 1.0, "best": best(logits, labels)}
        for way in ("lean0-held", "lean2-held", "lean1-folds"):
            if (beside := folder / f"{cell}-{way}.npz").exists():
                ways[way] = temperature(np.load(beside)["logits"], np.load(beside)["labels"])
        ways["heads"] = of_heads(data["embedded"], data["train_labels"], logits.shape[1])
        right = logits.argmax(axis=1) == labels
        errors = [
            f"{way} {t:.2f}: {ece(softmax(logits / t, axis=1).max(axis=1), right):.3f}" for way, t in ways.items()
        ]
        print(f"| {cell} | {arm[0]} | {data['cpu_s'].sum():.1f} | {right.mean():.4f} | {', '.join(errors)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--k", nargs="+", type=int, default=[150, 334])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=ARMS)
    parser.add_argument("--out", type=Path, default=Path("build/trainer-quality"))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        print_table(args.out)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    base, worlds = open_base(MINILM), {}
    for cell in cells(args):
        if cell.file(args.out).exists():
            continue
        if cell.set not in worlds:
            try:
                worlds[cell.set] = World(cell.set, base)
            except FileNotFoundError as missing:
                print(f"{cell.set} is left out: {missing.filename} is not there", file=sys.stderr)
                continue
        out = worlds[cell.set].run(cell)
        np.savez(cell.file(args.out), **out)
        right = (out["logits"].argmax(1) == out["labels"]).mean()
        print(
            f"{cell.set} K={cell.k} seed {cell.seed} {cell.arm}: {right:.4f}, {out['cpu_s'].sum():.1f} CPU s",
            flush=True,
        )


if __name__ == "__main__":
    main()
