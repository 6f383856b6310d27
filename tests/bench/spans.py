"""`python -m tests.bench.spans [DATA]`: span students on public slot-filling sets, beside the same heads on the frozen
encoder. Prints the tables of docs/benchmarks/spans.md.

The runner's trainer and engine without a stack: the annotations are the pairs, so no teacher is in between. DATA has
`snips/` in it (default $KOLM_DATA, else ../shared/data); --atis, --slurp and --polyai name the folders of other sets
(tests/bench/slot_data.py says where they are from). A set that is not there is left out with a word.
"""

import argparse
import datetime
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from backend.domain.answers.json_values import answer_text, field_scores, is_exact, parse_answer
from backend.domain.extraction.assembling import Assembler
from backend.domain.extraction.learning import learn_plan
from backend.domain.jobs.span_jobs import DistillSpansJob, SpanOptions
from backend.domain.spec.training import SpanTrain
from gpu_runners.artifacts.span_model import SpanModel
from gpu_runners.distill.checkpoint import Hooks, StepDone
from gpu_runners.distill.spans.train import distill_spans
from gpu_runners.jobs.own_time import one_thread
from gpu_runners.models.bases import MINILM, open_base
from gpu_runners.models.encoder_runtimes import load_runtime
from gpu_runners.models.spans.adapter import SpanConfig, from_bytes, head_sizes
from gpu_runners.models.spans.decoding import PLAIN, Calibration
from gpu_runners.models.spans.forward import SpanForward
from tests.bench.banking77_data import data_folder
from tests.bench.full_weights import full_weights
from tests.bench.slot_data import (
    Row,
    SlotSet,
    as_entities,
    atis,
    nlupp_banking,
    nlupp_hotels,
    restaurant8k,
    slurp,
    snips,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Of each held-out text the field F1, and whether answer and intent are right; `own_ms` of a lone answer, and the
    mean confidence."""

    f1: list[float]
    exact: list[bool]
    intent: list[bool]
    own_ms: float
    confidence: float

    def row(self) -> str:
        return f"{mean(self.f1):.1%} | {mean(self.exact):.1%} | {mean(self.intent):.1%} | {self.own_ms:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spans", description=__doc__)
    add_sets(parser)
    parser.add_argument("--n-train", type=int, nargs="+", default=[200, 1200])
    parser.add_argument("--n-held-out", type=int, default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[7])
    parser.add_argument("--weights", choices=["lora", "full"], default="lora", help="full: all weights are trained")
    parser.add_argument("--entities", action="store_true", help='answers are lists of {"type", "text"}')
    parser.add_argument("--option", action="append", default=[], help="name=value of train.spans, for comparisons")
    chosen = parser.parse_args(arguments)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    asked = " ".join([*chosen.option, chosen.weights])
    print(f"{datetime.date.today()}, load {load}, {os.cpu_count()} cores, {asked}\n")
    print("| set | pairs | seed | | mean field F1 | exact | intent | own ms | CPU s | KiB | confidence |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for one in chosen_sets(chosen):
        one = as_entities(one) if chosen.entities else one
        for n in chosen.n_train:
            for seed in chosen.seeds:
                measure(one, n, seed, chosen)
    return 0


def add_sets(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `chosen_sets` reads."""
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    for name in ("--atis", "--slurp", "--polyai"):
        parser.add_argument(name, type=Path, default=None)


def chosen_sets(chosen: argparse.Namespace) -> list[SlotSet]:
    made = []
    readers: list[tuple[Callable[[Path], SlotSet], Path | None]] = [
        (snips, chosen.data),
        (atis, chosen.atis),
        (slurp, chosen.slurp),
        (restaurant8k, chosen.polyai),
        (nlupp_hotels, chosen.polyai),
        (nlupp_banking, chosen.polyai),
    ]
    for read, folder in readers:
        try:
            if folder is not None:
                made.append(read(folder))
        except FileNotFoundError as missing:
            print(f"There is no {missing.filename}: {read.__name__} is left out.", file=sys.stderr)
    return made


def measure(one: SlotSet, n: int, seed: int, chosen: argparse.Namespace) -> None:
    """Train on `n` of the set's pairs and print a row for the student and one for the frozen heads."""
    train = random.Random(seed).sample(one.train, min(n, len(one.train)))
    held = sample_held(one, chosen.n_held_out)
    plan = learn_plan(one.schema, train)
    is_full = chosen.weights == "full"
    shape = {"rank": 2, "alpha": 2} if is_full else {}
    asked = {"seed": seed} | shape | dict(_option(text) for text in chosen.option)
    options = SpanTrain(**asked).options(len(train))
    began = time.process_time()
    with full_weights() if is_full else nullcontext():
        student, frozen, n_bytes = train_students(one, train, plan, options)
    cpu_s = time.process_time() - began
    ours, theirs = _marks(student, held), _marks(frozen, held)
    beside = f"{one.name} | {len(train)} | {seed}"
    print(
        f"| {beside} | span student | {ours.row()} | {cpu_s:.0f} | {n_bytes / 1024:.0f} | {ours.confidence:.2f} |",
        flush=True,
    )
    print(f"| {beside} | frozen heads | {theirs.row()} | | | |")
    apart = [a - b for a, b in zip(ours.f1, theirs.f1, strict=True)]
    margin = 1.96 * stdev(apart) / math.sqrt(len(apart))
    print(
        f"{one.name}, {len(train)}: paired difference {100 * mean(apart):+.1f} points of F1 (± {100 * margin:.1f}); "
        f"the plan brings back {plan.share_ppm / 1e4:.2f} % of {plan.n_values:,} values; {options.epochs} passes",
        file=sys.stderr,
        flush=True,
    )


def sample_held(one: SlotSet, n: int | None) -> list[Row]:
    """The held-out texts, or so many of them at random."""
    held = list(one.held_out)
    return held if n is None or n >= len(held) else random.Random(1).sample(held, n)


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


def train_students(
    one: SlotSet, train: Sequence[Row], plan: Any, options: SpanOptions
) -> tuple[SpanModel, SpanModel, int]:
    rows = ({"input": text, "output": answer_text(answer, one.schema), "weight": 1.0} for text, answer in train)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    base = open_base(MINILM)
    job = DistillSpansJob(
        base_model=MINILM,
        schema=one.schema,
        plan=plan.to_json(),
        dataset_sha256="",
        options=options.to_json(),
        checkpoint_every_s=1e9,
    )

    def on_step(done: StepDone) -> None:
        if done.step % 100 == 0:
            print(f"{done.step}/{done.n_steps} {done.loss:.3f} {done.note}", file=sys.stderr, flush=True)

    blob, result = distill_spans(job, data, base=base, hooks=Hooks(on_step=on_step))
    has_lists = any(leaf.list_path for leaf in Assembler(one.schema, plan).leaves)
    adapter, runtime = from_bytes(blob, head_sizes(plan, has_lists=has_lists)), load_runtime(base)
    student = SpanModel.build(
        base=base,
        runtime=runtime,
        adapter=adapter,
        config=SpanConfig.from_json(result.adapter_config),
        schema=one.schema,
        plan=plan,
        calibration=Calibration.from_json(result.calibration),
    )
    frozen = SpanModel(
        forward=SpanForward(runtime.body({}, rank=1, alpha=1), adapter.baseline),
        tokenizer=student.tokenizer,
        assembler=student.assembler,
        schema=one.schema,
        calibration=PLAIN,
    )
    return student, frozen, len(blob)


def _marks(model: SpanModel, held: Sequence[Row]) -> Marks:
    f1, exact, intent, times, confidences = [], [], [], [], []
    with one_thread():
        for text, gold in held:
            began = time.process_time()
            (row,) = model.predict_by_model([text])
            times.append(time.process_time() - began)
            answer = parse_answer(row["output"])
            f1.append(field_scores(answer, gold).f1_ppm / 1e6)
            exact.append(is_exact(answer, gold))
            intent.append(all(answer[name] == gold[name] for name in ("intent", "intents") if name in gold))
            confidences.append(row["confidence"])
    return Marks(f1=f1, exact=exact, intent=intent, own_ms=1e3 * median(times), confidence=mean(confidences))


if __name__ == "__main__":
    raise SystemExit(main())
