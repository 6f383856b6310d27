"""`kolm login`, `logout`, `whoami`, and `kolm keys`: list, make and revoke API keys."""

import argparse
import getpass
import sys
from typing import Any

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json, print_lines, print_members, print_table, when
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import AddOptions, add_api_options
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import ApiKey, Client, Forbidden, KolmError
from gpu_runners.kolm import saved as logins


def _login_options(login: argparse.ArgumentParser) -> None:
    login.add_argument("--api", metavar="URL", help="do not ask for the address")
    login.add_argument("--key", metavar="KEY", help="do not ask for the key; - reads it from standard input")
    login.add_argument("--profile", default="default", metavar="NAME", help="keep it under this name")
    login.set_defaults(command=_run_login)


def _logout_options(logout: argparse.ArgumentParser) -> None:
    logout.add_argument("--profile", default="default", metavar="NAME")
    logout.set_defaults(command=_run_logout)


def _whoami_options(whoami: argparse.ArgumentParser) -> None:
    whoami.add_argument("--json", action="store_true")
    whoami.set_defaults(command=_run_whoami)
    add_api_options(whoami)


def _keys_options(keys: argparse.ArgumentParser) -> None:
    actions = keys.add_subparsers(required=True, metavar="ACTION")
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
        add_api_options(command)


def _run_login(options: argparse.Namespace) -> int:
    return login(api=options.api, key=options.key, profile=options.profile)


def _run_logout(options: argparse.Namespace) -> int:
    return logout(profile=options.profile)


def _run_whoami(options: argparse.Namespace) -> int:
    return whoami(as_json=options.json, connect=connect_of(options))


def _run_keys(options: argparse.Namespace) -> int:
    return list_keys(as_json=options.json, connect=connect_of(options))


def _run_create_key(options: argparse.Namespace) -> int:
    return create_key(
        options.name,
        scopes=options.scopes,
        preset=options.preset,
        expires=options.expires,
        is_test=options.test,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_revoke_key(options: argparse.Namespace) -> int:
    return revoke_key(options.id, as_json=options.json, connect=connect_of(options))


def login(*, api: str | None, key: str | None, profile: str) -> int:
    """Nothing is kept before the installation has accepted the key."""
    try:
        known = logins.load(profile)
        url = _address(api, known.url if known else logins.DEFAULT_URL)
        secret = _secret(key)
    except KolmError as error:
        return fail(str(error))
    if not url.startswith(("http://", "https://")):
        return fail(f"{url!r} is no address; it begins with https:// (or http:// on this machine).", code=USAGE)
    if not secret:
        return fail("An API key is needed to log in; create one on the console's page API keys.", code=USAGE)

    def act(client: Client) -> None:
        try:
            tenant = client.tenant.get()
            who = f"{tenant.name} ({tenant.id})"
        except Forbidden as refused:
            if refused.code != "missing_scope":
                raise
            who = "a key that may not see its team's name"
        path = logins.save(profile, logins.Profile(url=client.base_url, key=secret))
        name = "" if profile == logins.DEFAULT_PROFILE else f" as {profile!r}"
        print(f"Logged in to {client.base_url} as {who}; kept in {path}{name}.")

    return run_command(act, lambda: Client(secret, url))


def logout(*, profile: str) -> int:
    try:
        was_there = logins.forget(profile)
    except KolmError as error:
        return fail(str(error))
    print(f"{profile}: forgotten." if was_there else f"There is no saved login {profile!r}.")
    return OK


def whoami(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        tenant, key = client.tenant.get(), own_key(client)
        members: dict[str, Any] = {"tenant": tenant.id, "name": tenant.name, "api": client.base_url}
        if key is not None:
            members |= {"key": key.id, "key_name": key.name, "scopes": list(key.scopes)}
        print_json(members) if as_json else print_members(members)

    return run_command(act, connect)


def own_key(client: Client) -> ApiKey | None:
    """The key that asks, where it may list keys."""
    secret = client.key or ""
    try:
        keys = client.api_keys.list()
        return next((key for key in keys if secret.startswith(key.prefix) and secret.endswith(key.last4)), None)
    except Forbidden:
        return None


def _address(option: str | None, known: str) -> str:
    if option or not sys.stdin.isatty():
        return (option or known).rstrip("/")
    return (input(f"Address of kolm [{known}]: ").strip() or known).rstrip("/")


def _secret(option: str | None) -> str:
    """Typed unseen, so that it is in no history and on no screen."""
    if option == "-" or (option is None and not sys.stdin.isatty()):
        return sys.stdin.readline().strip()
    return (option if option is not None else getpass.getpass("API key (not shown): ")).strip()


def list_keys(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        keys = list(client.api_keys.list())
        if as_json:
            print_lines(keys)
            return
        cells = (
            (
                key.id,
                key.name,
                f"{key.prefix}…{key.last4}",
                "revoked" if key.revoked_at else "live" if key.live else "test",
                when(key.last_used_at) or "never",
                when(key.expires_at) or "never",
            )
            for key in keys
        )
        print_table(("id", "name", "key", "", "last used", "expires"), cells, none="There is no key.")

    return run_command(act, connect)


def create_key(
    name: str, *, scopes: str, preset: str | None, expires: str | None, is_test: bool, as_json: bool, connect: Connect
) -> int:
    def act(client: Client) -> int | None:
        wanted: list[str] | None
        if preset is not None:
            wanted = None
        elif scopes == "all":
            key = own_key(client)
            if key is None:
                return fail("this key may not list keys, so that its scopes are unknown; name them with --scopes.")
            wanted = list(key.scopes)
        else:
            wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
        made = client.api_keys.create(name, scopes=wanted, preset=preset, live=not is_test, expires_at=expires)
        if as_json:
            print_json(made.raw)
        else:
            print(f"{made.id} {made.name}\n{made.secret}\nThis is shown once: put it where it belongs now.")
        return None

    return run_command(act, connect)


def revoke_key(id: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        key = client.api_keys.revoke(id)
        print_json(key.raw) if as_json else print(f"{key.id} {key.name}: revoked.")

    return run_command(act, connect)


OPTIONS: dict[str, AddOptions] = {
    "login": _login_options,
    "logout": _logout_options,
    "whoami": _whoami_options,
    "keys": _keys_options,
}
