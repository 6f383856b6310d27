"""The command reference of docs/client.md, made from the parser: `python -m tests.gpu_runners.cli.command_reference`
writes it."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from gpu_runners.cli.main import parser

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
BEGIN = "<!-- commands: written by `python -m tests.gpu_runners.cli.command_reference`, checked by a test -->\n"
END = "<!-- end of commands -->\n"
COMMON = ("--help", "--api", "--key", "--profile")


def page_with_commands(text: str) -> str:
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return head + BEGIN + "\n".join(["", *_lines(), ""]) + END + tail


def _lines() -> Iterator[str]:
    yield "`--api`, `--key` and `--profile` are options of every command that asks the API."
    yield ""
    for name, says, command in commands(parser()):
        takes_api = any("--api" in action.option_strings for action in command._actions)
        yield f"### kolm {name}"
        yield ""
        yield says[:1].upper() + says[1:] + "." + ("" if takes_api else " Asks no API.")
        yield ""
        rows = [(_form(action), _says(action)) for action in command._actions if _is_own(name, action)]
        if rows:
            yield "| | |"
            yield "|---|---|"
            yield from (f"| `{form}` | {text} |" for form, text in rows)
            yield ""


def commands(top: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """(name, what its help says, parser) of every command, actions of actions too."""
    for group in (action for action in top._actions if isinstance(action, argparse._SubParsersAction)):
        says = {choice.dest: choice.help or "" for choice in group._choices_actions}
        for name, command in group.choices.items():
            full = f"{path}{name}"
            if any(isinstance(action, argparse._SubParsersAction) for action in command._actions):
                yield from commands(command, f"{full} ")
            else:
                yield full, says.get(name, ""), command


def _is_own(name: str, action: argparse.Action) -> bool:
    if name == "login":
        return "--help" not in action.option_strings
    return not set(COMMON) & set(action.option_strings) or "--keyring" in action.option_strings


def _form(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest).replace("|", "\\|")
    names = ", ".join(action.option_strings)
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    return names if action.nargs == 0 else f"{names} {value}".replace("|", "\\|")


def _says(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%")
    choices = ", ".join(map(str, action.choices)) if action.choices and not action.option_strings else ""
    return " ".join(part for part in (text, choices) if part).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page_with_commands(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
