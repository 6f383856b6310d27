"""The options of `kolm ls` and `show`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_runners.cli.amounts import count_of

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]
STATUSES = ("queued", "running", "canceling", "succeeded", "gate_failed", "failed", "canceled", "expired")


def add_listing_parsers(commands: "Actions", api_options: Options) -> None:
    ls = commands.add_parser("ls", help="compiles or artifacts, newest first")
    ls.add_argument("what", nargs="?", choices=["compiles", "artifacts"], default="compiles")
    ls.add_argument("--status", choices=STATUSES, help="compiles with this status alone")
    ls.add_argument("--name", metavar="NAME", help="of this name alone")
    ls.add_argument("--limit", type=count_of, default=20, metavar="N", help="how many (default: 20)")
    ls.add_argument("--json", action="store_true", help="one JSON object a line")
    ls.set_defaults(command=_run_ls)
    show = commands.add_parser("show", help="whatever has an id: cmp_…, art_…, drf_…, key_…, we_… and so on")
    show.add_argument("id", metavar="ID")
    show.add_argument("--json", action="store_true", help="print the API's answer")
    show.set_defaults(command=_run_show)
    for command in (ls, show):
        api_options(command)


def _run_ls(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.listings import ls

    return ls(
        options.what,
        status=options.status,
        name=options.name,
        limit=options.limit,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_show(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.listings import show

    return show(options.id, as_json=options.json, connect=connect_of(options))
