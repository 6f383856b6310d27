"""Amounts and counts as they are typed on the command line."""

import argparse
from decimal import Decimal, InvalidOperation

MICROUSD_PER_USD = 1_000_000
MOST_USD = 1_000_000_000


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
