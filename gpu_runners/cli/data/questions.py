"""The questions of `kolm init` at a terminal. What cannot be an answer is refused with the reason, and asked again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpu_runners.cli.data.teachers import teacher_of
from gpu_runners.cli.options import AMOUNT

if TYPE_CHECKING:
    from backend.domain.source_data.source import Source

NONE = "-"
Answer = TypeVar("Answer")


def ask_columns(source: "Source") -> tuple[list[str], str | None]:
    """The columns of inputs and the column of answers, None where there is none."""
    columns, guess = source.columns, source.mapping

    def read_inputs(text: str) -> list[str]:
        names = [text] if text in columns else [name.strip() for name in text.split(",")]
        if len(set(names)) < len(names):
            raise ValueError("a column is named twice")
        return [_check_column(name, columns) for name in names]

    def read_output(text: str) -> str | None:
        name = text.strip()
        if name in inputs:
            raise ValueError(f"{name!r} is an input already")
        return None if name == NONE and NONE not in columns else _check_column(name, columns)

    inputs: list[str] = _ask(f"Column of inputs ({', '.join(columns)})", ",".join(guess.inputs), read_inputs)
    output = guess.output if guess.output not in inputs else None
    return inputs, _ask(f"Column of answers ({NONE} for none)", output or NONE, read_output)


def ask_task(guess: str) -> str:
    return str(click.prompt("The task, in a sentence", default=guess, err=True))


def ask_teacher(model: str | None) -> dict[str, Any]:
    """The teacher of a spec; an address is followed by the question which model it has."""
    from backend.domain.money.teacher_catalog import VENDORS

    def read(text: str) -> dict[str, Any]:
        is_address = text.startswith(("http://", "https://"))
        return teacher_of(text, model or (str(click.prompt("The model there", err=True)) if is_address else None))

    names = ", ".join(vendor.provider for vendor in VENDORS)
    return _ask(f"The teacher ({names}, demo, or an address)", "openai", read)


def ask_budget() -> int:
    """Micro-USD."""
    return int(click.prompt("At most, in USD", default="5", type=AMOUNT, err=True))


def _ask(question: str, default: str, read: Callable[[str], Answer]) -> Answer:
    """The answer as `read` makes it of the text; what it refuses with a ValueError is asked again."""

    def convert(text: str) -> Answer:
        try:
            return read(text)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    answer: Answer = click.prompt(question, default=default, value_proc=convert, err=True)
    return answer


def _check_column(name: str, columns: tuple[str, ...]) -> str:
    if name not in columns:
        raise ValueError(f"there is no column {name!r}; there are {', '.join(map(repr, columns))}")
    return name
