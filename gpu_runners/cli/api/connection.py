"""The client that a command asks the API with, and errors as a sentence with the exit code that they mean."""

import functools
from collections.abc import Callable
from typing import Any

import click

from gpu_runners.cli.exit_codes import OK, exit_code_of
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, KolmError

Connect = Callable[[], Client]


def api_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of the API; the command gets `connect`. What they leave out comes from the environment, then from
    the saved login (`gpu_runners.kolm.saved`)."""

    @click.option("--api", metavar="URL", help="or KOLM_API_URL, or the saved login's")
    @click.option("--key", metavar="KEY", help="or KOLM_API_KEY, or the saved login's")
    @click.option("--profile", metavar="NAME", help="which saved login (or KOLM_PROFILE; default: default)")
    @functools.wraps(command)
    def with_connection(*, api: str | None, key: str | None, profile: str | None, **options: Any) -> int:
        # made when it is first needed, so that a wrong login is reported like any other error
        return command(connect=lambda: Client(key, api, profile=profile), **options)

    return with_connection


def run_command(act: Callable[[Client], int | None], connect: Connect) -> int:
    """Run `act`; the exit code that it returns (None is 0), or that of what went wrong."""
    try:
        with connect() as client:
            return act(client) or OK
    except KolmError as error:
        return fail(str(error), code=exit_code_of(error))
