"""The options of `kolm webhooks`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_runners.cli.amounts import count_of

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[argparse.ArgumentParser]

Options = Callable[[argparse.ArgumentParser], None]
DELIVERY_STATUSES = ("pending", "succeeded", "failed", "canceled")


def add_webhooks_parser(commands: "Actions", api_options: Options) -> None:
    webhooks = commands.add_parser("webhooks", help="endpoints, deliveries, and events on this machine")
    actions = webhooks.add_subparsers(required=True, metavar="ACTION")
    for add in (_ls, _create, _rm, _test, _deliveries, _replay, _listen):
        command = add(actions)
        command.add_argument("--json", action="store_true", help="print what the API answers, one object a line")
        api_options(command)


def _ls(actions: "Actions") -> argparse.ArgumentParser:
    ls = actions.add_parser("ls", help="all endpoints")
    ls.set_defaults(command=_run_ls)
    return ls


def _create(actions: "Actions") -> argparse.ArgumentParser:
    create = actions.add_parser("create", help="a new endpoint; its signing secret is shown")
    create.add_argument("url", metavar="URL", help="https://…")
    create.add_argument("--events", default="*", metavar="TYPES", help="with commas between, compile.* too; default: *")
    create.add_argument("--description", default="", metavar="TEXT")
    create.set_defaults(command=_run_create)
    return create


def _rm(actions: "Actions") -> argparse.ArgumentParser:
    rm = actions.add_parser("rm", help="delete an endpoint; what is pending is canceled")
    rm.add_argument("id", metavar="WE", help="we_…")
    rm.set_defaults(command=_run_rm)
    return rm


def _test(actions: "Actions") -> argparse.ArgumentParser:
    test = actions.add_parser("test", help="send a signed webhook.test now, and say how it went")
    test.add_argument("id", metavar="WE", help="we_…")
    test.add_argument("--type", metavar="TYPE", help="an example of this type instead of webhook.test")
    test.set_defaults(command=_run_test)
    return test


def _deliveries(actions: "Actions") -> argparse.ArgumentParser:
    deliveries = actions.add_parser("deliveries", help="what was sent where, newest first")
    deliveries.add_argument("--endpoint", metavar="WE", help="we_…: to this endpoint alone")
    deliveries.add_argument("--status", choices=DELIVERY_STATUSES)
    deliveries.add_argument("--limit", type=count_of, default=20, metavar="N", help="how many (default: 20)")
    deliveries.set_defaults(command=_run_deliveries)
    return deliveries


def _replay(actions: "Actions") -> argparse.ArgumentParser:
    replay = actions.add_parser("replay", help="send again: one delivery, or all that failed since a time")
    replay.add_argument("id", metavar="ID", help="whd_… of a delivery, or we_… of an endpoint with --since")
    replay.add_argument("--since", metavar="TIME", help="of an endpoint: what failed from then on")
    replay.set_defaults(command=_run_replay)
    return replay


def _listen(actions: "Actions") -> argparse.ArgumentParser:
    listen = actions.add_parser("listen", help="forward the account's events to a URL on this machine, signed")
    listen.add_argument("--forward", required=True, metavar="URL", help="http://localhost:3000/webhooks")
    listen.add_argument("--events", default="*", metavar="TYPES", help="with commas between, compile.* too; default: *")
    listen.add_argument("--secret", metavar="WHSEC", help="sign with this secret instead of a new one")
    listen.add_argument(
        "--state", metavar="FILE", help="remember there how far this went, and go on from it at the next start"
    )
    listen.set_defaults(command=_run_listen)
    return listen


def _run_ls(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import ls

    return ls(as_json=options.json, connect=connect_of(options))


def _run_create(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import create

    return create(
        options.url,
        events=_types(options.events),
        description=options.description,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_rm(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import rm

    return rm(options.id, as_json=options.json, connect=connect_of(options))


def _run_test(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import test

    return test(options.id, type=options.type, as_json=options.json, connect=connect_of(options))


def _run_deliveries(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import deliveries

    return deliveries(
        endpoint=options.endpoint,
        status=options.status,
        limit=options.limit,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_replay(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhooks import replay

    return replay(options.id, since=options.since, as_json=options.json, connect=connect_of(options))


def _run_listen(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api import connect_of
    from gpu_runners.cli.webhook_listening import listen

    return listen(
        options.forward,
        types=_types(options.events),
        secret=options.secret,
        state=options.state,
        as_json=options.json,
        connect=connect_of(options),
    )


def _types(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
