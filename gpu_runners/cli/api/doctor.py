"""`kolm doctor`: whether a compile of this spec can end, line by line, with what to do about each."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.exit_codes import FAILED, OK
from gpu_runners.cli.options import PATH, SPEC_HELP, json_option
from gpu_runners.kolm import Client

SIGNS = {"passed": "✓", "warning": "!", "failed": "✗", "skipped": "·"}


@click.command()
@click.argument("spec", type=PATH, metavar="SPEC", help=SPEC_HELP)
@json_option("print the list as JSON")
@api_options
def doctor(*, spec: str, as_json: bool, connect: Connect) -> int:
    """Print the preflight of a spec. Exit 0 where no line failed (warnings do not count), else 1; nothing is started,
    and each model that the spec asks is asked one tiny call."""

    def act(client: Client) -> int:
        preflight = client.compiles.preflight(spec)
        if as_json:
            print_json(preflight)
        else:
            for line in preflight["lines"]:
                for text in _texts(line):
                    print(text)
            print(_verdict(spec, preflight), file=sys.stdout if preflight["passed"] else sys.stderr)
        return OK if preflight["passed"] else FAILED

    return run_command(act, connect)


def _texts(line: Mapping[str, Any]) -> Iterator[str]:
    code = f" ({line['code']})" if line.get("code") else ""
    yield f"{SIGNS.get(line['status'], '?')} {line['check'].replace('_', ' ')}: {line['sentence']}{code}"
    if line.get("what_to_do"):
        yield f"    {line['what_to_do']}"


def _verdict(spec: str, preflight: Mapping[str, Any]) -> str:
    count = {status: sum(line["status"] == status for line in preflight["lines"]) for status in SIGNS}
    warnings = f", {count['warning']} warning{'s' * (count['warning'] != 1)}" if count["warning"] else ""
    if preflight["passed"]:
        return f"{spec}: a compile can end{warnings}."
    return f"{spec}: a compile would be refused: {count['failed']} failed{warnings}."
