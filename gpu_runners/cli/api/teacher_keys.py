"""`kolm teacher-keys`: your keys for teachers. A secret is typed unseen or piped in and never an argument, for
arguments are in the shell's history and in every list of processes."""

import getpass
import sys

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, when
from gpu_runners.cli.exit_codes import FAILED, OK, USAGE
from gpu_runners.cli.options import json_option
from gpu_runners.cli.terminal import fail, no_such
from gpu_runners.kolm import Client, KolmError, NotFound

teacher_keys = Actions("teacher-keys")
KEY_AS_ARGUMENT = (
    "A key is never an argument: type it when asked, or pipe it in. If this was one, your shell's history has it now."
)
KEY_HELP = "its name or tk_…"


@teacher_keys.command("ls", help="All keys, newest first; never their secrets.")
@json_option("one JSON object a line")
@api_options
def ls(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = list(client.teacher_keys.list())
        if as_json:
            print_lines(rows)
            return
        cells = ((row.id, row.name, f"…{row.last4}" if row.last4 else "", when(row.created_at)) for row in rows)
        none = "There is no key. `kolm teacher-keys add NAME` stores one."
        print_table(("id", "name", "ends in", "stored"), cells, none=none)

    return run_command(act, connect)


@teacher_keys.command(
    "add",
    help="Store a key: it is asked for unseen, or read from standard input.",
    context_settings={"allow_extra_args": True},
)
@click.argument("name", metavar="NAME", help="what you call it")
@json_option()
@api_options
@click.pass_context
def add(context: click.Context, /, *, name: str, as_json: bool, connect: Connect) -> int:
    if context.args:  # most likely the key: click would repeat it on the screen
        return fail(KEY_AS_ARGUMENT, code=USAGE)
    secret = getpass.getpass("Key (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
    if not secret.strip():
        return fail("There is no key: type it when asked, or pipe it in.", code=USAGE)

    def act(client: Client) -> None:
        row = client.teacher_keys.create(name, secret.strip())
        if as_json:
            print_json(row.raw)
        else:
            print(f"{row.id} {row.name} is stored, sealed. In a spec: teacher: {{api_key: {row.id}}}")

    return run_command(act, connect)


@teacher_keys.command("test", help="Ask the provider for its models with a key: exit 0 where it is accepted, else 1.")
@click.argument("teacher_key", metavar="KEY", help=KEY_HELP)
@click.argument("base_url", metavar="BASE_URL", help="the provider's address up to /v1, as in a spec")
@json_option()
@api_options
def test(*, teacher_key: str, base_url: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> int:
        verdict = client.teacher_keys.test(_id_of(client, teacher_key), base_url)
        if as_json:
            print_json(verdict.raw)
        else:
            print(f"{teacher_key}: {verdict.detail}", file=sys.stdout if verdict.passed else sys.stderr)
        return OK if verdict.passed else FAILED

    return run_command(act, connect)


@teacher_keys.command("rm", help="Forget a key; compiles that still need it end as failed and say so.")
@click.argument("teacher_key", metavar="KEY", help=KEY_HELP)
@json_option("print its id as JSON")
@api_options
def rm(*, teacher_key: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        key_id = _id_of(client, teacher_key)
        client.teacher_keys.delete(key_id)
        print_json({"id": key_id, "deleted": True}) if as_json else print(f"{teacher_key}: forgotten.")

    return run_command(act, connect)


def _id_of(client: Client, key: str) -> str:
    """The id of a key, from its name or its id. Raises NotFound, and KolmError where two have the name."""
    if key.startswith("tk_"):
        return key
    id_of_name = [(row.name, row.id) for row in client.teacher_keys.list()]
    ids = [id for name, id in id_of_name if name == key]
    if not ids:
        raise NotFound(no_such("teacher key", key, [name for name, _ in id_of_name]))
    if len(ids) > 1:
        raise KolmError(f"{len(ids)} teacher keys are called {key!r}; name one by its id: {', '.join(ids)}.")
    return ids[0]
