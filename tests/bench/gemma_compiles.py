"""`python -m tests.bench.gemma_compiles --task orders --students gemma-3-270m spans`: examples/order-extractor.yaml or
examples/order-summary.yaml, cut down to minutes of one core, compiled through the public API of a stack of its own over
each student in turn: a causal base of build/bases, or `spans`. One tenant compiles them all, by which the same gold is
held out; another run holds out other gold.

The gate is lowered so that what it makes is published. The published artifact of a causal base then answers some of
the held-out inputs one at a time without drafts, by its pack alone and by pack, schema and prompt: tokens a second of
the process's own time, and the share of drafted tokens that is accepted. Differences to the first student are paired:
a bootstrap over the held-out inputs of their field F1, or of answers that equal gold.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import httpx
import numpy as np
import psutil
import yaml

from backend.domain.artifact.kolm_verify import Kolm
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import TERMINAL, Customer
from tests.bench.banking77 import stack

SPANS = "spans"
RESAMPLES = 10_000
WITHIN_S, EVERY_S = 4 * 3600.0, 5.0
BASES = ROOT / "build" / "bases"
SHOWN = ("n", "accuracy_kind", "accuracy_ppm", "accuracy_low_ppm", "accuracy_high_ppm", "validity_ppm", "baselines")
LOWERED = {"k_min": 0.0, "accuracy_lower": 0.0, "worst_class_recall": 0.0, "beat_majority": False}
# of the examples that may be held out: what makes a compile of a causal base last minutes of one core
CUT: dict[str, dict[str, Any]] = {
    "orders": {"file": "order-extractor.yaml", "every": 2, "holdout": 0.4, "max_tokens": 96, "tokens_per_step": 1024},
    "summaries": {"file": "order-summary.yaml", "every": 1, "holdout": 0.5, "max_tokens": 64, "tokens_per_step": 512},
}
SAMPLING = {"n_candidates": 10, "k_select": 8, "label_samples": 3}
# how often a base goes over the pairs, and its learning rate where it is not that of its width
OPTIONS: dict[str, dict[str, Any]] = {
    "gemma-3-270m": {"epochs": 2},
    "kolm-tiny-1": {"epochs": 4, "learning_rate": 0.002},
}
ARMS = ("cold", "pack", "chain")


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    for student in chosen.students:
        if student != SPANS and not (BASES / student).is_dir():
            print(f"There is no {student} in build/bases: `make base-gemma` or `make base` writes it.")
            return 1
    print(f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}, {vars(chosen)}", flush=True)
    marks: dict[str, dict[int, float]] = {}
    with stack() as deployment, deployment.customer("bench") as customer:
        for student in chosen.students:
            began, cpu_s = time.monotonic(), _cpu_s()
            compile = _ended(customer, customer.compile(spec_of(chosen, student)))
            cpu_s, wall_s = _cpu_s() - cpu_s, time.monotonic() - began
            rows = _answers(customer, compile)
            print(f"{student}: {cpu_s:.0f} CPU s of the stack, {wall_s:.0f} s of wall", flush=True)
            print(_account(compile, rows), flush=True)
            marks[student] = {row["row"]: _mark(compile, row) for row in rows}
            print(_paired(marks), flush=True)
            if compile.get("artifact"):
                kolm = customer.download(compile["artifact"])
                _keep(chosen, student, kolm)
                if student != SPANS:
                    inputs = [row["input"] for row in rows][: chosen.timed]
                    print("\n".join(_speeds(kolm, inputs)), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gemma_compiles", description=__doc__)
    parser.add_argument("--task", choices=sorted(CUT), default="orders")
    parser.add_argument("--students", nargs="+", default=["gemma-3-270m"], help=f"folders of build/bases, or {SPANS}")
    parser.add_argument("--epochs", type=int, default=0, help="0: as OPTIONS has it for the base")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--timed", type=int, default=12, help="held-out inputs whose answers are timed")
    parser.add_argument("--every", type=int, default=0, help="which share of the gold mails: one of so many")
    parser.add_argument("--keep", type=Path, default=None, help="a folder to write the artifacts to")
    return parser


def _keep(chosen: argparse.Namespace, student: str, kolm: bytes) -> None:
    if chosen.keep is not None:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        (chosen.keep / f"{chosen.task}-{student}.kolm").write_bytes(kolm)


def _cpu_s() -> float:
    """The CPU seconds up to now of all processes of the stack, those that have ended and were waited for among them."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def spec_of(chosen: argparse.Namespace, student: str) -> dict[str, Any]:
    """The example with fewer candidates, less gold, a lowered gate and the student that is wanted."""
    cut = CUT[chosen.task]
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples" / cut["file"]).read_text(encoding="utf-8"))
    spec["sampling"] |= SAMPLING
    spec["sampling"].pop("k_distill", None)
    spec["output"]["max_tokens"] = cut["max_tokens"]
    gold = [row for row in spec["examples"]["inline"] if "split" not in row][:: chosen.every or cut["every"]]
    spec["examples"] = {"holdout": cut["holdout"], "inline": gold}
    spec["gate"] = LOWERED | {"alternatives": "report"}
    spec["evaluation"] = {"teacher_rows": 0}
    if student == SPANS:
        spec["train"] = {"kind": "spans", "escalate": False, "spans": spec["train"].get("spans", {})}
        return spec
    options = OPTIONS.get(student, {"epochs": 2})
    causal = options | {
        "base": student,
        "rank": chosen.rank,
        "alpha": 2 * chosen.rank,
        "tokens_per_step": cut["tokens_per_step"],
    }
    if chosen.epochs:
        causal["epochs"] = chosen.epochs
    spec["train"] = {"kind": "causal", "escalate": False, "causal": causal}
    return spec


def _ended(customer: Customer, compile_id: str) -> dict[str, Any]:
    """The compile once it has ended, looked at seldom: polling takes the core that it works on."""
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        with suppress(httpx.TimeoutException):  # of a machine with other work
            compile: dict[str, Any] = customer.get(f"/v1/compiles/{compile_id}")
            if compile["status"] in TERMINAL:
                return compile
        time.sleep(EVERY_S)
    raise TimeoutError(f"{compile_id} did not end within {WITHIN_S:.0f} s")


def _account(compile: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    evaluation = compile.get("evaluation") or {}
    lines = [f"{compile['status']} {compile.get('failure') or ''}"]
    lines.append(json.dumps({name: evaluation.get(name) for name in SHOWN}))
    is_text = evaluation.get("accuracy_kind") == "judge"
    right = [row["predicted"] == row["gold"] if is_text else row["mark_ppm"] == 1_000_000 for row in rows]
    n_failed = sum(bool(row["failed_checks"]) for row in rows)
    lines.append(f"{sum(right)} of {len(rows)} right as a whole; {n_failed} fail a check")
    lines.append(f"gate as lowered: {json.dumps(compile['gate'])}")
    lines.append(f"k_score_ppm {compile['k_score_ppm']}, spent_microusd {compile['spent_microusd']}")
    return "\n".join(lines)


def _mark(compile: dict[str, Any], row: dict[str, Any]) -> float:
    is_text = (compile.get("evaluation") or {}).get("accuracy_kind") == "judge"
    return float(row["predicted"] == row["gold"]) if is_text else row["mark_ppm"] / 1e6


def _paired(marks: dict[str, dict[int, float]]) -> str:
    """The last student's marks beside the first one's, over the same rows."""
    first, last = next(iter(marks)), list(marks)[-1]
    if first == last:
        return f"{first}: mean mark {mean(marks[first].values()):.4f}"
    if set(marks[first]) != set(marks[last]):
        return f"{first} and {last} did not answer the same rows"
    differences = np.array([marks[last][row] - marks[first][row] for row in marks[first]])
    drawn = np.random.default_rng(0).integers(0, len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return f"{last} beside {first}: {differences.mean():+.4f} ({low:+.4f} to {high:+.4f}), 95 %, paired"


def _answers(customer: Customer, compile: dict[str, Any]) -> list[dict[str, Any]]:
    """Every held-out row with its answer."""
    rows: list[dict[str, Any]] = []
    while True:
        after = {"after": rows[-1]["row"]} if rows else {}
        page = customer.get(f"/v1/compiles/{compile['id']}/answers", limit=100, **after)
        rows += page["data"]
        if not page["has_more"]:
            return rows


def _speeds(data: bytes, inputs: Sequence[str]) -> list[str]:
    """A table of the artifact's answers: alone, by its pack, and by all that may draft."""
    from backend.domain.artifact.kolm_verify import load_verified
    from gpu_runners.artifacts.draft_measuring import arms_of
    from gpu_runners.artifacts.loader import merged_model
    from gpu_runners.engine.sync import generate_all

    kolm: Kolm = load_verified(data, None, allow_untrusted=True)
    model: Any = merged_model(kolm, base_dir=BASES)
    lines = [
        "| drafts | tokens a pass | tokens a CPU second | of drafted accepted | same answers |",
        "|---|---|---|---|---|",
    ]
    plain: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as folder:
        arms = [arm for arm in arms_of(kolm, model, Path(folder), has_draft=False) if arm.name in ARMS]
        for arm in arms:
            asked = [replace(model.request(text, i), drafting=arm.drafting) for i, text in enumerate(inputs)]
            generate_all(model.engine, asked[:1])
            began = time.process_time()
            answers = [one for request in asked for one in generate_all(model.engine, [request])]
            cpu_s = time.process_time() - began
            plain = plain or [one.text for one in answers]
            counts = [one.counts for one in answers]
            n, passes = sum(c.completion_tokens for c in counts), sum(c.steps for c in counts)
            drafted, accepted = sum(c.drafted_tokens for c in counts), sum(c.accepted_tokens for c in counts)
            same = sum(a == b.text for a, b in zip(plain, answers, strict=True))
            share = f"{100 * accepted / drafted:.1f} % of {drafted}" if drafted else ""
            lines.append(f"| {arm.name} | {n / passes:.2f} | {n / cpu_s:.1f} | {share} | {same} of {len(answers)} |")
    model.engine.stop()
    return lines


if __name__ == "__main__":
    sys.exit(main())
