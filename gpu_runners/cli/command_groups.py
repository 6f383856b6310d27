"""Groups of commands: one whose commands are imported when they are typed, and one whose actions keep their order."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that is not imported yet: `place` is "module:name" within the group's package."""

    place: str
    text: str


class LazyGroup(click.Group):
    """The help, the suggestions and the completion of names are made from the table alone."""

    def __init__(
        self, name: str, *, package: str, sections: Mapping[str, Mapping[str, Entry]], params: list[click.Parameter],
        help: str,
    ) -> None:  # fmt: skip
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
        super().__init__(name, params=params, help=help, context_settings=settings)
        self.package = package
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command = cast(click.Command, getattr(import_module(f"{self.package}.{module}"), name))
        command.help = entry.text
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.entries, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, self.entries))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), entry.text) for name, entry in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=entry.text) for name, entry in self.entries.items() if name.startswith(incomplete)
        ]
        return names or click.Command.shell_complete(self, ctx, incomplete)


OTHER_NAMES = {"list": "ls", "remove": "rm", "delete": "rm", "new": "create"}  # what other tools call an action


class Actions(click.Group):
    """The actions of one noun, in the order in which they are written, their texts whole."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, OTHER_NAMES.get(cmd_name, cmd_name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Actions"):
            formatter.write_dl([(name, command.help or "") for name, command in self.commands.items()])
