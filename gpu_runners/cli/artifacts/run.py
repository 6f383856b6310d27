"""`kolm run`: texts and tables answered by a `.kolm` on the reader's machine, offline."""

import json
import sys
from collections.abc import Sequence

import click

from backend.domain.errors import OurError
from gpu_runners.cli.artifacts.answering import answering
from gpu_runners.cli.artifacts.loading import Refused, read_inputs, read_trusted
from gpu_runners.cli.display.answers import print_answer
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import PATH, file_argument, json_option, trust_options
from gpu_runners.cli.terminal import fail


@click.command()
@file_argument
@click.argument("texts", metavar="[TEXT]...", nargs=-1, help="each is answered on a line")
@click.option("--in", "table", type=PATH, metavar="TABLE", help="answer a .csv, .tsv, .jsonl or .parquet file")
@click.option("--column", metavar="NAME", help="with --in: the column of texts (default: the only one, input or text)")
@click.option("--out", type=PATH, metavar="TABLE", help="with --in: where the rows go (default: standard output)")
@click.option(
    "--jsonl",
    is_flag=False,
    flag_value="-",
    type=PATH,
    metavar="FILE",
    help='lines of {"input": …} (default: standard input)',
)  # fmt: skip
@json_option("one JSON object a line")
@trust_options("run")
def run(
    *, file: str, texts: Sequence[str], table: str | None, column: str | None, out: str | None, jsonl: str | None,
    as_json: bool, keyring: str | None, allow_untrusted: bool,
) -> int:  # fmt: skip
    if (fault := _fault(texts, table, column, out, jsonl)) is not None:
        return fail(fault, code=USAGE)
    try:
        if table is not None:
            from gpu_runners.cli.artifacts.run_table import run_table

            return run_table(read_trusted(file, keyring, allow_untrusted), table, column=column, out=out)
        inputs = list(texts) if jsonl is None else read_inputs(jsonl)
        if not inputs:
            return fail('give a text, lines of {"input": …} with --jsonl, or a table with --in.', code=USAGE)
        outputs = answering(read_trusted(file, keyring, allow_untrusted), n_texts=len(inputs))(inputs)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    except OurError as error:  # an input longer than the base's context
        return fail(error.message)
    for text, output in zip(inputs, outputs, strict=True):
        if as_json or jsonl:
            print(json.dumps({"input": text} | output, ensure_ascii=False))
        else:
            print_answer(text, output, is_drawn=sys.stdout.isatty())
    return OK


def _fault(
    texts: Sequence[str], table: str | None, column: str | None, out: str | None, jsonl: str | None
) -> str | None:
    """Return why the options do not go together; None where they do."""
    if sum((bool(texts), table is not None, jsonl is not None)) > 1:
        return "give texts, --jsonl or --in, not several of them."
    if table is None and (column is not None or out is not None):
        return "--column and --out go with a table; name it with --in."
    return None
