"""The options of `kolm login`, `logout`, `whoami`, `keys`, `usage`, `bill` and `budgets`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_runners.cli.amounts import count_of, microusd_of

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]
GROUPS = ("day", "step", "sku", "api_key", "compile")


def add_account_parsers(commands: "Actions", api_options: Options) -> None:
    _login_parsers(commands, api_options)
    _key_parsers(commands, api_options)
    usage = commands.add_parser("usage", help="what was used, and what it cost")
    usage.add_argument("--by", choices=GROUPS, default="day", help="what a line is (default: day)")
    usage.add_argument("--from", dest="start", metavar="DAY", help="2026-11-01 or a time; default: the month's begin")
    usage.add_argument("--to", dest="end", metavar="DAY", help="not in it any more; default: now")
    usage.add_argument("--csv", action="store_true", help="print the API's CSV")
    usage.add_argument("--json", action="store_true", help="print the API's answer")
    usage.set_defaults(command=_run_usage)
    bill = commands.add_parser("bill", help="this month's bill so far, or that of one compile")
    bill.add_argument("compile", metavar="CMP", nargs="?", help="cmp_…")
    bill.add_argument("--json", action="store_true", help="print the API's answer")
    bill.set_defaults(command=_run_bill)
    for command in (usage, bill):
        api_options(command)
    _budget_parsers(commands, api_options)


def _login_parsers(commands: "Actions", api_options: Options) -> None:
    login = commands.add_parser("login", help="ask for address and API key, check them, and keep them for this user")
    login.add_argument("--api", metavar="URL", help="do not ask for the address")
    login.add_argument("--key", metavar="KEY", help="do not ask for the key; - reads it from standard input")
    login.add_argument("--profile", default="default", metavar="NAME", help="keep it under this name")
    login.set_defaults(command=_run_login)
    logout = commands.add_parser("logout", help="forget a saved log-in; the key itself stays valid")
    logout.add_argument("--profile", default="default", metavar="NAME")
    logout.set_defaults(command=_run_logout)
    whoami = commands.add_parser("whoami", help="which tenant and key this is, and of which deployment")
    whoami.add_argument("--json", action="store_true")
    whoami.set_defaults(command=_run_whoami)
    api_options(whoami)


def _key_parsers(commands: "Actions", api_options: Options) -> None:
    actions = commands.add_parser("keys", help="API keys").add_subparsers(required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="all keys, newest first")
    create = actions.add_parser("create", help="a new key; its secret is shown this once")
    create.add_argument("name", metavar="NAME")
    which = create.add_mutually_exclusive_group()
    which.add_argument("--preset", metavar="NAME", help="command_line, ci, serving, read_only or everything")
    which.add_argument("--scopes", default="all", help="with commas between; all (default) is all of the asking key's")
    create.add_argument("--expires", metavar="TIME", help="2026-12-31T00:00:00Z; default: never")
    create.add_argument("--test", action="store_true", help="an sk_test_ key")
    revoke = actions.add_parser("revoke", help="from now on this key opens nothing")
    revoke.add_argument("id", metavar="KEY", help="key_…")
    for command, act in ((ls, _run_keys), (create, _run_create_key), (revoke, _run_revoke_key)):
        command.add_argument("--json", action="store_true", help="print the API's answer")
        command.set_defaults(command=act)
        api_options(command)


def _budget_parsers(commands: "Actions", api_options: Options) -> None:
    actions = commands.add_parser("budgets", help="what a month may cost").add_subparsers(
        required=True, metavar="ACTION"
    )
    ls = actions.add_parser("ls", help="all budgets, and how much of each is used")
    ls.add_argument("--limit", type=count_of, default=100, metavar="N")
    put = actions.add_parser("set", help="give the account, or one API key, a budget for each calendar month (UTC)")
    put.add_argument("usd", type=microusd_of, metavar="USD")
    put.add_argument("--notify-only", action="store_true", help="tell at 50, 80 and 100 %%, and stop nothing")
    put.add_argument("--of-key", metavar="KEY", help="key_…: of this API key alone")
    rm = actions.add_parser("rm", help="remove a budget")
    rm.add_argument("id", metavar="ID")
    for command, act in ((ls, _run_budgets), (put, _run_set_budget), (rm, _run_remove_budget)):
        command.add_argument("--json", action="store_true", help="print the API's answer")
        command.set_defaults(command=act)
        api_options(command)


def _run_login(options: argparse.Namespace) -> int:
    from gpu_runners.cli.login import login

    return login(api=options.api, key=options.key, profile=options.profile)


def _run_logout(options: argparse.Namespace) -> int:
    from gpu_runners.cli.login import logout

    return logout(profile=options.profile)


def _run_whoami(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.login import whoami

    return whoami(as_json=options.json, connect=connect_of(options))


def _run_keys(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.keys import ls

    return ls(as_json=options.json, connect=connect_of(options))


def _run_create_key(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.keys import create

    return create(
        options.name,
        scopes=options.scopes,
        preset=options.preset,
        expires=options.expires,
        is_test=options.test,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_revoke_key(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.keys import revoke

    return revoke(options.id, as_json=options.json, connect=connect_of(options))


def _run_usage(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.money import usage

    return usage(
        options.by,
        start=options.start,
        end=options.end,
        as_csv=options.csv,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_bill(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.money import bill

    return bill(options.compile, as_json=options.json, connect=connect_of(options))


def _run_budgets(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.money import budgets

    return budgets(limit=options.limit, as_json=options.json, connect=connect_of(options))


def _run_set_budget(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.money import set_budget

    return set_budget(
        options.usd,
        of_key=options.of_key,
        notify_only=options.notify_only,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_remove_budget(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.money import remove_budget

    return remove_budget(options.id, as_json=options.json, connect=connect_of(options))
