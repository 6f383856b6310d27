"""`kolm ablate`: one compile, its arms with another choice of labels, all from the same candidates, and what its choice
was worth on the held-out rows.

The figures are the API's; here they are asked for, waited for and laid out. A compile that missed its gate is measured
all the same, and arms that exist already are taken as they are: the command may be interrupted and given again.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from backend.domain.number_words import interval, percent, points, usd
from gpu_runners.cli.api.compile_outcome import print_accepted
from gpu_runners.cli.api.compiles import follow
from gpu_runners.cli.api.connection import Connect, api_options
from gpu_runners.cli.exit_codes import FAILED, OK, USAGE, exit_code_of
from gpu_runners.cli.options import SPEC_HELP, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, KolmError

STUDENTS = {
    "adapter": "the adapter",
    "contrastive": "the contrastive adapter",
    "frozen": "logistic regression on the frozen encoder",
}
ARMS = ("all", "random", "fixed", *STUDENTS)
_MEASURED = ("succeeded", "gate_failed")
_LOST = ("failed", "canceled", "expired")
Row = dict[str, Any]


@click.command()
@click.argument("spec", metavar="[SPEC]", required=False, help=SPEC_HELP)
@click.option("--of", metavar="CMP", help="cmp_…: take this compile instead of compiling SPEC")
@click.option(
    "--arms",
    default="all,random",
    metavar="ARMS",
    help="of all, random, fixed, adapter, contrastive and frozen, with commas (default: all,random)",
)
@click.option("--budget", metavar="USD", help="what one arm may cost (default: the compile's budget)")
@json_option("print the comparison as JSON; progress goes to stderr")
@api_options
def ablate(
    *,
    spec: str | None,
    of: str | None,
    arms: str,
    budget: str | None,
    as_json: bool,
    connect: Connect,
) -> int:
    """Exit 0 when every arm was measured, 1 when something failed, 2 when the arguments make no sense."""
    try:
        wanted, budget_microusd = _read_options(spec, of, arms, budget)
    except ValueError as error:
        return fail(str(error), code=USAGE)
    progress_stream = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with connect() as client, progress_stream:
            compile = _compile(client, spec, of)
            ids = _start(client, compile, wanted, budget_microusd) if compile["status"] in _MEASURED else []
            for arm, arm_id in zip(wanted, ids, strict=False):
                print(f"arm {arm} ({arm_id})", flush=True)
                follow(client, arm_id)
            arm_rows = _arms(client, compile["id"]) if ids else []
    except KolmError as error:
        return fail(str(error), code=exit_code_of(error))
    rows = [next(row for row in arm_rows if row["id"] == arm_id) for arm_id in ids]
    measured = [row for row in rows if row["comparison"] is not None]
    if as_json:
        print(json.dumps({"compile": compile["id"], "status": compile["status"], "ablations": rows}))
    elif measured:
        print("\n".join(["", *table(measured), "", *(sentence(row) for row in measured)]))
    lost = [compile] if not ids else [row for row in rows if row["comparison"] is None]
    for row in lost:
        print(f"kolm: {row['id']} {row['status']}{_why(row)}", file=sys.stderr)
    return FAILED if lost else OK


def _read_options(spec: str | None, of: str | None, arms: str, budget: str | None) -> tuple[list[str], int | None]:
    wanted = list(dict.fromkeys(word.strip() for word in arms.split(",") if word.strip()))
    if not wanted or not set(wanted) <= set(ARMS):
        raise ValueError(f"--arms takes {', '.join(ARMS)}, with commas between them.")
    if (spec is None) == (of is None):
        raise ValueError("give either a SPEC to compile or --of cmp_… to take a compile that is there.")
    if budget is None:
        return wanted, None
    try:
        microusd = int(Decimal(budget) * 1_000_000)
    except (InvalidOperation, ValueError, OverflowError):
        microusd = 0
    if microusd <= 0:
        raise ValueError(f"--budget is an amount in US dollars above 0, and {budget!r} is none.")
    return wanted, microusd


def _compile(client: Client, spec: str | None, of: str | None) -> Row:
    """The compile with selection, ended."""
    if spec is not None:
        started: Row = client.post("/v1/compiles", client.compiles.document(spec))
        print_accepted(started)
        print(f"If this is interrupted, `kolm ablate --of {started['id']}` goes on from here.", flush=True)
        of = started["id"]
        follow(client, of)
        return dict(client.get(f"/v1/compiles/{of}"))
    row: Row = client.get(f"/v1/compiles/{of}")
    if row["status"] not in (*_MEASURED, *_LOST):
        follow(client, row["id"])
        row = client.get(f"/v1/compiles/{of}")
    return row


def _start(client: Client, compile: Row, wanted: Sequence[str], budget_microusd: int | None) -> list[str]:
    """The arms' ids: those that are there already and did not fail, the others started."""
    there = {row["arm"]: row["id"] for row in reversed(_arms(client, compile["id"])) if row["status"] not in _LOST}
    ids = []
    for arm in wanted:
        if arm in there:
            ids.append(there[arm])
            continue
        body = {"arm": arm} | ({} if budget_microusd is None else {"budget_microusd": budget_microusd})
        path = f"/v1/compiles/{compile['id']}/ablations"
        row = client.post(path, body)
        print_accepted(row)
        ids.append(row["id"])
    return ids


def _arms(client: Client, compile_id: str) -> list[Row]:
    """Newest first."""
    rows: list[Row] = client.get(f"/v1/compiles/{compile_id}/ablations")["data"]
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """The side with selection, then each arm; differences are selected less arm, in points of accuracy."""
    head = ("", "labels", "label cost", "pairs", "held-out accuracy", "selected less arm", "p")
    lines = [head, ("selected", *_side(rows[0]["comparison"]["selected"]), "", "")]
    for row in rows:
        paired = row["comparison"]["paired"]
        lines.append((row["arm"], *_side(row["comparison"]["arm"]), _difference(paired), _p(paired)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(
            cell.rjust(width) if 0 < i < 4 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    paired = rows[0]["comparison"]["paired"]
    share = paired["confidence_ppm"] / 10_000
    return [*text, f"{paired['n']} held-out rows; {share:.0f} % intervals; p is McNemar's, exact."]


def sentence(row: Row) -> str:
    """Say in words what one arm shows about selection."""
    comparison = row["comparison"]
    ours, theirs, paired = comparison["selected"], comparison["arm"], comparison["paired"]
    verdict = "no clear difference"
    if paired["is_clear"]:
        verdict = "clearly better" if paired["difference_ppm"] > 0 else "clearly worse"
    points = "{} points ({} to {})".format(*_points(paired))
    if row["arm"] == "random":
        return f"At {ours['n_labels']} labels each, the selected pool scored {points} against a random draw: {verdict}."
    if row["arm"] == "fixed":
        start = f"With {ours['n_labels']} labels by its plan instead of {theirs['n_labels']} by a fixed one it scored"
        return f"{start} {points}: {verdict}{_saving(ours, theirs)}."
    if row["arm"] in STUDENTS:
        pairs, student = f"Of the same {ours['n_pairs']} pairs", STUDENTS[row["arm"]]
        return f"{pairs}, the compile's student scored {points} against {student}: {verdict}."
    start = f"With {ours['n_labels']} labels instead of {theirs['n_labels']} the selected pool scored"
    return f"{start} {points}: {verdict}{_saving(ours, theirs)}."


def _saving(ours: Row, theirs: Row) -> str:
    before, now = theirs["label_cost_microusd"], ours["label_cost_microusd"]
    return f"; the labels cost {percent((before - now) * 1_000_000 // before)} less" if 0 <= now < before else ""


def _side(side: Row) -> tuple[str, str, str, str]:
    low, high = side["accuracy_low_ppm"], side["accuracy_high_ppm"]
    accuracy = f"{percent(side['accuracy_ppm'])} {interval(low, high)}"
    return str(side["n_labels"]), usd(side["label_cost_microusd"]), str(side["n_pairs"]), accuracy


def _difference(paired: Row) -> str:
    return "{} ({} to {})".format(*_points(paired))


def _points(paired: Row) -> tuple[str, str, str]:
    difference, low, high = (points(paired[name]) for name in ("difference_ppm", "low_ppm", "high_ppm"))
    return difference, low, high


def _p(paired: Row) -> str:
    return f"{paired['p_value_ppm'] / 1e6:.3f}" if paired["p_value_ppm"] >= 1000 else "< 0.001"


def _why(row: Row) -> str:
    failure = row.get("failure") or {}
    return f": {failure.get('message')} ({failure.get('code')})" if failure else ""
