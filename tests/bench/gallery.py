"""`python -m tests.bench.gallery`: compile each task of the gallery as it stands, once for each of several teams, whose
held-out halves differ. Prints the tables of docs/benchmarks/gallery.md; `--write` puts what is measured into
backend/console/gallery/measured.json, which the console's cards read. Exits with 1 where a compile does not pass.

Each compile appends a line to --lines, and one that stands there for the same spec is not made again: a run that was
stopped goes on.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from backend.domain.canonical import canonical_json, sha256_hex
from deploy.embedded.home import ROOT
from gpu_runners.tiny_base.train import ensure
from tests.acceptance.deployment import Customer, Deployment, running
from tests.tiny_bases import BASES

EXAMPLES = ROOT / "examples"
MEASURED = ROOT / "backend" / "console" / "gallery" / "measured.json"
NAMES = (
    "refund-router",
    "sentiment",
    "pii-flag",
    "urgency",
    "spam",
    "product-category",
    "language",
    "order-extractor",
)
TEAMS = ("north", "south")
WITHIN_S = 1200.0
HEAD = (
    "| task | kind | team | status | right, held out | K-score | the teacher itself | logistic regression, same pairs | "
    "minutes | dollars |\n|---|---|---|---|---|---|---|---|---|---|"
)
Row = dict[str, Any]


def compile_task(deployment: Deployment, name: str, team: str) -> Row:
    """Compile the example `name` for a new team; what came of it."""
    spec = read_spec(name)
    with deployment.customer(f"{team}-{name}") as customer:
        compile = customer.ended(customer.compile(spec), within_s=WITHIN_S)
        return {
            "name": name,
            "kind": spec["output"]["type"],
            "team": team,
            "spec_sha256": sha256_of(spec),
            "status": compile["status"],
            "accuracy": compile["accuracy"],
            "k_score_ppm": (compile["k_score"] or {}).get("k_ppm"),
            "alternatives": _alternatives(customer, compile),
            "minutes": _minutes(compile),
            "usd_micros": compile["spent_microusd"],
            "load": round(os.getloadavg()[0], 1),
        }


def _alternatives(customer: Customer, compile: Row) -> Row:
    card = compile.get("quality_card") or {}
    return {row["kind"]: row["accuracy_ppm"] for row in card.get("alternatives", [])}


def _minutes(compile: Row) -> float:
    began, ended = (datetime.fromisoformat(compile[name]) for name in ("created_at", "finished_at"))
    return round((ended - began).total_seconds() / 60, 2)


def read_spec(name: str) -> Row:
    spec: Row = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return spec


def sha256_of(spec: Row) -> str:
    return sha256_hex(canonical_json(spec))


if __name__ == "__main__":
    import sys
    name=sys.argv[1]
    ensure(BASES)
    with running(KOLM_COMPILE_LEASE_S="600", KOLM_RUNNER_LEASE_S="600") as d:
        with d.customer(name) as c:
            for name in sys.argv[1:]:
                i=c.compile(read_spec(name))
                r=c.ended(i, within_s=1200)
                json.dump(r, open(f"/tmp/gold/{name}.json","w"), indent=1)
                print(name, r["status"], r.get("failure"), r["spent_microusd"], r["created_at"], r.get("finished_at"), flush=True)
