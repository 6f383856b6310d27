"""`kolm drafts verdicts`: which drafts a compile's teacher kept, and which it refused."""

import json
from urllib.parse import quote, urlencode

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.display.saved_drafts import print_verdicts
from gpu_runners.cli.options import COUNT, json_option
from gpu_runners.kolm import Client


@click.command("verdicts", help="Which drafts a compile's teacher kept, and which it refused.")
@click.argument("compile", metavar="CMP", help="cmp_…")
@click.option("--slice", metavar="NAME", help="of this slice alone")
@click.option("--limit", type=COUNT, default=10, metavar="N", help="of each verdict in a slice (default: 10)")
@json_option()
@api_options
def verdicts(*, compile: str, slice: str | None, limit: int, as_json: bool, connect: Connect) -> int:
    """Print the drafts that the teacher was asked about, kept and refused side by side."""
    query = {"limit": str(limit)} | ({} if slice is None else {"slice": slice})

    def act(client: Client) -> None:
        answer = client.get(f"/v1/compiles/{quote(compile, safe='')}/drafts?{urlencode(query)}")
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            print_verdicts(answer["data"])

    return run_command(act, connect)
