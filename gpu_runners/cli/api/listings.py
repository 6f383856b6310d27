"""`kolm ls` and `show`: what is there, and one thing of it."""

from typing import Any

import click

from gpu_runners.cli.api.compile_outcome import print_alternatives, print_competition, print_extraction, print_saved
from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.api.wrong_answers import Choice, fault_of, show_wrong, wrong_options
from gpu_runners.cli.display.printing import (
    console,
    print_json,
    print_lines,
    print_members,
    print_table,
    score,
    usd,
    when,
)
from gpu_runners.cli.display.purchases import print_purchases
from gpu_runners.cli.display.quality_card import print_card
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.cli.options import COUNT, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Artifact, Client, Compile, Upload

STATUSES = (
    *("queued", "running", "awaiting_batch", "canceling"),
    *("succeeded", "gate_failed", "failed", "canceled", "expired"),
)
# where an id of each kind is read
PATH_OF = {
    "art": "/v1/artifacts",
    "bud": "/v1/budgets",
    "bdg": "/v1/budgets",
    "cmp": "/v1/compiles",
    "dep": "/v1/deployments",
    "drf": "/v1/drafts",
    "evt": "/v1/webhook_events",
    "invc": "/v1/invoices",
    "key": "/v1/api_keys",
    "sel": "/v1/select",
    "tk": "/v1/teacher_keys",
    "upl": "/v1/uploads",
    "we": "/v1/webhook_endpoints",
    "whd": "/v1/webhook_deliveries",
}


@click.command()
@click.argument(
    "what",
    type=click.Choice(["compiles", "artifacts", "uploads"]),
    required=False,
    default="compiles",
    help="default: compiles",
)
@click.option("--status", type=click.Choice(STATUSES), help="compiles with this status alone")
@click.option("--name", metavar="NAME", help="of this name alone")
@click.option("--limit", type=COUNT, default=20, metavar="N", help="how many (default: 20)")
@json_option("one JSON object a line")
@api_options
def ls(*, what: str, status: str | None, name: str | None, limit: int, as_json: bool, connect: Connect) -> int:
    if what != "compiles" and status is not None:
        return fail(f"--status is of compiles; {what} have none.", code=USAGE)

    def act(client: Client) -> None:
        if what == "artifacts":
            artifacts = list(client.artifacts.list(name=name, limit=limit))
            return print_lines(artifacts) if as_json else _print_artifacts(artifacts)
        if what == "uploads":
            uploads = list(client.uploads.list(name=name, limit=limit))
            return print_lines(uploads) if as_json else _print_uploads(uploads)
        compiles = list(client.compiles.list(status=status, name=name, limit=limit))
        return print_lines(compiles) if as_json else _print_compiles(compiles)

    return run_command(act, connect)


@click.command()
@click.argument("id", metavar="ID", help="its kind is read off its beginning")
@json_option()
@wrong_options
@api_options
def show(*, id: str, wrong: bool, choice: Choice, as_json: bool, connect: Connect) -> int:
    if (fault := fault_of(id, wrong=wrong, choice=choice)) is not None:
        return fail(fault, code=USAGE)
    if wrong:
        return run_command(lambda client: show_wrong(client, id, choice, as_json=as_json), connect)
    kind = id.partition("_")[0]
    path = PATH_OF.get(kind)
    if path is None:
        from backend.domain.pointers import suggestion

        near = suggestion(f"{kind}_", [f"{prefix}_" for prefix in PATH_OF])
        return fail(f"{id!r} is no id that can be shown by what it begins with; {near}", code=USAGE)

    def act(client: Client) -> None:
        row = client.get(f"{path}/{id}")
        if as_json:
            print_json(row)
        elif row.get("object") == "compile":
            _print_compile(client, row)
        else:
            print_members({name: value for name, value in row.items() if name != "card"})
            print_card(row.get("card"))

    return run_command(act, connect)


def _print_compiles(rows: list[Compile]) -> None:
    cells = (
        (row.id, row.name, _status(row), score(row.k_score_ppm), usd(row.spent_microusd), when(row.created_at))
        for row in rows
    )
    titles = ("id", "name", "status", "K-score", "spent", "created")
    print_table(titles, cells, right=(3, 4), none="No compile fits. `kolm compile SPEC` starts one.")


def _status(row: Compile) -> str:
    """The status, and the place in the queue of one that waits for a runner."""
    return f"{row.status}, place {row.queue['place']} of {row.queue['of']}" if row.queue else row.status


def _print_uploads(rows: list[Upload]) -> None:
    cells = ((row.id, row.name or "", row.purpose, f"{row.n_rows:,}", when(row.created_at)) for row in rows)
    none = "No upload fits. `kolm upload FILE` stores one."
    print_table(("id", "name", "purpose", "rows", "created"), cells, right=(3,), none=none)


def _print_artifacts(rows: list[Artifact]) -> None:
    cells = (
        (row.id, row.name, str(row.version), score(row.k_score_ppm), f"{row.size_bytes:,}", when(row.created_at))
        for row in rows
    )
    titles = ("id", "name", "version", "K-score", "bytes", "created")
    print_table(titles, cells, right=(2, 3, 4), none="No artifact fits. A compile that passes its gate makes one.")


def _print_compile(client: Client, row: dict[str, Any]) -> None:
    """Print what people ask of a compile: how it stands, what it cost where, and why it ended so."""
    names = ("id", "name", "status", "k_score_ppm", "artifact", "budget_microusd", "spent_microusd", "waste_microusd",
             "created_at", "started_at", "ended_at")  # fmt: skip
    print_members({name: row.get(name) for name in names})
    if queue := row.get("queue"):
        start = f", expected to start about {when(queue['expected_start_at'])}" if queue["expected_start_at"] else ""
        print(f"waits for a runner: place {queue['place']} of {queue['of']}{start}")
    failure, gate = row.get("failure"), row.get("gate") or {}
    if failure:
        print(f"{failure.get('step') or 'compile'}: {failure.get('message')} ({failure.get('code')})")
    for floor in gate.get("floors") or []:
        print(f"  {'passed' if floor.get('passed') else 'FAILED'}  {floor.get('message', floor.get('name'))}")
    if gate.get("next_step"):
        print(f"next: {gate['next_step']}")
    if row.get("evaluation"):
        print(f"wrong held-out answers: kolm show {row['id']} --wrong")
    print_saved(row)
    steps = client.compiles.steps(row["id"])
    print_purchases(steps)
    print_extraction(row.get("evaluation") or {})
    print_competition(row.get("evaluation") or {})
    print_alternatives(row.get("evaluation") or {})
    print_card(row.get("card"))
    cells = (
        (
            step.name,
            step.status,
            str(step.attempts),
            usd((step.estimate or {}).get("expected_microusd")),
            usd(step.spent_microusd),
            when(step.ended_at),
        )
        for step in steps
    )
    console().print()
    print_table(("step", "status", "tries", "estimate", "spent", "ended"), cells, right=(2, 3, 4), none="No step yet.")
