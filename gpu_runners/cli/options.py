"""The options that several commands have, and the amounts and counts that are typed in them."""

import functools
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar, cast

import click

Command = TypeVar("Command", bound=Callable[..., Any])
DATA_HELP = "CSV, TSV, JSON lines, JSON, Parquet, chats, exports; or a data set's folder"
INPUT_HELP = "the column of inputs; several, with commas between"
SPEC_HELP = "YAML or JSON; - is standard input"
KEYRING_HELP = "default: $KOLM_KEYRING or ~/.config/kolm/keyring.json"
MICROUSD_PER_USD = 1_000_000
MOST_USD = 1_000_000_000


class _Amount(click.ParamType[int]):
    """US dollars, as micro-USD."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return microusd_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Count(click.ParamType[int]):
    """A whole number of 1 or more."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if number < 1:
            self.fail(f"{text!r} is no whole number above 0", param, ctx)
        return number


AMOUNT, COUNT = _Amount(), _Count()
PATH = click.Path(readable=False)  # a text as it was typed; what it adds is that a shell completes it with files


def file_argument(command: Command) -> Command:
    """Add FILE, the path of a `.kolm`; the command gets `file`."""
    return click.argument("file", type=PATH, metavar="FILE", help="a .kolm file")(command)


def json_option(text: str = "print the API's answer") -> Callable[[Command], Command]:
    """Add `--json`; the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def trust_options(verb: str) -> Callable[[Command], Command]:
    """Add whose signature is enough for a `.kolm` that is run, or whatever `verb` says."""

    def add(command: Command) -> Command:
        text = f"{verb} an intact file even if its key is not trusted"
        command = click.option("--allow-untrusted", is_flag=True, help=text)(command)
        return click.option("--keyring", type=PATH, metavar="FILE", help=KEYRING_HELP)(command)

    return add


def column_options(command: Command) -> Command:
    """Add which column of a file is what; the command gets `columns`, the named ones by their role."""

    @click.option(
        "--input", "input_column", metavar="COLUMN", help="the column of inputs; several, with commas between"
    )
    @click.option("--output", "output_column", metavar="COLUMN", help="the column of answers")
    @click.option("--group", "group_column", metavar="COLUMN", help="the column of what must stay together")
    @click.option("--split", "split_column", metavar="COLUMN", help="the column that says train or test")
    @functools.wraps(command)
    def with_columns(
        *,
        input_column: str | None,
        output_column: str | None,
        group_column: str | None,
        split_column: str | None,
        **options: Any,
    ) -> Any:
        inputs = [name.strip() for name in input_column.split(",")] if input_column else None
        roles = {"input": inputs, "output": output_column, "group": group_column, "split": split_column}
        return command(columns={role: name for role, name in roles.items() if name}, **options)

    return cast(Command, with_columns)


def microusd_of(text: str) -> int:
    """
    >>> microusd_of("2.50")
    2500000
    """
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(0)
    if not (amount.is_finite() and 0 < amount <= MOST_USD) or amount * MICROUSD_PER_USD % 1:
        raise ValueError(f"{text!r} is no amount in US dollars above 0, such as 2.50")
    return int(amount * MICROUSD_PER_USD)
