"""`kolm chat`: one message to a deployment or an artifact."""

import argparse
import sys
from typing import Any

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import AddOptions, add_api_options
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client


def _chat_options(chat: argparse.ArgumentParser) -> None:
    chat.add_argument("model", metavar="MODEL", help="a deployment's name, dep_… or art_…")
    chat.add_argument("text", metavar="TEXT", nargs="?", help="the message (default: standard input)")
    chat.add_argument("--max-tokens", type=int, metavar="N", help="longest answer")
    chat.add_argument("--temperature", type=float, metavar="T", help="0 is greedy, and the default")
    chat.add_argument("--json", action="store_true", help="the whole answer as one JSON object, with its usage")
    chat.set_defaults(command=_run_chat)
    add_api_options(chat)


def _run_chat(options: argparse.Namespace) -> int:
    optional = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    more = {name: value for name, value in optional.items() if value is not None}
    return chat(options.model, options.text, more=more, as_json=options.json, connect=connect_of(options))


def chat(model: str, text: str | None, *, more: dict[str, Any], as_json: bool, connect: Connect) -> int:
    """Print the answer on standard output, as it comes."""
    message = sys.stdin.read() if text is None else text
    if not message.strip():
        return fail("There is no text: give one, or pipe it in.", code=USAGE)

    def act(client: Client) -> int:
        if as_json:
            print_json(client.chats.create(model, message, **more))
            return OK
        for chunk in client.chats.stream(model, message, **more):
            for choice in chunk.get("choices", ()):
                print(choice.get("delta", {}).get("content") or "", end="", flush=True)
        print()
        return OK

    return run_command(act, connect)


OPTIONS: dict[str, AddOptions] = {
    "chat": _chat_options,
}
