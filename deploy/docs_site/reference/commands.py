"""The page of the `kolm` command, from what each command prints for `--help`."""

from collections.abc import Iterator

import click

from gpu_runners.cli.main import kolm

WIDTH = 100
HEAD = """# The `kolm` command

What each command prints for `kolm COMMAND --help`. [Installing it](../client.md#installing) and the
[exit codes](../client.md#exit-codes) are on the page of the client.
"""


def commands_page() -> str:
    parts = [f"\n## kolm {name}\n\n```text\n{text.strip()}\n```\n" for name, text in _commands()]
    return HEAD + "".join(parts)


def _commands() -> Iterator[tuple[str, str]]:
    """(name, help) of every command; of a group of commands, of each in it."""
    return _of_group(kolm, click.Context(kolm, info_name="kolm"))


def _of_group(group: click.Group, context: click.Context, path: str = "") -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        if isinstance(command, click.Group):
            yield from _of_group(command, inner, f"{path}{name} ")
        else:
            yield f"{path}{name}", command.get_help(inner)
