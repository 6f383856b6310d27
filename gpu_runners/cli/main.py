"""`kolm`: log in, check and compile specs, look at what came of them and what it cost, fetch, trust, verify, run and
measure artifacts, select rows, hear webhooks.

A command's module is imported when that command was typed: `kolm --help` imports none, and `kolm verify` starts without
httpx, pydantic or torch.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TextIO, cast

from gpu_runners.cli.exit_codes import INTERRUPTED, PIPE_CLOSED
from gpu_runners.cli.options import AddOptions
from gpu_runners.terminal_text import TextOnly

# a command's module in this package, and its line in `kolm --help`
COMMANDS = {
    "check": ("api.compiles", "validate a spec on this machine"),
    "doctor": ("api.doctor", "look whether a compile of a spec can end, before anything is paid: exit 0, or 1 if not"),
    "compile": ("api.compiles", "compile a spec into a .kolm: exit 0 succeeded, 4 gate failed, 1 failed"),
    "ablate": ("api.ablate", "compile with and without selection from the same candidates and print the difference"),
    "pull": ("api.compiles", "download an artifact"),
    "cancel": ("api.compiles", "stop a compile; what is done and paid for is kept"),
    "resume": ("api.compiles", "go on with a compile that ended early: exit as of `kolm compile`"),
    "ls": ("api.listings", "compiles or artifacts, newest first"),
    "show": ("api.listings", "whatever has an id: cmp_…, art_…, drf_…, key_…, we_… and so on"),
    "login": ("api.account", "ask for address and API key, check them, and keep them for this user"),
    "logout": ("api.account", "forget a saved login; the key itself stays valid"),
    "whoami": ("api.account", "which tenant and key this is, and of which installation"),
    "keys": ("api.account", "API keys"),
    "usage": ("api.money", "what was used, and what it cost"),
    "bill": ("api.money", "this month's bill so far, or that of one compile"),
    "budgets": ("api.money", "what a month may cost"),
    "prices": ("api.money", "what the tokens of vendors' models cost, with dates and sources"),
    "webhooks": ("api.webhooks", "endpoints, deliveries, and events on this machine"),
    "deployments": ("api.deployments", "names under which artifacts answer chats"),
    "chat": ("api.chat", "ask a deployment or an artifact; the answer as it comes"),
    "drafts": ("api.drafts", "the draft cache: what it holds, what it saves, deleting from it"),
    "registry": ("api.registry", "epochs of structural recipes that many tenants share"),
    "select": ("select", "keep the K of N rows that teach most, on this machine"),
    "trust": ("artifacts.trust", "pin the signing keys of an installation"),
    "verify": ("artifacts.verify", "verify offline: exit 0 trusted, 3 intact but untrusted, 1 altered, 2 not a .kolm"),
    "inspect": ("artifacts.run", "show what is in an intact .kolm"),
    "run": ("artifacts.run", "answer texts with a .kolm"),
    "serve": ("artifacts.run", "serve a .kolm over HTTP"),
    "export": ("artifacts.export", "write a .kolm's model for another library, its receipts beside it"),
    "recipes": ("artifacts.recipes", "list a .kolm's recipes, the biggest savings first"),
    "rules": ("artifacts.recipes", "list a .kolm's rules, or write them as a JavaScript function"),
    "bench": ("artifacts.bench", "measure a .kolm: the model alone, and with each source of drafted tokens; its rules"),
}


def main(argv: Sequence[str] | None = None) -> int:
    out, err = TextOnly(sys.stdout), TextOnly(sys.stderr)
    with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, err)):
        return _answer(argv)


def _answer(argv: Sequence[str] | None) -> int:
    options = _parse(argv)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        print("kolm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `kolm inspect x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """`kolm run FILE --keyring K TEXT` too: argparse takes no more texts once an option stood between."""
    words = sys.argv[1:] if argv is None else argv
    top = parser(of=next((word for word in words if not word.startswith("-")), ""))
    options, rest = top.parse_known_args(words)
    if rest and hasattr(options, "texts") and not any(word.startswith("-") for word in rest):
        options.texts += rest
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def parser(of: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; `of` a command, it has the options of that one alone."""
    top = argparse.ArgumentParser(prog="kolm", description="A compiler for language-model tasks.")
    top.add_argument("--version", action=_Version, nargs=0, dest=argparse.SUPPRESS, help="print kolm's version")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if of in (None, name):
            options: dict[str, AddOptions] = import_module(f"gpu_runners.cli.{module}").OPTIONS
            options[name](command)
    return top


class _Version(argparse.Action):
    """Looked up when it is asked for: other commands need not wait for the client's libraries."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from gpu_runners.kolm.client import VERSION

        print(f"kolm {VERSION}")
        parser.exit()
