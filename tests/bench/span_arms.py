"""`python -m tests.bench.span_arms [DATA]`: the defaults of span students beside their alternatives, paired.

Every arm trains on the same pairs, from the same seeds, without calibration, and is asked about the same held-out
texts. A difference is the mean over the texts of the arm less the default, of each text the mean over the seeds; its
interval is of the texts, not of the seeds. The sets are those of `tests.bench.spans`.
"""

import argparse
import dataclasses
import datetime
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

from backend.domain.answers.json_values import field_scores, is_exact, parse_answer
from backend.domain.extraction.learning import learn_plan
from backend.domain.extraction.plan import ExtractionPlan
from backend.domain.spec.training import SpanTrain
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.label.nets import LeanEngine
from gpu_runners.jobs.own_time import one_thread
from tests.bench.full_weights import full_weights
from tests.bench.slot_data import Row, SlotSet
from tests.bench.spans import add_sets, chosen_sets, sample_held, train_students


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    name: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    change: Callable[[ExtractionPlan], ExtractionPlan] = lambda plan: plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of each held-out text the field F1, and 1 for an exact answer, as means over the seeds; CPU seconds of training
    and KiB of the adapter, likewise."""

    f1: list[float]
    exact: list[float]
    cpu_s: float
    kib: float


def without_bars(plan: ExtractionPlan) -> ExtractionPlan:
    return dataclasses.replace(plan, rules=tuple(dataclasses.replace(rule, bars=()) for rule in plan.rules))


DEFAULT = Arm(name="default")
ARMS = (
    Arm(name="no values swapped", options={"swap_share": 0.0}),
    Arm(name="no kinds of tokens", context=lambda: patch.object(LeanEngine, "takes_added", False)),
    Arm(name="no class bars leaves", change=without_bars),
    Arm(name="all weights", options={"rank": 2, "alpha": 2}, context=full_weights),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.span_arms", description=__doc__)
    add_sets(parser)
    parser.add_argument("--n-train", type=int, nargs="+", default=[200])
    parser.add_argument("--n-held-out", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    parser.add_argument("--sets", nargs="+", default=None, help="names of sets, all if left out")
    parser.add_argument("--arms", nargs="+", default=[arm.name for arm in ARMS])
    chosen = parser.parse_args(arguments)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.date.today()}, load {load}, {os.cpu_count()} cores, seeds {chosen.seeds}\n")
    print(
        "| set | pairs | arm | mean field F1 | beside the default, points | exact | beside the default | CPU s | KiB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for one in chosen_sets(chosen):
        for n in chosen.n_train:
            if chosen.sets is None or one.name in chosen.sets:
                compare(one, n, chosen)
    return 0


def compare(one: SlotSet, n: int, chosen: argparse.Namespace) -> None:
    held = sample_held(one, chosen.n_held_out)
    default = run(DEFAULT, one, n, held, chosen.seeds)
    print(f"| {one.name} | {n} | default | {_row(default, None)}", flush=True)
    for arm in ARMS:
        if arm.name in chosen.arms:
            print(
                f"| {one.name} | {n} | {arm.name} | {_row(run(arm, one, n, held, chosen.seeds), default)}", flush=True
            )


def run(arm: Arm, one: SlotSet, n: int, held: Sequence[Row], seeds: Sequence[int]) -> Scores:
    f1, exact, cpu_s, kib = [], [], [], []
    for seed in seeds:
        train = random.Random(seed).sample(one.train, min(n, len(one.train)))
        options = SpanTrain(**{"seed": seed, "validation_share": 0.0} | arm.options).options(len(train))
        began = time.process_time()
        with arm.context():
            student, _, n_bytes = train_students(one, train, arm.change(learn_plan(one.schema, train)), options)
        cpu_s.append(time.process_time() - began)
        kib.append(n_bytes / 1024)
        own_f1, own_exact = answer(student, held)
        f1.append(own_f1)
        exact.append(own_exact)
    columns = [[mean(column) for column in zip(*rows, strict=True)] for rows in (f1, exact)]
    return Scores(f1=columns[0], exact=columns[1], cpu_s=mean(cpu_s), kib=mean(kib))


def answer(model: SpanModel, held: Sequence[Row]) -> tuple[list[float], list[float]]:
    with one_thread():
        answers = [parse_answer(row["output"]) for row in model.predict_by_model([text for text, _ in held])]
    pairs = [(one, gold) for one, (_, gold) in zip(answers, held, strict=True)]
    return [field_scores(*pair).f1_ppm / 1e6 for pair in pairs], [float(is_exact(*pair)) for pair in pairs]


def _row(own: Scores, default: Scores | None) -> str:
    cells = []
    for name in ("f1", "exact"):
        values = getattr(own, name)
        cells += [f"{mean(values):.1%}", "" if default is None else difference(values, getattr(default, name))]
    return f"{' | '.join(cells)} | {own.cpu_s:.0f} | {own.kib:,.0f} |"


def difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The mean difference in points, with its 95 % interval."""
    apart = [a - b for a, b in zip(ours, theirs, strict=True)]
    margin = 1.96 * stdev(apart) / math.sqrt(len(apart))
    return f"{100 * mean(apart):+.1f} ± {100 * margin:.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
