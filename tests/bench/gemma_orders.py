"""`python -m tests.bench.gemma_orders`: tests/acceptance/order_fields.yaml compiled over Gemma 3 270M instead of
the base of a million weights, through the public API of a stack of its own and against the default gate. Prints what
the compile came to (docs/benchmarks/gemma.md). Wants the base that `make base-gemma` writes.
"""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import yaml

from deploy.embedded.home import ROOT
from tests.acceptance.json_specs import ORDER_FIELDS
from tests.bench.banking77 import stack

BASE = "gemma-3-270m"
WITHIN_S = 5400.0
SHOWN = ("k_score_ppm", "gate", "failure", "spent_microusd")
KEPT = ("n", "accuracy_kind", "accuracy_ppm", "accuracy_low_ppm", "accuracy_high_ppm", "validity_ppm", "baselines")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gemma_orders", description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rank", type=int, default=16)
    chosen = parser.parse_args(arguments)
    if not (ROOT / "build" / "bases" / BASE).is_dir():
        print(f"There is no {BASE} in build/bases: `make base-gemma` writes it.")
        return 1
    print(f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}, {BASE}, {chosen.epochs} epochs, rank {chosen.rank}")
    with stack() as deployment, deployment.customer("bench") as customer:
        began = time.monotonic()
        compile = customer.ended(customer.compile(spec_of(chosen.epochs, chosen.rank)), within_s=WITHIN_S)
        print(_account(compile, time.monotonic() - began))
    return 0


def spec_of(epochs: int, rank: int) -> dict[str, Any]:
    """The task as it stands but for its base, that base's options, and its lowered gate, which is left out."""
    spec: dict[str, Any] = yaml.safe_load(ORDER_FIELDS.read_text(encoding="utf-8"))
    del spec["gate"]
    causal = {"base": BASE, "rank": rank, "alpha": 2 * rank, "epochs": epochs, "tokens_per_step": 1024}
    spec["train"] = {"kind": "causal", "escalate": False, "causal": causal}
    return spec


def _account(compile: dict[str, Any], wall_s: float) -> str:
    evaluation = compile.get("evaluation") or {}
    lines = [f"{compile['status']} after {wall_s:.0f} s", json.dumps({name: evaluation.get(name) for name in KEPT})]
    lines += [f"{name}: {json.dumps(compile[name])}" for name in SHOWN]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
