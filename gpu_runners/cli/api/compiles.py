"""`kolm check`, `compile` and its `--estimate`, `pull`, `cancel` and `resume`."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from backend.domain.number_words import score, usd
from gpu_runners.cli.api.compile_outcome import file_of, print_accepted, print_outcome, save_artifact
from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.display.progress import watching
from gpu_runners.cli.exit_codes import FAILED, OK
from gpu_runners.cli.options import AMOUNT, PATH, SPEC_HELP, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, Unreadable, read_document
from gpu_runners.kolm.spec_files import names_files, with_rows

Row = dict[str, Any]
Act = Callable[..., int]


def _wait_option(command: Act) -> Act:
    text = "show progress until it ends (default)"
    return click.option("--wait/--no-wait", "--watch/--no-watch", "wait", default=True, help=text)(command)


@click.command()
@click.argument("spec", type=PATH, metavar="SPEC", help=SPEC_HELP)
@json_option("print the spec as JSON with every default filled in")
def check(*, spec: str, as_json: bool) -> int:
    """The same validation as the API's, without a network. `as_json` prints the spec with every default filled in,
    ready to be posted."""
    from backend.domain.errors import InvalidSpec
    from backend.domain.planning.gate_reach import check_reachable
    from backend.domain.spec.parsing import canonical_spec, parse_spec

    try:
        document = read_document(spec)
        parsed = parse_spec(with_rows(document, folder=Path(spec).parent) if names_files(document) else document)
        check_reachable(parsed)
    except Unreadable as error:
        return fail(str(error))
    except InvalidSpec as error:
        print(f"{spec}: {error.message}", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem.pointer or '/'}: {problem.message}", file=sys.stderr)
        return FAILED
    print(json.dumps(canonical_spec(parsed)) if as_json else f"{spec}: {parsed.name} is a valid spec.")
    return OK


@click.command("compile")
@click.argument("spec", type=PATH, metavar="SPEC", help=SPEC_HELP)
@click.option("--estimate", "only_estimate", is_flag=True, help="print what it would cost and start nothing")
@_wait_option
@click.option("--out", type=PATH, metavar="FILE", help="where the artifact goes (default: NAME.kolm here)")
@click.option("--compare-last", is_flag=True, help="set the K-score beside that of the last artifact of the name")
@click.option("--idempotency-key", metavar="KEY", help="repeat a compile's request without starting a second one")
@json_option("print the compile as JSON; progress goes to stderr")
@api_options
def compile_spec(
    *,
    spec: str,
    only_estimate: bool,
    wait: bool,
    out: str | None,
    idempotency_key: str | None,
    compare_last: bool,
    as_json: bool,
    connect: Connect,
) -> int:
    """`compare_last` sets the K-score beside that of the newest artifact of the name, looked up before the start."""

    if only_estimate:
        return estimate(spec, connect=connect, as_json=as_json)

    def act(client: Client) -> int:
        document = client.compiles.document(spec)
        before = _artifacts_of(client, document) if compare_last else []
        row = client.post("/v1/compiles", document, idempotency_key=idempotency_key)
        # a request that is repeated may find its own artifact there
        last = next((each for each in before if each["compile"] != row["id"]), None)
        with _apart(as_json):
            print_accepted(row)
        if not wait:
            if as_json:
                print_json(row)
            return OK
        with _apart(as_json):
            follow(client, row["id"])
            code = print_outcome(
                client, client.get(f"/v1/compiles/{row['id']}"), out=out, last=last, compares=compare_last
            )
        if as_json:
            print_json(client.get(f"/v1/compiles/{row['id']}") | ({"last_artifact": last} if compare_last else {}))
        return code

    return run_command(act, connect)


@click.command()
@click.argument("compile_id", metavar="CMP", help="cmp_…")
@click.option("--budget", "budget_microusd", type=AMOUNT, metavar="USD", help="a new budget for the whole compile")
@_wait_option
@json_option("print the compile as JSON; progress goes to stderr")
@api_options
def resume(*, compile_id: str, budget_microusd: int | None, wait: bool, as_json: bool, connect: Connect) -> int:
    """Go on with a compile that ended without an artifact; what is done and paid for stays done."""

    def act(client: Client) -> int:
        body = {} if budget_microusd is None else {"budget_microusd": budget_microusd}
        row = client.post(f"/v1/compiles/{compile_id}/resume", body)
        with _apart(as_json):
            print(f"{row['id']} {row['name']}: {row['status']}", flush=True)
        code = OK
        if wait:
            with _apart(as_json):
                follow(client, row["id"], after=row["sequence"])
                code = print_outcome(client, client.get(f"/v1/compiles/{row['id']}"), out=None)
        if as_json:
            print_json(client.get(f"/v1/compiles/{row['id']}"))
        return code

    return run_command(act, connect)


def follow(client: Client, compile_id: str, *, after: int = 0) -> None:
    """Show what happens until the compile has ended."""
    with watching() as take:
        for event in client.compiles.events(compile_id, after=after):
            take(event)


def estimate(spec: str, *, connect: Connect, as_json: bool) -> int:
    """Print what a compile would cost, step by step, and what the draft cache should save of it. Starts nothing."""
    from gpu_runners.cli.display.draft_tables import saving_sentence
    from gpu_runners.cli.display.prices import price_lines

    def act(client: Client) -> int:
        answer = client.post("/v1/compiles/estimate?drafts=true", client.compiles.document(spec))
        if as_json:
            print_json(answer)
            return OK
        for step in (*answer["steps"], {"step": "total", **answer["total"]}):
            low, expected, high = (usd(step[f"{name}_microusd"]) for name in ("low", "expected", "high"))
            print(f"{step['step']:<13}{expected:>10}  ({low} to {high})")
        is_within = "" if answer["within_budget"] else ", which is not enough"
        print(f"budget {usd(answer['budget_microusd'])}{is_within}")
        for line in price_lines(answer):
            print(line)
        print(saving_sentence(answer["draft_cache"]))
        return OK

    return run_command(act, connect)


@click.command()
@click.argument("artifact", metavar="ART", help="art_…")
@click.option("--out", type=PATH, metavar="FILE", help="default: NAME-VERSION.kolm here")
@json_option("print the artifact as JSON, and where the file is")
@api_options
def pull(*, artifact: str, out: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> int:
        row = client.get(f"/v1/artifacts/{artifact}")
        path = save_artifact(client, row, Path(out) if out else file_of(row["name"], row["version"]))
        if as_json:
            print_json(row | {"path": str(path)})
            return OK
        print(f"{path} ({row['size_bytes']:,} bytes, K-score {score(row['k_score_ppm'])})")
        return OK

    return run_command(act, connect)


def _artifacts_of(client: Client, document: Any) -> list[Row]:
    """The two newest artifacts that have the spec's name."""
    name = document.get("name") if isinstance(document, dict) else None
    return list(client.get("/v1/artifacts", {"name": name, "limit": 2})["data"]) if isinstance(name, str) else []


def _apart(as_json: bool) -> "contextlib.AbstractContextManager[Any]":
    """Keep standard output for the document alone with --json."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


@click.command()
@click.argument("id", metavar="CMP", help="cmp_…")
@json_option()
@api_options
def cancel(*, id: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.post(f"/v1/compiles/{id}/cancel")
        print_json(row) if as_json else print(f"{row['id']} {row['name']}: {row['status']}")

    return run_command(act, connect)
