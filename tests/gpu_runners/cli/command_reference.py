"""The command reference of docs/client.md, made from the commands: `python -m tests.gpu_runners.cli.command_reference`
writes it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from gpu_runners.cli.main import kolm

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
BEGIN = "<!-- commands: written by `python -m tests.gpu_runners.cli.command_reference`, checked by a test -->\n"
END = "<!-- end of commands -->\n"
COMMON = ("--api", "--key", "--profile")


def page_with_commands(text: str) -> str:
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return head + BEGIN + "\n".join(["", *_lines(), ""]) + END + tail


def _lines() -> Iterator[str]:
    yield "`--api`, `--key` and `--profile` are options of every command that asks the API."
    yield ""
    for name, command in commands(kolm):
        yield f"### kolm {name}"
        yield ""
        yield (command.help or "") + ("" if takes_api(command) else " Asks no API.")
        yield ""
        rows = [(_form(param), param.help or "") for param in command.params if _is_own(name, param)]
        if rows:
            yield "| | |"
            yield "|---|---|"
            yield from (f"| `{_cell(form)}` | {_cell(text)} |" for form, text in rows)
            yield ""


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """(name, command) of every command, actions of nouns too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def takes_api(command: click.Command) -> bool:
    return any("--api" in param.opts for param in command.params)


def parsed(words: Sequence[str]) -> click.Context:
    """The command that these words name, its options read; nothing is run. Raises click.UsageError."""
    context = kolm.make_context("kolm", list(words))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


def _is_own(name: str, param: click.Parameter) -> bool:
    return name == "login" or not set(COMMON) & set(param.opts)


def _form(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return param.make_metavar(click.Context(kolm)).replace("[", "").replace("]", "")
    assert isinstance(param, click.Option)
    names = ", ".join([*param.opts, *param.secondary_opts])
    choices = param.type.choices if isinstance(param.type, click.Choice) else ()
    value = param.metavar or "|".join(map(str, choices))
    return names if param.is_flag else f"{names} {value}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page_with_commands(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
