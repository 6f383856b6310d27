"""`python -m tests.bench.causal_trainer [DATA]`: the trainer of causal adapters with packed, bucketed and padded
batches, beside the plain loop of transformers and TRL's SFTTrainer with packing. Prints the table of
docs/benchmarks/causal-trainer.md.

DATA is the folder that has `snips/` and `humaneval/` in it (default $KOLM_DATA, else ../shared/data). Every run is a
process of its own with one thread; the ways take turns, in the opposite order in every second repeat. Tokens are those
of the examples, padding not counted. Seconds are CPU seconds on a CPU, because the machine may be busy with other
things, and wall seconds on a GPU. Ratios are made within a repeat; their median and range over the repeats are shown.
"""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from deploy.embedded.home import ROOT
from gpu_runners.models.device import detect
from gpu_runners.tiny_base.train import NAME, ensure
from tests.bench.banking77_data import data_folder
from tests.bench.causal_trainer_arms import OURS, Measure

TRL = ROOT / ".bench-peers" / "trl"
BASELINE = "ours, padded at random"
WAYS = {
    "cpu": [
        "ours, packed",
        "ours, shared prefix",
        "ours, bucketed",
        BASELINE,
        "ours, patches of 2 for a third",
        "transformers loop",
        "TRL, packed",
    ],
    # Liger, packing and 8-bit AdamW are what `auto` switches on there
    "cuda": ["ours, auto", "ours, plain", BASELINE, "transformers loop", "TRL, packed"],
}
LONGEST_S = 1800.0


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    can = detect()
    install_trl()
    bases = chosen.bases or ensure(ROOT / "build" / "bases", say=lambda line: print(line, file=sys.stderr)).parent
    print(_machine())
    if can.device == "cpu":
        print("\nNo GPU here: Liger, paged 8-bit AdamW and bf16 are not measured.")
    for task, n_train in (("snips", chosen.n_train), ("humaneval", chosen.n_train)):
        measure = Measure(
            data=str(chosen.data),
            bases=str(bases),
            base=chosen.base,
            task=task,
            n_train=n_train,
            n_held=chosen.n_held,
            epochs=chosen.epochs,
            tokens_per_step=chosen.tokens_per_step,
            max_tokens=chosen.max_tokens,
            seed=1,
        )
        repeats = [_repeat(measure, WAYS[can.device], number) for number in range(chosen.repeats)]
        print(table(task, repeats, seconds="wall_s" if can.device == "cuda" else "cpu_s"), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causal_trainer", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--base", default=NAME, help="default: the tiny base, trained where it is missing")
    parser.add_argument("--bases", type=Path, help="the folder of bases (default build/bases)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--n-train", type=int, default=800)
    parser.add_argument("--n-held", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--max-tokens", type=int, default=1024)
    return parser


def install_trl() -> None:
    """Each line of peers_trl.txt into .bench-peers/trl, without dependencies, unless TRL is there."""
    if (TRL / "trl").is_dir():
        return
    for line in (Path(__file__).parent / "peers_trl.txt").read_text().splitlines():
        if requirement := line.partition("#")[0].strip():
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                str(TRL),
                requirement,
            ]
            if subprocess.run(command, check=False).returncode:
                print(f"{requirement} cannot be installed here", file=sys.stderr)


def _repeat(measure: Measure, ways: list[str], number: int) -> dict[str, dict[str, Any]]:
    measure = dataclasses.replace(measure, seed=number + 1)
    return {way: _run(way, measure) for way in (ways if number % 2 == 0 else ways[::-1])}


def _run(way: str, measure: Measure) -> dict[str, Any]:
    """What the process printed, or {"failed": why}."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dataclasses.asdict(measure), file)
        file.flush()
        command = [sys.executable, "-W", "ignore", "-m", "tests.bench.causal_trainer_arms", way, file.name]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONPATH"] = str(TRL) if way not in OURS else ""
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False, cwd=ROOT
        )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    print(f"{measure.task}, seed {measure.seed}, {way}: {lines[-1][:160]}", file=sys.stderr, flush=True)
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def table(task: str, repeats: Sequence[dict[str, dict[str, Any]]], *, seconds: str) -> str:
    """One row a way: the median over the repeats, with the range of the ratio."""
    any_run = next(run for repeat in repeats for run in repeat.values() if "failed" not in run)
    out = [
        f"\n## {task}: {any_run['n_train']} examples, mean {any_run['mean_length']:.0f} tokens, longest "
        f"{any_run['longest']}\n",
        f"| way | tokens/s ({'CPU' if seconds == 'cpu_s' else 'wall'}) | beside {BASELINE} | seconds | steps "
        "| held-out loss |",
        "|---|---|---|---|---|---|",
    ]
    for way in repeats[0]:
        runs = [(repeat[way], repeat[BASELINE]) for repeat in repeats]
        good = [(run, other) for run, other in runs if "failed" not in run and "failed" not in other]
        if not good:
            out.append(f"| {way} | failed: {runs[0][0].get('failed', 'its baseline')} | | | | |")
            continue
        ratios = [other[seconds] / run[seconds] for run, other in good]
        middle = statistics.median(ratios)
        losses = [run["held_loss"] for run, _ in good]
        spent = statistics.median(run[seconds] for run, _ in good)
        out.append(
            f"| {way} | {good[0][0]['n_tokens'] / spent:,.0f} | {middle:.2f} ({min(ratios):.2f}-{max(ratios):.2f}) "
            f"| {spent:.1f} | {good[0][0]['n_steps']} "
            f"| {statistics.mean(losses):.4f} ({min(losses):.4f}-{max(losses):.4f}) |"
        )
    return "\n".join(out)


def _machine() -> str:
    names = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft"))
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    python = platform.python_version()
    return f"{datetime.date.today()}, {detect().name}, {os.cpu_count()} cores, load {load}, Python {python}, {names}"


if __name__ == "__main__":
    sys.exit(main())
