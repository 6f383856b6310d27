"""The options of `kolm deployments` and `kolm chat`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]
VERBS = {
    "rollback": "the artifact from before the last promotion answers again",
    "drain": "no new requests; those under way end",
    "start": "take requests again after a drain",
    "rm": "take the name away; artifacts stay",
}


def add_deployments_parser(commands: "Actions", api_options: Options) -> None:
    deployments = commands.add_parser("deployments", help="names under which artifacts answer chats")
    actions = deployments.add_subparsers(required=True, metavar="ACTION")
    made = [_ls(actions), _create(actions), _set(actions), _promote(actions)]
    made += [_verb(actions, name, says) for name, says in VERBS.items()]
    for command in made:
        command.add_argument("--json", action="store_true", help="print what the API answers, one object a line")
        api_options(command)
    chat = commands.add_parser("chat", help="ask a deployment or an artifact; the answer as it comes")
    chat.add_argument("model", metavar="MODEL", help="a deployment's name, dep_… or art_…")
    chat.add_argument("text", metavar="TEXT", nargs="?", help="the message (default: standard input)")
    chat.add_argument("--max-tokens", type=int, metavar="N", help="longest answer")
    chat.add_argument("--temperature", type=float, metavar="T", help="0 is greedy, and the default")
    chat.add_argument("--json", action="store_true", help="the whole answer as one JSON object, with its usage")
    chat.set_defaults(command=_run_chat)
    api_options(chat)


def _ls(actions: "Actions") -> argparse.ArgumentParser:
    ls = actions.add_parser("ls", help="all deployments, newest first")
    ls.set_defaults(command=_runs("ls"))
    return ls


def _create(actions: "Actions") -> argparse.ArgumentParser:
    create = actions.add_parser("create", help="let an artifact answer under a name")
    create.add_argument("name", metavar="NAME", help="what requests name as model")
    create.add_argument("artifact", metavar="ART", help="art_…, of a json or text task or on a causal base")
    _settings(create)
    create.set_defaults(command=_runs("create", "name", "artifact"))
    return create


def _set(actions: "Actions") -> argparse.ArgumentParser:
    change = actions.add_parser("set", help="change what is given; the rest stays")
    change.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    _settings(change)
    change.add_argument("--no-canary", action="store_true", help="take the canary away")
    change.set_defaults(command=_runs("change", "deployment"))
    return change


def _promote(actions: "Actions") -> argparse.ArgumentParser:
    promote = actions.add_parser("promote", help="the canary answers everything from here on")
    promote.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    promote.add_argument("--artifact", metavar="ART", help="this one instead of the canary")
    promote.set_defaults(command=_runs("promote", "deployment", "artifact"))
    return promote


def _verb(actions: "Actions", name: str, says: str) -> argparse.ArgumentParser:
    command = actions.add_parser(name, help=says)
    command.add_argument("deployment", metavar="DEP", help="its name or dep_…")
    command.set_defaults(command=_runs("verb", "deployment"), verb=name)
    return command


def _settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--canary", metavar="ART=SHARE", help="art_…=0.05: this one answers one request in twenty")
    command.add_argument("--idle-minutes", type=int, metavar="N", help="then servers may unload it; 0: as they see fit")
    command.add_argument("--pinned", choices=["yes", "no"], help="whether servers keep it loaded")
    command.add_argument("--max-concurrent", type=int, metavar="N", help="requests at once on one server")
    command.add_argument(
        "--shadow", metavar="SHARE=USD", help="0.01=2: one in a hundred goes to the teacher too, up to $2 a day"
    )
    command.add_argument("--rollback-on-regression", choices=["yes", "no"], help="by itself, once one is found")


def _runs(name: str, *arguments: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        from gpu_runners.cli import deployments as deployment_commands
        from gpu_runners.cli.api import connect_of

        given: dict[str, Any] = {argument: getattr(options, argument) for argument in arguments}
        if name in ("create", "change"):
            given["settings"] = options
        if name == "verb":
            given["verb"] = options.verb
        return int(getattr(deployment_commands, name)(**given, as_json=options.json, connect=connect_of(options)))

    return run


def _run_chat(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.deployments import chat

    asked = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    more = {name: value for name, value in asked.items() if value is not None}
    return chat(options.model, options.text, more=more, as_json=options.json, connect=connect_of(options))
