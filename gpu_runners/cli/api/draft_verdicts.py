"""`kolm drafts verdicts`: which drafts a compile's teacher kept, and which it refused."""

import argparse
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.saved_drafts import print_verdicts
from gpu_runners.cli.options import count_of
from gpu_runners.kolm import Client

if TYPE_CHECKING:
    from gpu_runners.cli.options import Actions


def add_verdicts(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("verdicts", help="which drafts a compile's teacher kept, and which it refused")
    command.add_argument("compile", metavar="CMP", help="cmp_…")
    command.add_argument("--slice", metavar="NAME", help="of this slice alone")
    command.add_argument(
        "--limit", type=count_of, default=10, metavar="N", help="of each verdict in a slice (default: 10)"
    )
    command.add_argument("--json", action="store_true", help="print the API's answer")
    command.set_defaults(command=_run_verdicts)
    return command


def _run_verdicts(options: argparse.Namespace) -> int:
    return verdicts(
        options.compile, slice=options.slice, limit=options.limit, as_json=options.json, connect=connect_of(options)
    )


def verdicts(compile: str, *, slice: str | None, limit: int, as_json: bool, connect: Connect) -> int:
    """Print the drafts that the teacher was asked about, kept and refused side by side."""
    query = {"limit": str(limit)} | ({} if slice is None else {"slice": slice})

    def act(client: Client) -> None:
        answer = client.get(f"/v1/compiles/{quote(compile, safe='')}/drafts?{urlencode(query)}")
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            print_verdicts(answer["data"])

    return run_command(act, connect)
