"""`kolm`: log in, check and compile specs, look at what came of them and what it cost, fetch, trust, verify, run and
measure artifacts, select rows, hear webhooks.

Each command imports what it needs when it runs: `kolm verify` starts without httpx, pydantic or torch.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TextIO, cast

from gpu_runners.cli.account_parser import add_account_parsers
from gpu_runners.cli.compile_parser import add_compile_parsers
from gpu_runners.cli.deployment_parser import add_deployments_parser
from gpu_runners.cli.draft_parser import add_drafts_parser
from gpu_runners.cli.exit_codes import INTERRUPTED, PIPE_CLOSED
from gpu_runners.cli.listing_parser import add_listing_parsers
from gpu_runners.cli.recipe_parser import add_recipe_parsers
from gpu_runners.cli.registry_parser import add_registry_parser
from gpu_runners.cli.select_parser import add_select_parser
from gpu_runners.cli.webhook_parser import add_webhooks_parser
from gpu_runners.terminal_text import TextOnly


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
    top = parser()
    options, rest = top.parse_known_args(argv)
    if rest and hasattr(options, "texts") and not any(word.startswith("-") for word in rest):
        options.texts += rest
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="kolm", description="A compiler for language-model tasks.")
    top.add_argument("--version", action=_Version, nargs=0, dest=argparse.SUPPRESS, help="print kolm's version")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    add_compile_parsers(commands, _api_options)
    add_listing_parsers(commands, _api_options)
    add_account_parsers(commands, _api_options)
    add_webhooks_parser(commands, _api_options)
    add_deployments_parser(commands, _api_options)
    add_drafts_parser(commands, _api_options)
    add_registry_parser(commands, _api_options)
    add_select_parser(commands)
    _artifact_parsers(commands)
    add_recipe_parsers(commands)
    return top


class _Version(argparse.Action):
    """Looked up when it is asked for: other commands need not wait for the client's libraries."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from gpu_runners.kolm.client import VERSION

        print(f"kolm {VERSION}")
        parser.exit()


def _artifact_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    trust = commands.add_parser("trust", help="pin the signing keys of a deployment")
    trust.add_argument("source", metavar="URL|FILE", help="https://kolm.example, or a keyring file")
    trust.add_argument("--keyring", metavar="FILE")
    trust.add_argument("--yes", action="store_true", help="do not ask: the fingerprints were compared already")
    trust.set_defaults(command=_trust)
    verify = commands.add_parser(
        "verify", help="verify offline: exit 0 trusted, 3 intact but untrusted, 1 altered, 2 not a .kolm"
    )
    verify.add_argument("file", metavar="FILE")
    verify.add_argument("--keyring", metavar="FILE", help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(command=_verify)
    inspect = commands.add_parser("inspect", help="show what is in an intact .kolm")
    inspect.add_argument("file", metavar="FILE")
    inspect.add_argument("--json", action="store_true")
    inspect.set_defaults(command=_inspect)
    run = commands.add_parser("run", help="answer texts with a .kolm")
    run.add_argument("file", metavar="FILE")
    run.add_argument("texts", metavar="TEXT", nargs="*")
    run.add_argument(
        "--jsonl", nargs="?", const="-", metavar="FILE", help='lines of {"input": …} (default: standard input)'
    )
    run.add_argument("--json", action="store_true", help="one JSON object a line")
    serve = commands.add_parser("serve", help="serve a .kolm over HTTP")
    serve.add_argument("file", metavar="FILE")
    serve.add_argument(
        "--host", default="127.0.0.1", help="loopback unless you say otherwise: there is no authentication"
    )
    serve.add_argument("--port", type=int, default=8090)
    serve.add_argument(
        "--max-running", type=int, default=16, metavar="N", help="answers generated at a time (json and text tasks)"
    )
    serve.add_argument(
        "--draft", metavar="BASE", help="a base that drafts tokens, where the compiler chose one (or the spec's)"
    )
    for command, act in ((run, _run), (serve, _serve)):
        command.add_argument("--keyring", metavar="FILE")
        command.add_argument(
            "--allow-untrusted", action="store_true", help="run an intact file although nobody vouches for its key"
        )
        command.set_defaults(command=act)


def _api_options(command: argparse.ArgumentParser) -> None:
    """What is not given here comes from the environment, then from the saved log-in (`gpu_runners.kolm.saved`)."""
    command.add_argument("--api", metavar="URL", help="or KOLM_API_URL, or the saved log-in's")
    command.add_argument("--key", metavar="KEY", help="or KOLM_API_KEY, or the saved log-in's")
    command.add_argument("--profile", metavar="NAME", help="which saved log-in (or KOLM_PROFILE; default: default)")


def _trust(options: argparse.Namespace) -> int:
    from gpu_runners.cli.artifacts import trust

    return trust(options.source, keyring=options.keyring, yes=options.yes)


def _verify(options: argparse.Namespace) -> int:
    from backend.domain.artifact import kolm_verify

    arguments = [
        options.file,
        *(["--keyring", options.keyring] if options.keyring else []),
        *(["--json"] if options.json else []),
    ]
    return kolm_verify.main(arguments)


def _inspect(options: argparse.Namespace) -> int:
    from gpu_runners.cli.artifacts import inspect

    return inspect(options.file, as_json=options.json)


def _run(options: argparse.Namespace) -> int:
    from gpu_runners.cli.artifacts import run

    return run(
        options.file,
        options.texts,
        jsonl=options.jsonl,
        as_json=options.json,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )


def _serve(options: argparse.Namespace) -> int:
    from gpu_runners.cli.artifacts import serve

    return serve(
        options.file,
        host=options.host,
        port=options.port,
        max_running=options.max_running,
        draft=options.draft,
        keyring=options.keyring,
        allow_untrusted=options.allow_untrusted,
    )
