"""`kolm keys`: list, make and revoke API keys."""

from gpu_runners.cli.api import Connect, fail, told
from gpu_runners.cli.listings import print_lines
from gpu_runners.cli.login import own_key
from gpu_runners.cli.printing import print_json, print_table, when
from gpu_runners.kolm import Client


def ls(*, as_json: bool, connect: Connect) -> int:
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

    return told(act, connect)


def create(
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

    return told(act, connect)


def revoke(id: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        key = client.api_keys.revoke(id)
        print_json(key.raw) if as_json else print(f"{key.id} {key.name}: revoked.")

    return told(act, connect)
