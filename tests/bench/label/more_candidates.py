"""Do candidates that `plan: auto` buys for the slices that lose pay for themselves? Real compiles of the demo's spec.

    python -m tests.bench.label.more_candidates [--sizes N ...] [--more N ...] [--seeds N ...] [--lines FILE]
    python -m tests.bench.label.more_candidates --table [--lines FILE]

Each compile is examples/refund-router.yaml with the built-in teacher, `n_candidates` of a size, one `sampling.seed`, no
draft cache; sizes of --more have `plan.more_candidates`. One customer: the held-out messages are the same of all. A
line that stands in the file is not made again.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, running

SPEC = ROOT / "examples/refund-router.yaml"
WITHIN_S = 1_800.0
HEAD = "| candidates a slice | compiles | written | labelled | micro-USD | student, held-out | sd | cross-validated |"
Row = dict[str, Any]


def compile_one(customer: Customer, size: int, seed: int, *, more: bool) -> Row:
    """One compile: what it spent, what it bought, how its student does on the held-out messages."""
    spec = yaml.safe_load(SPEC.read_text())
    spec["sampling"] |= {"n_candidates": size, "seed": seed}
    spec |= {"plan": {"kind": "auto", "more_candidates": more}, "draft_cache": {"enabled": False}}
    spec["gate"] = {"k_min": 0.0, "accuracy_lower": 0.0, "worst_class_recall": 0.0, "alternatives": "report"}
    compile = customer.ended(customer.compile(spec), within_s=WITHIN_S)
    steps = {step["name"]: step for step in customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]}
    facts = steps["labeling"]["output"]["facts"]
    slices = customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]
    return {
        "size": size,
        "more": more,
        "seed": seed,
        "status": compile["status"],
        "spent_microusd": compile["spent_microusd"],
        "steps": {name: step["spent_microusd"] for name, step in steps.items()},
        "evaluation": compile["evaluation"],
        "n_written": sum(part["n_generated"] for part in slices),
        "n_labelled": facts["at_end"]["n_rows"],
        "accuracy_ppm": facts["at_end"]["accuracy_ppm"],
        "stopped_for": facts["stopped_for"],
        "purchases": facts["purchases"],
        "load": round(os.getloadavg()[0], 1),
    }


def report(rows: Sequence[Row]) -> str:
    """A line for each size, without and with further candidates."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|"]
    for more, size in sorted({(row["more"], row["size"]) for row in rows}):
        mine = [row for row in rows if (row["more"], row["size"]) == (more, size)]
        right = [correct(row) for row in mine]
        cells = [
            f"{size}{' and more' if more else ''}",
            str(len(mine)),
            *(f"{mean(row[name] for row in mine):,.0f}" for name in ("n_written", "n_labelled", "spent_microusd")),
            f"{mean(right):.1%}",
            f"{stdev(right) if len(right) > 1 else 0:.1%}",
            f"{mean(row['accuracy_ppm'] for row in mine) / 1e6:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def correct(row: Row) -> float:
    """The share of held-out messages that the student has right."""
    return float(row["evaluation"]["accuracy_ppm"] / 1_000_000)


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.label.more_candidates", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[20, 28, 40])
    parser.add_argument("--more", type=int, nargs="*", default=[20])
    parser.add_argument("--seeds", type=int, nargs="*", default=[7, 8, 9, 10])
    parser.add_argument("--lines", type=Path, default=Path("build/more_candidates.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    options = parser.parse_args(arguments)
    done = {(row["size"], row["more"], row["seed"]) for row in read_lines(options.lines)}
    cases = [(size, more, seed) for seed in options.seeds for size, more in _arms(options.sizes, options.more)]
    todo = [] if options.table else [case for case in cases if case not in done]
    if todo:
        with (
            running(KOLM_COMPILE_LEASE_S="600", KOLM_RUNNER_LEASE_S="600") as deployment,
            deployment.customer("bench") as customer,
            options.lines.open("a") as file,
        ):
            for size, more, seed in todo:
                row = compile_one(customer, size, seed, more=more)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(size, more, seed, row["status"], row["spent_microusd"], file=sys.stderr, flush=True)
    print(report(read_lines(options.lines)))
    return 0


def _arms(sizes: Sequence[int], more: Sequence[int]) -> list[tuple[int, bool]]:
    return [*((size, True) for size in more), *((size, False) for size in sizes)]


if __name__ == "__main__":
    sys.exit(main())
