"""`python -m tests.bench.gallery`: compile each task of the gallery as it stands, once for each of several teams, whose
held-out rows differ. Prints the tables of docs/benchmarks/gallery.md; `--write` puts them there, and the figures into
backend/console/gallery/measured.json, which the console's cards and the landing page read. Exits with 1 where a compile
did not pass its gate.

Each compile appends a line to --lines, and one that stands there for the same spec is not made again: a run that was
stopped goes on.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml

from backend.domain.canonical import canonical_json, sha256_hex
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Deployment, running

EXAMPLES = ROOT / "examples"
MEASURED = ROOT / "backend" / "console" / "gallery" / "measured.json"
PAGE = ROOT / "docs" / "benchmarks" / "gallery.md"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
NAMES = (
    "refund-router",
    "sentiment",
    "pii-flag",
    "urgency",
    "spam",
    "language",
    "repair-desk",
    "order-extractor",
    "ticket-summary",
)
TEAMS = ("north", "south")
WITHIN_S = 1200.0
HEAD = (
    "| task | team | gate | right of held out | K-score | minutes | dollars | student: $ per 1,000, ms | "
    "the teacher itself: right, $ per 1,000, ms |\n|---|---|---|---|---|---|---|---|---|"
)
STUDENT, TEACHER = "student", "teacher"
Row = dict[str, Any]


def compile_task(deployment: Deployment, name: str, team: str) -> Row:
    """Compile the example `name` for a team of its own; what came of it."""
    spec = read_spec(name)
    with deployment.customer(f"{team}-{name}") as customer:
        compile = customer.ended(customer.compile(spec), within_s=WITHIN_S)
    return {
        "name": name,
        "kind": spec["output"]["type"],
        "team": team,
        "spec_sha256": sha256_of(spec),
        "day": compile["ended_at"][:10],
        "status": compile["status"],
        "n": (compile["evaluation"] or {}).get("n"),
        "k_score_ppm": compile["k_score_ppm"],
        "answers": {row["name"]: row for row in (compile["card"] or {}).get("rows", [])},
        "seconds": round(_seconds(compile["started_at"], compile["ended_at"])),
        "spent_microusd": compile["spent_microusd"],
        "load": round(os.getloadavg()[0], 1),
    }


def _seconds(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def read_spec(name: str) -> Row:
    spec: Row = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return spec


def sha256_of(spec: Mapping[str, Any]) -> str:
    return sha256_hex(canonical_json(spec))


def table(rows: Sequence[Row]) -> str:
    return "\n".join([HEAD, *("| " + " | ".join(_cells(row)) + " |" for row in rows)])


def _cells(row: Row) -> Iterator[str]:
    student, teacher = row["answers"].get(STUDENT), row["answers"].get(TEACHER)
    yield from (row["name"], row["team"], "passed" if row["status"] == "succeeded" else row["status"])
    yield f"{_percent(student)} of {row['n']}" if student else "-"
    yield f"{row['k_score_ppm'] / 1e6:.3f}" if row["k_score_ppm"] else "-"
    yield f"{row['seconds'] / 60:.1f}"
    yield f"{row['spent_microusd'] / 1e6:.3f}"
    yield _cost(student) if student else "-"
    yield f"{_percent(teacher)}, {_cost(teacher)}" if teacher else "-"


def _percent(answers: Row) -> str:
    return f"{answers['accuracy_ppm'] / 1e4:.1f} %" if answers["accuracy_ppm"] is not None else "-"


def _cost(answers: Row) -> str:
    price, time = answers["per_1000_microusd"], answers["answer_us"]
    return f"{'-' if price is None else f'{price / 1e6:.4f}'}, {'-' if time is None else f'{time / 1000:.1f}'}"


def summary(rows: Sequence[Row]) -> dict[str, Row]:
    """{task: what its card shows}: of several compiles the least accuracy and K-score, the most minutes and dollars."""
    tasks: dict[str, Row] = {}
    for name in dict.fromkeys(row["name"] for row in rows):
        runs = [row for row in rows if row["name"] == name]
        tasks[name] = {
            "kind": runs[0]["kind"],
            "n_compiles": len(runs),
            "accuracy_ppm": min(run["answers"][STUDENT]["accuracy_ppm"] for run in runs),
            "k_score_ppm": min(run["k_score_ppm"] for run in runs),
            "seconds": max(run["seconds"] for run in runs),
            "spent_microusd": max(run["spent_microusd"] for run in runs),
            "runs": [{"n": run["n"], "rows": list(run["answers"].values())} for run in runs],
        }
    return tasks


def write(rows: Sequence[Row]) -> None:
    """The table into the page, the figures into the data file."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{machine(rows)}\n\n{table(rows)}\n{END}{after}", encoding="utf-8")
    passed = [row for row in rows if row["status"] == "succeeded"]
    failed = {row["name"] for row in rows} - {row["name"] for row in passed}
    kept = [row for row in passed if row["name"] not in failed]
    document = {"day": max(row["day"] for row in rows), "tasks": summary(kept)}
    MEASURED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def machine(rows: Sequence[Row]) -> str:
    loads = [row["load"] for row in rows]
    return (
        f"{max(row['day'] for row in rows)}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, load {min(loads)} to {max(loads)}."
    )


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gallery", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--lines", type=Path, default=Path("build/gallery.jsonl"))
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks/gallery.md and measured.json")
    options = parser.parse_args(arguments)
    wanted = [(name, team) for team in TEAMS for name in options.names]
    _run(wanted, options.lines)
    rows = _known(wanted, options.lines)
    if options.write:
        write(rows)
    print(f"{date.today()}: {machine(rows)}\n\n{table(rows)}")
    return 0 if len(rows) == len(wanted) and all(row["status"] == "succeeded" for row in rows) else 1


def _known(wanted: Sequence[tuple[str, str]], lines: Path) -> list[Row]:
    """The rows of the specs as they are now, in the order of the tasks."""
    rows = {(row["name"], row["team"], row["spec_sha256"]): row for row in read_lines(lines)}
    keys = [(name, team, sha256_of(read_spec(name))) for name, team in sorted(wanted, key=lambda one: _place(one[0]))]
    return [rows[key] for key in keys if key in rows]


def _place(name: str) -> int:
    return NAMES.index(name) if name in NAMES else len(NAMES)


def _run(wanted: Sequence[tuple[str, str]], lines: Path) -> None:
    known = {(row["name"], row["team"]) for row in _known(wanted, lines)}
    todo = [one for one in wanted if one not in known]
    if not todo:
        return
    lines.parent.mkdir(parents=True, exist_ok=True)
    with running(KOLM_COMPILE_LEASE_S="600", KOLM_RUNNER_LEASE_S="600") as deployment, lines.open("a") as file:
        for name, team in todo:
            row = compile_task(deployment, name, team)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            print(f"{name} {team} {row['status']} {row['seconds']} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
