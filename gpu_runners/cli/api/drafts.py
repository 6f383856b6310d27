"""`kolm drafts`: the draft cache over the API. Exit 0; 1 when the API refuses or does not answer; 2 for options that
make no sense."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.api.draft_verdicts import add_verdicts
from gpu_runners.cli.display import draft_tables as tables
from gpu_runners.cli.exit_codes import FAILED
from gpu_runners.cli.options import AddOptions, add_api_options, count_of
from gpu_runners.cli.terminal import agrees
from gpu_runners.kolm import Client, read_document

if TYPE_CHECKING:
    from gpu_runners.cli.options import Actions


PAGE = 100
Row = dict[str, Any]


def _drafts_options(drafts: argparse.ArgumentParser) -> None:
    actions = drafts.add_subparsers(required=True, metavar="ACTION")
    for add in (_add_stats, _add_list, _add_show, add_verdicts, _add_preview, _add_delete, _add_purge):
        add_api_options(add(actions))


def _add_stats(actions: "Actions") -> argparse.ArgumentParser:
    stats = actions.add_parser("stats", help="what is kept, what was accepted of it, and what that saved")
    stats.add_argument("--family", metavar="F", help="this family alone")
    stats.add_argument("--since", metavar="TIME", help="look-ups from then on, 2026-11-01T00:00:00Z")
    stats.add_argument("--json", action="store_true", help="print the API's answer")
    stats.set_defaults(command=_run_stats)
    return stats


def _add_list(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("list", help="drafts, newest first")
    command.add_argument("--family", metavar="F", help="of this family alone")
    command.add_argument("--state", choices=["live", "quarantined", "retired"])
    command.add_argument("--search", metavar="TEXT", help="whose text contains this, in upper or lower case")
    command.add_argument("--limit", type=count_of, default=20, metavar="N", help="how many (default: 20)")
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    command.set_defaults(command=_run_list)
    return command


def _add_show(actions: "Actions") -> argparse.ArgumentParser:
    show = actions.add_parser("show", help="one draft, its slice and what was said of it")
    show.add_argument("draft", metavar="DRF", help="drf_…")
    show.add_argument("--json", action="store_true", help="print the API's answer")
    show.set_defaults(command=_run_show)
    return show


def _add_preview(actions: "Actions") -> argparse.ArgumentParser:
    preview = actions.add_parser("preview", help="what a spec would be offered, and what that would save")
    preview.add_argument("spec", metavar="SPEC", help="YAML or JSON; - is standard input")
    preview.add_argument("--json", action="store_true", help="print the API's answer")
    preview.set_defaults(command=_run_preview)
    return preview


def _add_delete(actions: "Actions") -> argparse.ArgumentParser:
    delete = actions.add_parser("delete", help="delete a draft and those that began as it")
    delete.add_argument("draft", metavar="DRF", help="drf_…")
    delete.set_defaults(command=_run_delete)
    return delete


def _add_purge(actions: "Actions") -> argparse.ArgumentParser:
    purge = actions.add_parser("purge", help="delete all that is kept of a family, and the key of its texts")
    purge.add_argument("--family", required=True, metavar="F")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(command=_run_purge)
    return purge


def _run_stats(options: argparse.Namespace) -> int:
    return stats(
        family=options.family,
        since=options.since,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_list(options: argparse.Namespace) -> int:
    return list_drafts(
        family=options.family,
        state=options.state,
        search=options.search,
        limit=options.limit,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_show(options: argparse.Namespace) -> int:
    return show(options.draft, as_json=options.json, connect=connect_of(options))


def _run_preview(options: argparse.Namespace) -> int:
    return preview(options.spec, as_json=options.json, connect=connect_of(options))


def _run_delete(options: argparse.Namespace) -> int:
    return delete(options.draft, connect=connect_of(options))


def _run_purge(options: argparse.Namespace) -> int:
    return purge(options.family, yes=options.yes, connect=connect_of(options))


def stats(*, family: str | None, since: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        answer = client.get(_path("/v1/drafts/stats", family=family, since=since))
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_stats(answer)

    return run_command(act, connect)


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


def show(draft: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.get(f"/v1/drafts/{quote(draft, safe='')}")
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_draft(row)

    return run_command(act, connect)


def preview(spec: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        # asked once: the API itself has waited for a worker already
        answer = client.post("/v1/drafts/preview", read_document(spec), attempts=1)
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_preview(answer)

    return run_command(act, connect)


def delete(draft: str, *, connect: Connect) -> int:
    def act(client: Client) -> None:
        counts = client.delete(f"/v1/drafts/{quote(draft, safe='')}")
        n_others = counts["n_drafts"] - 1
        print(f"{draft} is deleted" + (f", and {n_others} that began as it." if n_others else "."))

    return run_command(act, connect)


def purge(family: str, *, yes: bool, connect: Connect) -> int:
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


OPTIONS: dict[str, AddOptions] = {
    "drafts": _drafts_options,
}
