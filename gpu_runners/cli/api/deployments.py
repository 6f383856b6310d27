"""`kolm deployments`."""

import argparse
from typing import TYPE_CHECKING, Any

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, when
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.cli.options import AddOptions, add_api_options
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, Deployment, NotFound

if TYPE_CHECKING:
    from gpu_runners.cli.options import Actions


VERBS = {
    "rollback": "the artifact from before the last promotion answers again",
    "drain": "no new requests; those under way end",
    "start": "take requests again after a drain",
    "rm": "take the name away; artifacts stay",
}
DONE = {"rollback": "is rolled back", "drain": "is draining", "start": "takes requests"}


def _deployments_options(deployments: argparse.ArgumentParser) -> None:
    actions = deployments.add_subparsers(required=True, metavar="ACTION")
    commands = [_add_ls(actions), _add_create(actions), _add_set(actions), _add_promote(actions)]
    commands += [_add_verb(actions, name, text) for name, text in VERBS.items()]
    for command in commands:
        command.add_argument("--json", action="store_true", help="print what the API answers, one object a line")
        add_api_options(command)


def _add_ls(actions: "Actions") -> argparse.ArgumentParser:
    ls = actions.add_parser("ls", help="all deployments, newest first")
    ls.set_defaults(command=_run_ls)
    return ls


def _add_create(actions: "Actions") -> argparse.ArgumentParser:
    create = actions.add_parser("create", help="let an artifact answer under a name")
    create.add_argument("name", metavar="NAME", help="what requests name as model")
    create.add_argument("artifact", metavar="ART", help="art_…, of a json or text task or on a causal base")
    _add_settings(create)
    create.set_defaults(command=_run_create)
    return create


def _add_set(actions: "Actions") -> argparse.ArgumentParser:
    change = actions.add_parser("set", help="change what is given; the rest stays")
    change.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    _add_settings(change)
    change.add_argument("--no-canary", action="store_true", help="take the canary away")
    change.set_defaults(command=_run_set)
    return change


def _add_promote(actions: "Actions") -> argparse.ArgumentParser:
    promote = actions.add_parser("promote", help="the canary answers everything from here on")
    promote.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    promote.add_argument("--artifact", metavar="ART", help="this one instead of the canary")
    promote.set_defaults(command=_run_promote)
    return promote


def _add_verb(actions: "Actions", name: str, text: str) -> argparse.ArgumentParser:
    command = actions.add_parser(name, help=text)
    command.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    command.set_defaults(command=_run_verb, verb=name)
    return command


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--canary", metavar="ART=SHARE", help="art_…=0.05: this one answers one request in twenty")
    command.add_argument("--idle-minutes", type=int, metavar="N", help="then servers may unload it; 0: as they see fit")
    command.add_argument("--pinned", choices=["yes", "no"], help="whether servers keep it loaded")
    command.add_argument("--max-concurrent", type=int, metavar="N", help="requests at once on one server")
    command.add_argument(
        "--shadow", metavar="SHARE=USD", help="0.01=2: one in a hundred goes to the teacher too, up to $2 a day"
    )
    command.add_argument("--rollback-on-regression", choices=["yes", "no"], help="by itself, once one is found")


def _run_ls(options: argparse.Namespace) -> int:
    return ls(as_json=options.json, connect=connect_of(options))


def _run_create(options: argparse.Namespace) -> int:
    return create(
        name=options.name,
        artifact=options.artifact,
        settings=options,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_set(options: argparse.Namespace) -> int:
    return change(deployment=options.deployment, settings=options, as_json=options.json, connect=connect_of(options))


def _run_promote(options: argparse.Namespace) -> int:
    return promote(
        deployment=options.deployment, artifact=options.artifact, as_json=options.json, connect=connect_of(options)
    )


def _run_verb(options: argparse.Namespace) -> int:
    return verb(deployment=options.deployment, verb=options.verb, as_json=options.json, connect=connect_of(options))


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

    return run_command(act, connect)


def create(*, name: str, artifact: str, settings: argparse.Namespace, as_json: bool, connect: Connect) -> int:
    try:
        more = settings_of(settings)
    except BadSetting as error:
        return fail(str(error), code=USAGE)

    def act(client: Client) -> None:
        row = client.deployments.create(name, artifact, **more)
        _say(row, f"{row.name} answers: kolm chat {row.name} 'your text'", as_json=as_json)

    return run_command(act, connect)


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

    return run_command(act, connect)


def promote(*, deployment: str, artifact: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.deployments.promote(id_of(client, deployment), artifact)
        _say(row, f"{row.artifact} answers {row.name} now; `kolm deployments rollback` goes back.", as_json=as_json)

    return run_command(act, connect)


def verb(*, deployment: str, verb: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        deployment_id = id_of(client, deployment)
        if verb == "rm":
            client.deployments.delete(deployment_id)
            print_json({"id": deployment_id, "deleted": True}) if as_json else print(f"{deployment}: deleted.")
            return
        row = getattr(client.deployments, verb)(deployment_id)
        _say(row, f"{row.name} {DONE[verb]}; {row.artifact} answers.", as_json=as_json)

    return run_command(act, connect)


def id_of(client: Client, deployment: str) -> str:
    """The id of a deployment, from its name or its id. Raises NotFound."""
    if deployment.startswith("dep_"):
        return deployment
    deployment_id = next((row.id for row in client.deployments.list() if row.name == deployment), None)
    if deployment_id is None:
        raise NotFound(f"There is no deployment {deployment!r}; `kolm deployments ls` shows those there are.")
    return deployment_id


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


OPTIONS: dict[str, AddOptions] = {
    "deployments": _deployments_options,
}
