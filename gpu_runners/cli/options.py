"""The options that several commands have, and the amounts and counts that are typed in them."""

import argparse
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

AddOptions = Callable[[argparse.ArgumentParser], None]
SPEC_HELP = "YAML or JSON; - is standard input"
MICROUSD_PER_USD = 1_000_000
MOST_USD = 1_000_000_000


def add_api_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the API; what they leave out comes from the environment, then from the saved login
    (`gpu_runners.kolm.saved`)."""
    command.add_argument("--api", metavar="URL", help="or KOLM_API_URL, or the saved login's")
    command.add_argument("--key", metavar="KEY", help="or KOLM_API_KEY, or the saved login's")
    command.add_argument("--profile", metavar="NAME", help="which saved login (or KOLM_PROFILE; default: default)")


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
        raise argparse.ArgumentTypeError(f"{text!r} is no amount in US dollars above 0, such as 2.50")
    return int(amount * MICROUSD_PER_USD)


def count_of(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return number
