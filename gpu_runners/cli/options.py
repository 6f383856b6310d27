"""The options that several commands have, and the amounts and counts that are typed in them."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
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


def file_argument(command: Command) -> Command:
    """Add FILE, the path of a `.kolm`; the command gets `file`."""
    return click.argument("file", metavar="FILE", help="a .kolm file")(command)


def json_option(text: str = "print the API's answer") -> Callable[[Command], Command]:
    """Add `--json`; the command gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def trust_options(verb: str) -> Callable[[Command], Command]:
    """Add whose signature is enough for a `.kolm` that is run, or whatever `verb` says."""

    def add(command: Command) -> Command:
        text = f"{verb} an intact file although nobody vouches for its key"
        command = click.option("--allow-untrusted", is_flag=True, help=text)(command)
        return click.option("--keyring", metavar="FILE", help=KEYRING_HELP)(command)

    return add


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
