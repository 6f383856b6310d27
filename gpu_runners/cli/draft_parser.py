"""The options of `kolm drafts`. Nothing is imported here that another command would not want to wait for."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]


def add_drafts_parser(commands: "Actions", api_options: Options) -> None:
    drafts = commands.add_parser("drafts", help="the draft cache: what it holds, what it saves, deleting from it")
    actions = drafts.add_subparsers(required=True, metavar="ACTION")
    for add in (_stats, _list, _show, _preview, _delete, _purge):
        api_options(add(actions))


def _stats(actions: "Actions") -> argparse.ArgumentParser:
    stats = actions.add_parser("stats", help="what is kept, what was accepted of it, and what that saved")
    stats.add_argument("--family", metavar="F", help="this family alone")
    stats.add_argument("--since", metavar="TIME", help="look-ups from then on, 2026-11-01T00:00:00Z")
    stats.add_argument("--json", action="store_true", help="print the API's answer")
    stats.set_defaults(command=_run_stats)
    return stats


def _list(actions: "Actions") -> argparse.ArgumentParser:
    found = actions.add_parser("list", help="drafts, newest first")
    found.add_argument("--family", metavar="F", help="of this family alone")
    found.add_argument("--state", choices=["live", "quarantined", "retired"])
    found.add_argument("--search", metavar="TEXT", help="whose text contains this, in upper or lower case")
    found.add_argument("--limit", type=_count, default=20, metavar="N", help="how many (default: 20)")
    found.add_argument("--json", action="store_true", help="one JSON object a line")
    found.set_defaults(command=_run_list)
    return found


def _show(actions: "Actions") -> argparse.ArgumentParser:
    show = actions.add_parser("show", help="one draft, its slice and what was said of it")
    show.add_argument("draft", metavar="DRF", help="drf_…")
    show.add_argument("--json", action="store_true", help="print the API's answer")
    show.set_defaults(command=_run_show)
    return show


def _preview(actions: "Actions") -> argparse.ArgumentParser:
    preview = actions.add_parser("preview", help="what a spec would be offered, and what that would save")
    preview.add_argument("spec", metavar="SPEC", help="YAML or JSON; - is standard input")
    preview.add_argument("--json", action="store_true", help="print the API's answer")
    preview.set_defaults(command=_run_preview)
    return preview


def _delete(actions: "Actions") -> argparse.ArgumentParser:
    delete = actions.add_parser("delete", help="delete a draft and those that began as it")
    delete.add_argument("draft", metavar="DRF", help="drf_…")
    delete.set_defaults(command=_run_delete)
    return delete


def _purge(actions: "Actions") -> argparse.ArgumentParser:
    purge = actions.add_parser("purge", help="delete all that is kept of a family, and the key of its texts")
    purge.add_argument("--family", required=True, metavar="F")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    purge.set_defaults(command=_run_purge)
    return purge


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return number


def _run_stats(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import stats

    return stats(
        family=options.family,
        since=options.since,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_list(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import list_drafts

    return list_drafts(
        family=options.family,
        state=options.state,
        search=options.search,
        limit=options.limit,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_show(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import show

    return show(options.draft, as_json=options.json, connect=connect_of(options))


def _run_preview(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import preview

    return preview(options.spec, as_json=options.json, connect=connect_of(options))


def _run_delete(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import delete

    return delete(options.draft, connect=connect_of(options))


def _run_purge(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.drafts import purge

    return purge(options.family, yes=options.yes, connect=connect_of(options))
