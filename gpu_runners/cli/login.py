"""`kolm login`, `logout`, `whoami`."""

import getpass
import sys
from typing import Any

from gpu_runners.cli.api import Connect, fail, told
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.printing import print_json, print_members
from gpu_runners.kolm import ApiKey, Client, Forbidden, KolmError
from gpu_runners.kolm import saved as logins


def login(*, api: str | None, key: str | None, profile: str) -> int:
    """Nothing is kept before the deployment has accepted the key."""
    try:
        known = logins.load(profile)
        url = _address(api, known.url if known else logins.DEFAULT_URL)
        secret = _secret(key)
    except KolmError as error:
        return fail(str(error))
    if not url.startswith(("http://", "https://")):
        return fail(f"{url!r} is no address; it begins with https:// (or http:// on this machine).", code=USAGE)
    if not secret:
        return fail("there is no log-in without a key; the console's page API keys makes one.", code=USAGE)

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

    return told(act, lambda: Client(secret, url))


def logout(*, profile: str) -> int:
    try:
        was_there = logins.forget(profile)
    except KolmError as error:
        return fail(str(error))
    print(f"{profile}: forgotten." if was_there else f"There is no saved log-in {profile!r}.")
    return OK


def whoami(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        tenant, key = client.tenant.get(), own_key(client)
        found: dict[str, Any] = {"tenant": tenant.id, "name": tenant.name, "api": client.base_url}
        if key is not None:
            found |= {"key": key.id, "key_name": key.name, "scopes": list(key.scopes)}
        print_json(found) if as_json else print_members(found)

    return told(act, connect)


def own_key(client: Client) -> ApiKey | None:
    """The key that asks, where it may list keys."""
    secret = client.key or ""
    try:
        keys = client.api_keys.list()
        return next((key for key in keys if secret.startswith(key.prefix) and secret.endswith(key.last4)), None)
    except Forbidden:
        return None


def _address(given: str | None, known: str) -> str:
    if given or not sys.stdin.isatty():
        return (given or known).rstrip("/")
    return (input(f"Address of kolm [{known}]: ").strip() or known).rstrip("/")


def _secret(given: str | None) -> str:
    """Typed unseen, so that it is in no history and on no screen."""
    if given == "-" or (given is None and not sys.stdin.isatty()):
        return sys.stdin.readline().strip()
    return (given if given is not None else getpass.getpass("API key (not shown): ")).strip()
