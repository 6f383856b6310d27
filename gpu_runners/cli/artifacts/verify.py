"""`kolm verify`: offline, by the verifier that needs nothing but `cryptography`."""

import click

from backend.domain.artifact import kolm_verify
from gpu_runners.cli.options import KEYRING_HELP, PATH, file_argument, json_option


@click.command()
@file_argument
@click.option("--keyring", type=PATH, metavar="FILE", help=KEYRING_HELP)
@json_option("print what was found as JSON")
def verify(*, file: str, keyring: str | None, as_json: bool) -> int:
    more = [*(["--keyring", keyring] if keyring else []), *(["--json"] if as_json else [])]
    return kolm_verify.main([file, *more])
