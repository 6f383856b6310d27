"""How many pairs does the label trainer train in a CPU second, beside peft's way with two fits?

    python -m tests.bench.label.trainer_speed [--pairs N] [--steps N] [--jobs N]

Steps: one optimiser step of peft's engine and of the lean one, with all layers and the top 3 and 2, on the same batches
of BANKING77's questions ($KOLM_DATA), in turns in one process; the ratio is that of the same batch, so that a machine
which grows slower meanwhile slows both. Jobs: whole distillations, each in a process of its own and in turns, from its
first import to the adapter's bytes: as a runner does one now, and the two fits of all layers by peft's engine that it
did before, every pair in every pass; in the precision that the machine gets. A job whose folds train twice (the frozen
head was ahead of their top layers) says so. CPU time throughout, one thread.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from backend.domain.encoders.sentence_settings import Pooling
from backend.domain.jobs.runner_jobs import DistillJob, TrainOptions
from gpu_runners.distill.label.baseline import fit_head
from gpu_runners.distill.label.dataset import Pair, batches
from gpu_runners.distill.label.fit import Fit, pick_precision
from gpu_runners.distill.label.folds import folds
from gpu_runners.distill.label.frozen_bert import FrozenBert
from gpu_runners.distill.label.nets import Engine, LeanEngine
from gpu_runners.distill.label.peft_net import PeftEngine
from gpu_runners.distill.label.train import distill
from gpu_runners.distill.repeatable import deterministic
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.encoder_tokens import TextTokenizer
from gpu_runners.models.label_adapter import Head
from tests.bench.banking77_data import REF8, data_folder, read_banking77

N_LABELS = 8
SEED = 7
OPTIONS = TrainOptions(precision="fp32", seed=SEED)
ARMS = {"peft": 0, "lean, all layers": 0, "lean, top 3": 3, "lean, top 2": 2}
CPU = torch.device("cpu")


def questions(n: int) -> list[Pair]:
    """`n` of BANKING77's training questions, of its 8 intents about money, in turns."""
    data = read_banking77(data_folder()).only(REF8)
    of = [[question.text for question in data.train if question.intent == intent] for intent in data.intents]
    return [Pair(text=of[i % N_LABELS][i // N_LABELS], label=i % N_LABELS, weight=1.0) for i in range(n)]


def fits(pairs: Sequence[Pair]) -> dict[str, Fit]:
    base = open_base(MINILM)
    rows = TextTokenizer(base, max_tokens=OPTIONS.max_tokens).ids([pair.text for pair in pairs])
    lean = LeanEngine(FrozenBert.load(base, device=CPU, dtype=torch.float32), pooling=Pooling.MEAN)
    engines: dict[str, Engine] = dict.fromkeys(ARMS, lean)
    engines["peft"] = PeftEngine.load(base, device=CPU, pooling=Pooling.MEAN, precision="fp32")
    head = Head(weight=np.zeros((N_LABELS, 384), np.float32), bias=np.zeros(N_LABELS, np.float32))
    out = {}
    for arm, layers in ARMS.items():
        options = replace(OPTIONS, layers=layers, epochs=100)
        net = engines[arm].net(rows, head, options)
        out[arm] = Fit(
            net=net, pairs=pairs, rows=rows, members=np.arange(len(rows)), n_labels=N_LABELS, options=options
        )
    n, longest = sum(map(len, rows)), _padded(rows)
    print(f"{len(pairs)} pairs, {n / len(rows):.1f} tokens each; {longest / n - 1:.1%} of the positions are padding")
    return out


def _padded(rows: Sequence[Sequence[int]]) -> int:
    """Positions of an epoch's batches, padding among them."""
    cut = batches([len(row) for row in rows], size=OPTIONS.batch_size, seed=SEED, epoch=0)
    return sum(len(batch) * max(len(rows[i]) for i in batch) for batch in cut)


def steps(pairs: Sequence[Pair], n: int) -> None:
    took: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with deterministic(SEED):
        trained = fits(pairs)
        for step in range(n + 2):
            for arm, fit in trained.items():
                began = time.process_time()
                fit.advance()
                if step >= 2:  # the first two meet cold caches
                    took[arm].append(time.process_time() - began)
    print("| a step of 16 pairs | CPU ms, median (quartiles) | times peft's, median (quartiles) |\n|---|---|---|")
    for arm, times in took.items():
        ratio = np.array(took["peft"]) / np.array(times)
        print(f"| {arm} | {_spread(1e3 * np.array(times), 0)} | {_spread(ratio, 2)} |")


def _spread(values: np.ndarray, digits: int) -> str:  # type: ignore[type-arg]
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def jobs(n_pairs: int, n: int) -> None:
    """Whole jobs in turns, and what each took."""
    ways = ("before", "now")
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(n):
        for way in ways:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-m", __spec__.name, "--one", way, "--pairs", str(n_pairs)], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took[way].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"| a job of {n_pairs} pairs | CPU s, each run |\n|---|---|")
    for way in ways:
        print(f"| {way} | {', '.join(f'{s:.1f}' for s in sorted(took[way]))} |")
    print(f"before / now: {median(took['before']) / median(took['now']):.2f}")


class _Unrested(Fit):
    """Every pair trains in every pass, as before learned ones rested (docs/benchmarks/label-trainer.md)."""

    def _who_trains(self, epoch: int) -> NDArray[np.bool_]:
        return np.ones(len(self.members), dtype=np.bool_)


def one_job(way: str, pairs: Sequence[Pair]) -> None:
    options = replace(OPTIONS, precision="auto")
    names = [str(i) for i in range(N_LABELS)]
    rows = [{"input": pair.text, "label": names[pair.label], "weight": 1.0} for pair in pairs]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    job = DistillJob(base_model=MINILM, labels=names, dataset_sha256="", train=options.to_json())
    if way == "now":
        _, result = distill(job, data, base=open_base(MINILM))
        fits_whole = {row["fold"] for row in result.training_log if row.get("layers", 0) > 1}
        print(f"now: {len(fits_whole)} folds trained again with all layers", file=sys.stderr)
        return
    base = open_base(MINILM)
    ids = TextTokenizer(base, max_tokens=OPTIONS.max_tokens).ids([pair.text for pair in pairs])
    with deterministic(SEED):
        engine = PeftEngine.load(base, device=CPU, pooling=Pooling.MEAN, precision=pick_precision("auto", CPU))
        embedded = engine.embed(ids)
        for members in (folds(pairs, share=0.15, seed=SEED)[0].trained, np.arange(len(pairs))):
            head = fit_head(embedded[members], [pairs[i] for i in members], n_labels=N_LABELS)
            net = engine.net(ids, head, options)
            fit = _Unrested(net=net, pairs=pairs, rows=ids, members=members, n_labels=N_LABELS, options=options)
            while not fit.is_done:
                fit.advance()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=144)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=0, help="how often each whole job runs")
    parser.add_argument("--one", choices=["before", "now"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        pairs = questions(args.pairs)
    except FileNotFoundError as missing:
        sys.exit(f"{missing.filename} is not there: point KOLM_DATA at the data.")
    if args.one:
        one_job(args.one, pairs)
        return
    load, now = os.getloadavg()[0], datetime.now(UTC)
    print(f"{now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {load:.0f}, torch {torch.__version__}")
    if args.steps:
        steps(pairs, args.steps)
    if args.jobs:
        jobs(args.pairs, args.jobs)


if __name__ == "__main__":
    main()
