"""`kolm show CMP --wrong`: the held-out answers that are wrong, each with its input."""

import argparse
from typing import Any

from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.display.wrong_answers import print_answers, print_confusions
from gpu_runners.cli.options import count_of
from gpu_runners.kolm import Client

_FILTERS = ("label", "field", "gold", "predicted", "check")


def add_wrong_options(show: argparse.ArgumentParser) -> None:
    """Add what chooses among the wrong answers of a compile."""
    show.add_argument("--wrong", action="store_true", help="of a compile: the held-out answers that are wrong, and why")
    show.add_argument("--field", metavar="PATH", help="with --wrong, json tasks: those that differ in this field")
    show.add_argument("--label", metavar="NAME", help="with --wrong, label tasks: gold or the answer is this label")
    show.add_argument("--gold", metavar="VALUE", help="with --wrong: gold has this value in place of what was answered")
    show.add_argument("--predicted", metavar="VALUE", help="with --wrong: this was answered in place of gold's value")
    show.add_argument("--check", metavar="NAME", help="with --wrong: those that fail this check of the spec")
    show.add_argument("--limit", type=count_of, metavar="N", help="with --wrong: how many (default: 20)")


def wrong_options_fault(options: argparse.Namespace) -> str | None:
    """Return why the options do not go together; None where they do."""
    if options.wrong:
        is_compile = options.id.startswith("cmp_")
        return None if is_compile else f"--wrong is of compiles, whose ids begin with cmp_; {options.id!r} is none."
    misplaced = [name for name in (*_FILTERS, "limit") if getattr(options, name) is not None]
    return f"--{misplaced[0]} chooses among wrong answers; add --wrong." if misplaced else None


def show_wrong(client: Client, options: argparse.Namespace) -> None:
    """Print what is confused with what, then the wrong answers that the options choose."""
    wanted: dict[str, Any] = {name: getattr(options, name) for name in _FILTERS}
    confusions = client.compiles.confusions(options.id)
    answers = list(client.compiles.answers(options.id, wrong=True, **wanted, limit=options.limit or 20))
    if options.json:
        print_json({**confusions, "answers": [one.raw for one in answers]})
        return
    is_filtered = any(value is not None for value in wanted.values())
    if not is_filtered:
        print_confusions(confusions)
    print_answers(answers, task=confusions["task"], n_wrong=None if is_filtered else confusions["n_wrong"])
