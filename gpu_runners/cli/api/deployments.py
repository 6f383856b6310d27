"""`kolm deployments`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, when
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.cli.options import json_option
from gpu_runners.cli.terminal import fail, no_such
from gpu_runners.kolm import Client, Deployment, NotFound

EACH = "print what the API answers, one object a line"
DEP_HELP = "its name or dep_…"
VERBS = {
    "rollback": "The artifact from before the last promotion answers again.",
    "drain": "No new requests; those under way end.",
    "start": "Take requests again after a drain.",
    "rm": "Take the name away; artifacts stay.",
}
DONE = {"rollback": "is rolled back", "drain": "is draining", "start": "takes requests"}


deployments = Actions("deployments")
Act = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a deployment as they are typed; None is left as it is."""

    canary: str | None
    idle_minutes: int | None
    pinned: str | None
    max_concurrent: int | None
    shadow: str | None
    rollback_on_regression: str | None


def _settings_options(command: Act) -> Act:
    """The command gets `settings`."""
    yes_or_no = click.Choice(["yes", "no"])

    @click.option("--canary", metavar="ART=SHARE", help="art_…=0.05: this one answers one request in twenty")
    @click.option("--idle-minutes", type=int, metavar="N", help="then servers may unload it; 0: as they see fit")
    @click.option("--pinned", type=yes_or_no, help="whether servers keep it loaded")
    @click.option("--max-concurrent", type=int, metavar="N", help="requests at once on one server")
    @click.option(
        "--shadow", metavar="SHARE=USD", help="0.01=2: one in a hundred goes to the teacher too, up to $2 a day"
    )
    @click.option("--rollback-on-regression", type=yes_or_no, help="by itself, once one is found")
    @functools.wraps(command)
    def with_settings(
        *, canary: str | None, idle_minutes: int | None, pinned: str | None, max_concurrent: int | None,
        shadow: str | None, rollback_on_regression: str | None, **options: Any,
    ) -> int:  # fmt: skip
        settings = Settings(
            canary=canary, idle_minutes=idle_minutes, pinned=pinned, max_concurrent=max_concurrent, shadow=shadow,
            rollback_on_regression=rollback_on_regression,
        )  # fmt: skip
        return command(settings=settings, **options)

    return with_settings


class BadSetting(Exception):
    pass


@deployments.command("ls", help="All deployments, newest first.")
@json_option(EACH)
@api_options
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


@deployments.command("create", help="Let an artifact answer under a name.")
@click.argument("name", metavar="NAME", help="what requests name as model")
@click.argument("artifact", metavar="ART", help="art_…, of a json or text task or on a causal base")
@_settings_options
@json_option(EACH)
@api_options
def create(*, name: str, artifact: str, settings: Settings, as_json: bool, connect: Connect) -> int:
    try:
        more = settings_of(settings)
    except BadSetting as error:
        return fail(str(error), code=USAGE)

    def act(client: Client) -> None:
        row = client.deployments.create(name, artifact, **more)
        _say(row, f"{row.name} answers: kolm chat {row.name} 'your text'", as_json=as_json)

    return run_command(act, connect)


@deployments.command("set", help="Change what is given; the rest stays.")
@click.argument("deployment", metavar="DEP", help=DEP_HELP)
@_settings_options
@click.option("--no-canary", is_flag=True, help="take the canary away")
@json_option(EACH)
@api_options
def change(*, deployment: str, settings: Settings, no_canary: bool, as_json: bool, connect: Connect) -> int:
    try:
        more = settings_of(settings) | ({"canary": None} if no_canary else {})
    except BadSetting as error:
        return fail(str(error), code=USAGE)
    if not more:
        return fail("Nothing to change was given; `kolm deployments set --help` has what can be.", code=USAGE)

    def act(client: Client) -> None:
        row = client.deployments.change(id_of(client, deployment), **more)
        _say(row, f"{row.name} is changed (version {row.version}).", as_json=as_json)

    return run_command(act, connect)


@deployments.command("promote", help="The canary answers everything from here on.")
@click.argument("deployment", metavar="DEP", help=DEP_HELP)
@click.option("--artifact", metavar="ART", help="this one instead of the canary")
@json_option(EACH)
@api_options
def promote(*, deployment: str, artifact: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.deployments.promote(id_of(client, deployment), artifact)
        _say(row, f"{row.artifact} answers {row.name} now; `kolm deployments rollback` goes back.", as_json=as_json)

    return run_command(act, connect)


def _act(verb: str, deployment: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        deployment_id = id_of(client, deployment)
        if verb == "rm":
            client.deployments.delete(deployment_id)
            print_json({"id": deployment_id, "deleted": True}) if as_json else print(f"{deployment}: deleted.")
            return
        row = getattr(client.deployments, verb)(deployment_id)
        _say(row, f"{row.name} {DONE[verb]}; {row.artifact} answers.", as_json=as_json)

    return run_command(act, connect)


def _add_verb(verb: str, text: str) -> None:
    @deployments.command(verb, help=text)
    @click.argument("deployment", metavar="DEP", help=DEP_HELP)
    @json_option(EACH)
    @api_options
    def act(*, deployment: str, as_json: bool, connect: Connect) -> int:
        return _act(verb, deployment, as_json=as_json, connect=connect)


for _verb, _text in VERBS.items():
    _add_verb(_verb, _text)


def id_of(client: Client, deployment: str) -> str:
    """The id of a deployment, from its name or its id. Raises NotFound."""
    if deployment.startswith("dep_"):
        return deployment
    id_of_name = {row.name: row.id for row in client.deployments.list()}
    if deployment not in id_of_name:
        raise NotFound(no_such("deployment", deployment, list(id_of_name)))
    return id_of_name[deployment]


def settings_of(options: Settings) -> dict[str, Any]:
    """The API's settings of the command's options. Raises BadSetting."""
    more: dict[str, Any] = {}
    if options.canary:
        artifact, share = _pair(options.canary, "--canary", "art_…=0.05")
        more["canary"] = {"artifact": artifact, "share": share}
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
