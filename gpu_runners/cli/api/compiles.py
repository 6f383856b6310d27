"""`kolm check`, `compile` and its `--estimate`, `pull`, `cancel` and `resume`."""

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from backend.domain.number_words import usd
from gpu_runners.cli.api.compile_outcome import file_of, print_accepted, print_outcome, save_artifact
from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.display.progress import CompileProgress, display_for
from gpu_runners.cli.exit_codes import FAILED, OK
from gpu_runners.cli.options import SPEC_HELP, AddOptions, add_api_options, microusd_of
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, Unreadable, read_document

Row = dict[str, Any]


def _check_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    check.add_argument("--json", action="store_true", help="print the spec as JSON with every default filled in")
    check.set_defaults(command=_run_check)


def _compile_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    command.add_argument("--estimate", action="store_true", help="print what it would cost and start nothing")
    _add_wait(command)
    command.add_argument("--out", metavar="FILE", help="where the artifact goes (default: NAME.kolm here)")
    command.add_argument(
        "--compare-last", action="store_true", help="set the K-score beside that of the last artifact of the name"
    )
    command.add_argument(
        "--idempotency-key", metavar="KEY", help="repeat a compile's request without starting a second one"
    )
    command.add_argument("--json", action="store_true", help="print the compile as JSON; progress goes to stderr")
    command.set_defaults(command=_run_compile)
    add_api_options(command)


def _pull_options(pull: argparse.ArgumentParser) -> None:
    pull.add_argument("artifact", metavar="ART", help="art_…")
    pull.add_argument("--out", metavar="FILE", help="default: NAME-VERSION.kolm here")
    pull.add_argument("--json", action="store_true", help="print the artifact as JSON, and where the file is")
    pull.set_defaults(command=_run_pull)
    add_api_options(pull)


def _cancel_options(cancel: argparse.ArgumentParser) -> None:
    cancel.add_argument("compile", metavar="CMP", help="cmp_…")
    cancel.add_argument("--json", action="store_true", help="print the API's answer")
    cancel.set_defaults(command=_run_cancel)
    add_api_options(cancel)


def _resume_options(resume: argparse.ArgumentParser) -> None:
    resume.add_argument("compile", metavar="CMP", help="cmp_…")
    resume.add_argument("--budget", type=microusd_of, metavar="USD", help="a new budget for the whole compile")
    _add_wait(resume)
    resume.add_argument("--json", action="store_true", help="print the compile as JSON; progress goes to stderr")
    resume.set_defaults(command=_run_resume)
    add_api_options(resume)


def _add_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--wait",
        "--watch",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show progress until it ends (default)",
    )


def _run_check(options: argparse.Namespace) -> int:
    return check(options.spec, as_json=options.json)


def _run_compile(options: argparse.Namespace) -> int:
    if options.estimate:
        return estimate(options.spec, connect=connect_of(options), as_json=options.json)
    return compile_spec(
        options.spec,
        connect=connect_of(options),
        wait=options.wait,
        out=options.out,
        idempotency_key=options.idempotency_key,
        compare_last=options.compare_last,
        as_json=options.json,
    )


def _run_pull(options: argparse.Namespace) -> int:
    return pull(options.artifact, connect=connect_of(options), out=options.out, as_json=options.json)


def _run_cancel(options: argparse.Namespace) -> int:
    return cancel(options.compile, connect=connect_of(options), as_json=options.json)


def _run_resume(options: argparse.Namespace) -> int:
    return resume(
        options.compile,
        connect=connect_of(options),
        budget_microusd=options.budget,
        wait=options.wait,
        as_json=options.json,
    )


def check(spec: str, *, as_json: bool = False) -> int:
    """The same validation as the API's, without a network. `as_json` prints the spec with every default filled in,
    ready to be posted."""
    from backend.domain.errors import InvalidSpec
    from backend.domain.planning.gate_reach import check_reachable
    from backend.domain.spec.parsing import canonical_spec, parse_spec

    try:
        document = read_document(spec)
        parsed = parse_spec(document)
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


def compile_spec(
    spec: str,
    *,
    connect: Connect,
    wait: bool = True,
    out: str | None = None,
    idempotency_key: str | None = None,
    compare_last: bool = False,
    as_json: bool = False,
) -> int:
    """`compare_last` sets the K-score beside that of the newest artifact of the name, looked up before the start."""

    def act(client: Client) -> int:
        document = read_document(spec)
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


def resume(compile_id: str, *, connect: Connect, budget_microusd: int | None, wait: bool, as_json: bool) -> int:
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
    story = CompileProgress()
    with display_for(story) as display:
        for event in client.compiles.events(compile_id, after=after):
            display.take(event)


def estimate(spec: str, *, connect: Connect, as_json: bool = False) -> int:
    """Print what a compile would cost, step by step, and what the draft cache should save of it. Starts nothing."""
    from gpu_runners.cli.display.draft_tables import saving_sentence
    from gpu_runners.cli.display.prices import price_lines

    def act(client: Client) -> int:
        answer = client.post("/v1/compiles/estimate?drafts=true", read_document(spec))
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


def pull(artifact: str, *, connect: Connect, out: str | None, as_json: bool = False) -> int:
    def act(client: Client) -> int:
        row = client.get(f"/v1/artifacts/{artifact}")
        path = save_artifact(client, row, Path(out) if out else file_of(row["name"], row["version"]))
        if as_json:
            print_json(row | {"path": str(path)})
            return OK
        print(f"{path} ({row['size_bytes']:,} bytes, K-score {row['k_score_ppm'] / 1e6:.3f})")
        return OK

    return run_command(act, connect)


def _artifacts_of(client: Client, document: Any) -> list[Row]:
    """The two newest artifacts that have the spec's name."""
    name = document.get("name") if isinstance(document, dict) else None
    return list(client.get("/v1/artifacts", {"name": name, "limit": 2})["data"]) if isinstance(name, str) else []


def _apart(as_json: bool) -> "contextlib.AbstractContextManager[Any]":
    """Keep standard output for the document alone with --json."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def cancel(id: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.post(f"/v1/compiles/{id}/cancel")
        print_json(row) if as_json else print(f"{row['id']} {row['name']}: {row['status']}")

    return run_command(act, connect)


OPTIONS: dict[str, AddOptions] = {
    "check": _check_options,
    "compile": _compile_options,
    "pull": _pull_options,
    "cancel": _cancel_options,
    "resume": _resume_options,
}
