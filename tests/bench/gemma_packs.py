"""`python -m tests.bench.gemma_packs [DATA] --task snips --n-train 400`: a task of `recipe_world` over a real causal
base, on a CPU: how good its adapter is on held-out inputs, and what a recipe pack saves of it.

Trained once into the folder `--kept`. SNIPS is scored against its annotations. Then the same inputs are answered one at
a time without drafts, by the pack alone and by the whole chain: tokens a second of wall and of CPU.
"""

import argparse
import datetime
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from backend.domain.jobs.causal_jobs import CausalOptions
from deploy.embedded.home import ROOT
from gpu_runners.models.causal_base import open_causal_base
from tests.bench.banking77_data import data_folder
from tests.bench.recipe_engines import Answers, answers_by_way, pack_of
from tests.bench.recipe_world import KEPT, World, smaller, world
from tests.bench.snips import score, table
from tests.bench.snips_data import read_snips

BASE = "gemma-3-270m"


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    base = open_causal_base(chosen.base, base_dir=ROOT / "build" / "bases")
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.date.today()}, load {load}, {chosen.task} over {chosen.base}, {vars(chosen)}", flush=True)
    options = CausalOptions(
        rank=chosen.rank,
        alpha=2 * chosen.rank,
        epochs=chosen.epochs,
        tokens_per_step=chosen.tokens_per_step,
    )
    whole = world(chosen.task, chosen.data, base=base, options=options, n_train=chosen.n_train, kept=chosen.kept)
    task = smaller(whole, chosen.held)
    pack = pack_of(task)
    print(
        f"pack: {len(pack.recipes)} recipes, {len(pack.copies)} copy recipes, {len(pack.to_bytes()):,} bytes",
        flush=True,
    )
    by_way = answers_by_way(task, chosen.ways, pack)
    if chosen.task == "snips":
        print(_snips_table(task, by_way["cold"], chosen.data))
    print("\n".join(_speed_table(by_way)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gemma_packs", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--task", choices=("snips", "summaries"), default="snips")
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--n-train", type=int, default=400)
    parser.add_argument("--held", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens-per-step", type=int, default=1024)
    parser.add_argument("--ways", nargs="+", default=["cold", "pack", "chain"])
    parser.add_argument("--kept", type=Path, default=KEPT)
    return parser


def _snips_table(task: World, answers: Answers, data: Path) -> str:
    snips = read_snips(data)
    held = snips.validate[: len(task.held)]
    assert tuple(u.text for u in held) == task.held
    return table({"adapter": score([one.text for one in answers.rows], held, snips.schema)})


def _speed_table(by_way: dict[str, Answers]) -> list[str]:
    cold = by_way["cold"]
    lines = [
        "| way | tokens | tokens a pass | tokens a second (wall) | (CPU) | of drafted accepted | same answers |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, one in by_way.items():
        n, drafted = one.n_tokens, sum(row.drafted for row in one.rows)
        accepted = f"{100 * sum(row.accepted for row in one.rows) / drafted:.1f} %" if drafted else "-"
        same = sum(a.ids == b.ids for a, b in zip(cold.rows, one.rows, strict=True))
        passes = sum(row.n_steps for row in one.rows)
        lines.append(
            f"| {way} | {n:,} | {n / passes:.2f} | {n / one.wall_s:.1f} | {n / one.cpu_s:.1f} | {accepted} "
            f"| {same} of {len(one.rows)} |"
        )
    lines.append(f"\n{statistics.mean(len(row.ids) for row in cold.rows):.1f} tokens an answer")
    return lines


if __name__ == "__main__":
    sys.exit(main())
