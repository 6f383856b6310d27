"""The client that a command asks the API with, and errors as a sentence with the exit code that they mean."""

import argparse
from collections.abc import Callable

from gpu_runners.cli.exit_codes import OK, exit_code_of
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, KolmError

Connect = Callable[[], Client]


def connect_of(options: argparse.Namespace) -> Connect:
    """The client is made when it is first needed, so that a wrong login is reported like any other error."""
    return lambda: Client(options.key, options.api, profile=options.profile)


def run_command(act: Callable[[Client], int | None], connect: Connect) -> int:
    """Run `act`; the exit code that it returns (None is 0), or that of what went wrong."""
    try:
        with connect() as client:
            return act(client) or OK
    except KolmError as error:
        return fail(str(error), code=exit_code_of(error))
