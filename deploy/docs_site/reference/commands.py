"""The page of the `kolm` command, from what each command prints for `--help`.

`_commands` alone knows which library parses the command line: argparse's parsers, or click's groups."""

import argparse
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from gpu_runners.cli import main

WIDTH = "100"
HEAD = """# The `kolm` command

What each command prints for `kolm COMMAND --help`. [Installing it](../client.md#installing) and the
[exit codes](../client.md#exit-codes) are on the page of the client.
"""


def commands_page() -> str:
    with patch.dict(os.environ, {"COLUMNS": WIDTH, "NO_COLOR": "1"}):
        parts = [f"\n## kolm {name}\n\n```text\n{text.strip()}\n```\n" for name, text in _commands()]
    return HEAD + "".join(parts)


def _commands() -> Iterator[tuple[str, str]]:
    """(name, help) of every command; of a group of commands, of each in it."""
    root = getattr(main, "root", None)
    return _of_argparse(main.parser()) if root is None else _of_click(root)


def _of_argparse(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, str]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if path and not groups:
        yield path.strip(), parser.format_help()
    for group in groups:
        for name, command in group.choices.items():
            yield from _of_argparse(command, f"{path}{name} ")


def _of_click(command: Any, path: str = "", parent: Any = None) -> Iterator[tuple[str, str]]:
    import click

    context = click.Context(
        command, info_name=path.split()[-1] if path else "kolm", parent=parent, max_content_width=100
    )
    if not isinstance(command, click.Group):
        yield path.strip(), command.get_help(context)
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _of_click(below, f"{path}{name} ", context)
