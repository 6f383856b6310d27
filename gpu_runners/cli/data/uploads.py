"""`kolm upload`: the rows of a file, in whatever form it has them, as an upload that specs may name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.data.looking import look_at_file
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.display.source_tables import print_source
from gpu_runners.cli.exit_codes import FAILED, OK
from gpu_runners.cli.options import DATA_HELP, PATH, column_options, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client


@click.command()
@click.argument("data", type=PATH, metavar="FILE", help=DATA_HELP)
@column_options
@click.option("--captures", is_flag=True, help="upload the inputs alone, as captures")
@click.option("--name", metavar="NAME", help="what specs may call it (default: the file's name)")
@click.option("--dry-run", is_flag=True, help="show what would be uploaded and send nothing")
@json_option()
@api_options
def upload(
    *,
    data: str,
    columns: Mapping[str, Any],
    captures: bool,
    name: str | None,
    dry_run: bool,
    as_json: bool,
    connect: Connect,
) -> int:
    def act(client: Client) -> int:
        from gpu_runners.kolm.spec_files import lines_of

        source = look_at_file(data, columns)
        if not as_json:
            print_source(source)
        purpose = "captures" if captures or source.profile.kind == "inputs" else "examples"
        if not source.rows:
            return fail("No row can be used, so nothing is uploaded.", code=FAILED)
        lines = lines_of(source, purpose)
        if dry_run:
            print(f"{lines.count(10):,} rows would be uploaded as {purpose}; nothing was sent.")
            return OK
        row = client.uploads.store(lines, purpose=purpose, name=name or Path(data).name[:100])
        if as_json:
            print_json(row.raw)
        else:
            print(f"{row.id}: {row.n_rows:,} rows of {row.purpose}, named {row.name!r}.")
            print(f"In a spec: {row.purpose}: {{upload: {row.id}}}")
            print(f"or {{upload: {json.dumps(row.name, ensure_ascii=False)}}}: the newest of that name.")
        return OK

    return run_command(act, connect)
