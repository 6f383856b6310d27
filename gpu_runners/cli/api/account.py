"""`kolm login`, `logout`, `whoami`, and `kolm keys`: list, make and revoke API keys."""

import getpass
import sys
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_members, print_table, when
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.options import json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import ApiKey, Client, Forbidden, KolmError
from gpu_runners.kolm import saved as logins

keys = Actions("keys")


@click.command()
@click.option("--api", metavar="URL", help="do not ask for the address")
@click.option("--key", metavar="KEY", help="do not ask for the key; - reads it from standard input")
@click.option("--profile", default=logins.DEFAULT_PROFILE, metavar="NAME", help="keep it under this name")
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


@click.command()
@click.option("--profile", default=logins.DEFAULT_PROFILE, metavar="NAME", help="which saved login")
def logout(*, profile: str) -> int:
    try:
        was_there = logins.forget(profile)
    except KolmError as error:
        return fail(str(error))
    print(f"{profile}: forgotten." if was_there else f"There is no saved login {profile!r}.")
    return OK


@click.command()
@json_option("print it as JSON")
@api_options
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


@keys.command("ls", help="All keys, newest first.")
@json_option()
@api_options
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


@keys.command("create", help="A new key; its secret is shown this once.")
@click.argument("name", metavar="NAME", help="what it is for")
@click.option("--preset", metavar="NAME", help="command_line, ci, serving, read_only or everything")
@click.option("--scopes", metavar="SCOPES", help="with commas between; all (default) is all of the asking key's")
@click.option("--expires", metavar="TIME", help="2026-12-31T00:00:00Z; default: never")
@click.option("--test", "is_test", is_flag=True, help="an sk_test_ key")
@json_option()
@api_options
def create_key(
    *,
    name: str,
    scopes: str | None,
    preset: str | None,
    expires: str | None,
    is_test: bool,
    as_json: bool,
    connect: Connect,
) -> int:
    if preset is not None and scopes is not None:
        raise click.UsageError("--preset and --scopes exclude each other: give one of them.")

    def act(client: Client) -> int | None:
        wanted: list[str] | None
        if preset is not None:
            wanted = None
        elif scopes is None or scopes == "all":
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


@keys.command("revoke", help="From now on this key opens nothing.")
@click.argument("id", metavar="KEY", help="key_…")
@json_option()
@api_options
def revoke_key(*, id: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        key = client.api_keys.revoke(id)
        print_json(key.raw) if as_json else print(f"{key.id} {key.name}: revoked.")

    return run_command(act, connect)
