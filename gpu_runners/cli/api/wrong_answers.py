"""`kolm show CMP --wrong`: the held-out answers that are wrong, each with its input."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.display.wrong_answers import print_answers, print_confusions
from gpu_runners.cli.options import COUNT
from gpu_runners.kolm import Client

SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The filters that choose among the wrong answers of a compile."""

    field: str | None
    label: str | None
    gold: str | None
    predicted: str | None
    check: str | None
    limit: int | None

    def filters(self) -> dict[str, str | None]:
        names = ("label", "field", "gold", "predicted", "check")
        return {name: getattr(self, name) for name in names}


def wrong_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--wrong` and what chooses with it; the command gets `wrong` and `choice`."""

    @click.option("--wrong", is_flag=True, help="of a compile: the held-out answers that are wrong, and why")
    @click.option("--field", metavar="PATH", help="with --wrong, json tasks: those that differ in this field")
    @click.option("--label", metavar="NAME", help="with --wrong, label tasks: gold or the answer is this label")
    @click.option("--gold", metavar="VALUE", help="with --wrong: gold has this value in place of what was answered")
    @click.option("--predicted", metavar="VALUE", help="with --wrong: this was answered in place of gold's value")
    @click.option("--check", metavar="NAME", help="with --wrong: those that fail this check of the spec")
    @click.option("--limit", type=COUNT, metavar="N", help=f"with --wrong: how many (default: {SHOWN})")
    @functools.wraps(command)
    def with_choice(
        *, field: str | None, label: str | None, gold: str | None, predicted: str | None, check: str | None,
        limit: int | None, **options: Any,
    ) -> int:  # fmt: skip
        choice = Choice(field=field, label=label, gold=gold, predicted=predicted, check=check, limit=limit)
        return command(choice=choice, **options)

    return with_choice


def fault_of(id: str, *, wrong: bool, choice: Choice) -> str | None:
    """Return why the options do not go together; None where they do."""
    if wrong:
        return None if id.startswith("cmp_") else f"--wrong is of compiles, whose ids begin with cmp_; {id!r} is none."
    values = {**choice.filters(), "limit": choice.limit}
    misplaced = next((name for name, value in values.items() if value is not None), None)
    return f"--{misplaced} chooses among wrong answers; add --wrong." if misplaced else None


def show_wrong(client: Client, id: str, choice: Choice, *, as_json: bool) -> None:
    """Print what is confused with what, then the wrong answers that the options choose."""
    filters: dict[str, Any] = dict(choice.filters())
    confusions = client.compiles.confusions(id)
    answers = list(client.compiles.answers(id, wrong=True, **filters, limit=choice.limit or SHOWN))
    if as_json:
        print_json({**confusions, "answers": [one.raw for one in answers]})
        return
    is_filtered = any(value is not None for value in filters.values())
    if not is_filtered:
        print_confusions(confusions)
    print_answers(answers, task=confusions["task"], n_wrong=None if is_filtered else confusions["n_wrong"])
