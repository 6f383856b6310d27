"""`kolm doctor`: whether a compile of this spec can end, line by line, with what to do about each."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.exit_codes import FAILED, OK
from gpu_runners.cli.options import SPEC_HELP, AddOptions, add_api_options
from gpu_runners.kolm import Client, read_document

SIGNS = {"passed": "✓", "warning": "!", "failed": "✗", "skipped": "·"}


def _doctor_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    command.add_argument("--json", action="store_true", help="print the list as JSON")
    command.set_defaults(command=_run_doctor)
    add_api_options(command)


def _run_doctor(options: argparse.Namespace) -> int:
    return doctor(options.spec, connect=connect_of(options), as_json=options.json)


def doctor(spec: str, *, connect: Connect, as_json: bool = False) -> int:
    """Print the preflight of a spec. Exit 0 where no line failed (warnings do not count), else 1; nothing is started,
    and each model that the spec asks is asked one tiny call."""

    def act(client: Client) -> int:
        preflight = client.compiles.preflight(read_document(spec))
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


OPTIONS: dict[str, AddOptions] = {"doctor": _doctor_options}
