"""`kolm deployments` and `kolm chat`."""

import argparse
import sys
from typing import Any

from gpu_runners.cli.api import Connect, fail, told
from gpu_runners.cli.exit_codes import OK, USAGE
from gpu_runners.cli.listings import print_lines
from gpu_runners.cli.printing import print_json, print_table, when
from gpu_runners.kolm import Client, Deployment, NotFound

DONE = {"rollback": "is rolled back", "drain": "is draining", "start": "takes requests"}


class BadSetting(Exception):
    pass


def ls(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = list(client.deployments.list())
        if as_json:
            print_lines(rows)
            return
        cells = ((r.name, r.state, r.artifact, _canary(r), str((r.base or {}).get("id", "")), r.id) for r in rows)
        none = "There is no deployment. `kolm deployments create NAME ART` makes one."
        print_table(("name", "state", "artifact", "canary", "base", "id"), cells, none=none)

    return told(act, connect)


def create(*, name: str, artifact: str, settings: argparse.Namespace, as_json: bool, connect: Connect) -> int:
    try:
        more = settings_of(settings)
    except BadSetting as error:
        return fail(str(error), code=USAGE)

    def act(client: Client) -> None:
        row = client.deployments.create(name, artifact, **more)
        _say(row, f"{row.name} answers: kolm chat {row.name} 'your text'", as_json=as_json)

    return told(act, connect)


def change(*, deployment: str, settings: argparse.Namespace, as_json: bool, connect: Connect) -> int:
    try:
        more = settings_of(settings)
    except BadSetting as error:
        return fail(str(error), code=USAGE)
    if not more:
        return fail("Nothing to change was given; `kolm deployments set --help` has what can be.", code=USAGE)

    def act(client: Client) -> None:
        row = client.deployments.change(id_of(client, deployment), **more)
        _say(row, f"{row.name} is changed (version {row.version}).", as_json=as_json)

    return told(act, connect)


def promote(*, deployment: str, artifact: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.deployments.promote(id_of(client, deployment), artifact)
        _say(row, f"{row.artifact} answers {row.name} now; `kolm deployments rollback` goes back.", as_json=as_json)

    return told(act, connect)


def verb(*, deployment: str, verb: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        found = id_of(client, deployment)
        if verb == "rm":
            client.deployments.delete(found)
            print_json({"id": found, "deleted": True}) if as_json else print(f"{deployment}: deleted.")
            return
        row = getattr(client.deployments, verb)(found)
        _say(row, f"{row.name} {DONE[verb]}; {row.artifact} answers.", as_json=as_json)

    return told(act, connect)


def chat(model: str, text: str | None, *, more: dict[str, Any], as_json: bool, connect: Connect) -> int:
    """The answer on standard output, as it comes."""
    said = sys.stdin.read() if text is None else text
    if not said.strip():
        return fail("There is no text: give one, or pipe it in.", code=USAGE)

    def act(client: Client) -> int:
        if as_json:
            print_json(client.chats.create(model, said, **more))
            return OK
        for chunk in client.chats.stream(model, said, **more):
            for choice in chunk.get("choices", ()):
                print(choice.get("delta", {}).get("content") or "", end="", flush=True)
        print()
        return OK

    return told(act, connect)


def id_of(client: Client, deployment: str) -> str:
    """Of a name or an id. Raises NotFound."""
    if deployment.startswith("dep_"):
        return deployment
    found = next((row.id for row in client.deployments.list() if row.name == deployment), None)
    if found is None:
        raise NotFound(f"There is no deployment {deployment!r}; `kolm deployments ls` shows those there are.")
    return found


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The API's settings of the command's options. Raises BadSetting."""
    more: dict[str, Any] = {}
    if options.canary:
        artifact, share = _pair(options.canary, "--canary", "art_…=0.05")
        more["canary"] = {"artifact": artifact, "share": share}
    if getattr(options, "no_canary", False):
        more["canary"] = None
    if options.shadow:
        share, usd = _pair(options.shadow, "--shadow", "0.01=2")
        more["shadow"] = {"share": share, "usd_per_day": usd}
    for name in ("idle_minutes", "max_concurrent"):
        if getattr(options, name) is not None:
            more[name] = getattr(options, name)
    if options.pinned:
        more["pinned"] = options.pinned == "yes"
    if options.rollback_on_regression:
        more["drift"] = {"rollback": options.rollback_on_regression == "yes"}
    return more


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    first, sign, second = text.rpartition("=")
    if not (sign and first and second):
        raise BadSetting(f"{option} takes two values with = between, such as {example}.")
    return first, second


def _canary(row: Deployment) -> str:
    return "" if row.canary is None else f"{row.canary['artifact']} {row.canary['share_ppm'] / 10_000:g} %"


def _say(row: Deployment, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(row.raw)
    else:
        print(text)
        print(f"{row.id}  version {row.version}, {when(row.updated_at)} UTC")
