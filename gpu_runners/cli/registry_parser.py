"""The options of `kolm registry`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]


def add_registry_parser(commands: "Actions", api_options: Options) -> None:
    registry = commands.add_parser("registry", help="epochs of structural recipes that many tenants share")
    actions = registry.add_subparsers(required=True, metavar="ACTION")
    _verify(actions)
    for command in (_list(actions), _pull(actions), _contributions(actions), _withdraw(actions)):
        command.add_argument("--json", action="store_true", help="print what the API answers, one object a line")
        api_options(command)


def _list(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("list", help="the epochs there are, newest first")
    command.set_defaults(command=_run_list)
    return command


def _pull(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("pull", help="download an epoch and verify it; exit codes as of verify")
    command.add_argument("epoch", metavar="EPOCH", nargs="?", help="epo_… or its number (default: the newest)")
    command.add_argument("-o", "--output", metavar="FILE", help="default: registry-N.epoch.json")
    command.add_argument("--keyring", metavar="FILE", help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    command.set_defaults(command=_run_pull)
    return command


def _verify(actions: "Actions") -> None:
    command = actions.add_parser(
        "verify",
        help="verify an epoch or a proof offline: exit 0 trusted, 3 intact but untrusted, 1 altered or none",
    )
    command.add_argument("file", metavar="FILE")
    command.add_argument("--after", metavar="FILE", help="an earlier epoch that this one must follow at once")
    command.add_argument("--entries", action="store_true", help="print the entries too")
    command.add_argument("--keyring", metavar="FILE", help="default: $KOLM_KEYRING or ~/.config/kolm/keyring.json")
    command.set_defaults(command=_run_verify)


def _contributions(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("contributions", help="everything that this workspace has in the registry")
    command.set_defaults(command=_run_contributions)
    return command


def _withdraw(actions: "Actions") -> argparse.ArgumentParser:
    command = actions.add_parser("withdraw", help="take all of it back; the next epoch counts without it")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(command=_run_withdraw)
    return command


def _run_list(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.registry import ls

    return ls(as_json=options.json, connect=connect_of(options))


def _run_pull(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.registry import pull

    return pull(
        options.epoch,
        output=options.output,
        keyring=options.keyring,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_verify(options: argparse.Namespace) -> int:
    from gpu_runners.cli.registry import verify

    return verify(options.file, after=options.after, keyring=options.keyring, with_entries=options.entries)


def _run_contributions(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.registry import contributions

    return contributions(as_json=options.json, connect=connect_of(options))


def _run_withdraw(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.registry import withdraw

    return withdraw(yes=options.yes, as_json=options.json, connect=connect_of(options))
