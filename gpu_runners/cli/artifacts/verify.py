"""`kolm verify`: offline, by the verifier that needs nothing but `cryptography`."""

import argparse

from backend.domain.artifact import kolm_verify
from gpu_runners.cli.options import AddOptions


def _verify_options(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("file", metavar="FILE")
    verify.add_argument("--keyring", metavar="FILE", help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(command=_verify)


def _verify(options: argparse.Namespace) -> int:
    arguments = [
        options.file,
        *(["--keyring", options.keyring] if options.keyring else []),
        *(["--json"] if options.json else []),
    ]
    return kolm_verify.main(arguments)


OPTIONS: dict[str, AddOptions] = {
    "verify": _verify_options,
}
