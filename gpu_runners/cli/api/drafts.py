"""`kolm drafts`: the draft cache over the API. Exit 0; 1 when the API refuses or does not answer; 2 for options that
make no sense."""

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.api.draft_verdicts import verdicts
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display import draft_tables as tables
from gpu_runners.cli.exit_codes import FAILED
from gpu_runners.cli.options import COUNT, PATH, SPEC_HELP, json_option
from gpu_runners.cli.terminal import agrees
from gpu_runners.kolm import Client

PAGE = 100
Row = dict[str, Any]


drafts = Actions("drafts")


@drafts.command("stats", help="What is kept, what was accepted of it, and what that saved.")
@click.option("--family", metavar="F", help="this family alone")
@click.option("--since", metavar="TIME", help="look-ups from then on, 2026-11-01T00:00:00Z")
@json_option()
@api_options
def stats(*, family: str | None, since: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        answer = client.get(_path("/v1/drafts/stats", family=family, since=since))
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_stats(answer)

    return run_command(act, connect)


@drafts.command("list", help="Drafts, newest first.")
@click.option("--family", metavar="F", help="of this family alone")
@click.option("--state", type=click.Choice(["live", "quarantined", "retired"]), help="in this state alone")
@click.option("--search", metavar="TEXT", help="whose text contains this, in upper or lower case")
@click.option("--limit", type=COUNT, default=20, metavar="N", help="how many (default: 20)")
@json_option("one JSON object a line")
@api_options
def list_drafts(
    *,
    family: str | None,
    state: str | None,
    search: str | None,
    limit: int,
    as_json: bool,
    connect: Connect,
) -> int:
    def act(client: Client) -> None:
        rows = _drafts(client, limit, family=family, state=state, q=search)
        if as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_drafts(list(rows))

    return run_command(act, connect)


@drafts.command("show", help="One draft, its slice and what was said of it.")
@click.argument("draft", metavar="DRF", help="drf_…")
@json_option()
@api_options
def show(*, draft: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.get(f"/v1/drafts/{quote(draft, safe='')}")
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_draft(row)

    return run_command(act, connect)


drafts.add_command(verdicts)


@drafts.command("preview", help="What a spec would be offered, and what that would save.")
@click.argument("spec", type=PATH, metavar="SPEC", help=SPEC_HELP)
@json_option()
@api_options
def preview(*, spec: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        # asked once: the API itself has waited for a worker already
        answer = client.post("/v1/drafts/preview", client.compiles.document(spec), attempts=1)
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_preview(answer)

    return run_command(act, connect)


@drafts.command("delete", help="Delete a draft and those that began as it.")
@click.argument("draft", metavar="DRF", help="drf_…")
@api_options
def delete(*, draft: str, connect: Connect) -> int:
    def act(client: Client) -> None:
        counts = client.delete(f"/v1/drafts/{quote(draft, safe='')}")
        n_others = counts["n_drafts"] - 1
        print(f"{draft} is deleted" + (f", and {n_others} that began as it." if n_others else "."))

    return run_command(act, connect)


@drafts.command("purge", help="Delete all that is kept of a family, and the key of its texts.")
@click.option("--family", required=True, metavar="F", help="this family alone")
@click.option("--yes", is_flag=True, help="do not ask")
@api_options
def purge(*, family: str, yes: bool, connect: Connect) -> int:
    """Asks before it deletes, unless it was told not to."""

    def act(client: Client) -> None:
        counts = client.delete(_path("/v1/drafts", family=family))
        if counts["n_keys"] == 0:
            print(f"Nothing was kept of the family {family!r}.")
            return
        print(
            f"{family}: {counts['n_drafts']} drafts of {counts['n_sources']} slices and {counts['n_label_drafts']} "
            "label answers are deleted, and the key that their texts were sealed with."
        )

    if not yes and not agrees(f"Delete all drafts of the family {family!r}? There is no way back. [y/N] "):
        print("kolm: nothing was deleted; answer y, or pass --yes.", file=sys.stderr)
        return FAILED
    return run_command(act, connect)


def _drafts(client: Client, limit: int, **filters: str | None) -> Iterator[Row]:
    """Page by page; a search that was cut short is gone on with until it has `limit` or is at its end."""
    after: str | None = None
    left = limit
    while left > 0:
        page = client.get(_path("/v1/drafts", limit=str(min(left, PAGE)), after=after, **filters))
        yield from page["data"]
        left -= len(page["data"])
        after = page["next_cursor"]
        if after is None:
            return


def _path(path: str, **query: str | None) -> str:
    parameters = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path
