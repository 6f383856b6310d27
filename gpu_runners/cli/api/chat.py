"""`kolm chat`: one message to a deployment or an artifact."""

import sys

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client


@click.command()
@click.argument("model", metavar="MODEL", help="a deployment's name, dep_… or art_…")
@click.argument("text", metavar="[TEXT]", required=False, help="the message (default: standard input)")
@click.option("--max-tokens", type=int, metavar="N", help="longest answer")
@click.option("--temperature", type=float, metavar="T", help="0 is greedy, and the default")
@json_option("the whole answer as one JSON object, with its usage")
@api_options
def chat(
    *, model: str, text: str | None, max_tokens: int | None, temperature: float | None, as_json: bool, connect: Connect
) -> int:
    """Print the answer on standard output, as it comes."""
    optional = {"max_tokens": max_tokens, "temperature": temperature}
    more = {name: value for name, value in optional.items() if value is not None}
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
