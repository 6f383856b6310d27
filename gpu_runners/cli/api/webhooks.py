"""`kolm webhooks`: endpoints, deliveries, tests and replays. Listening is in `webhook_listening`."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpu_runners.cli.api.connection import Connect, connect_of, run_command
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, when
from gpu_runners.cli.exit_codes import FAILED, OK, USAGE
from gpu_runners.cli.options import AddOptions, add_api_options, count_of
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client

if TYPE_CHECKING:
    from gpu_runners.cli.options import Actions


DELIVERY_STATUSES = ("pending", "succeeded", "failed", "canceled")


def _webhooks_options(webhooks: argparse.ArgumentParser) -> None:
    actions = webhooks.add_subparsers(required=True, metavar="ACTION")
    for add in (_add_ls, _add_create, _add_rm, _add_test, _add_deliveries, _add_replay, _add_listen):
        command = add(actions)
        command.add_argument("--json", action="store_true", help="print what the API answers, one object a line")
        add_api_options(command)


def _add_ls(actions: "Actions") -> argparse.ArgumentParser:
    ls = actions.add_parser("ls", help="all endpoints")
    ls.set_defaults(command=_run_ls)
    return ls


def _add_create(actions: "Actions") -> argparse.ArgumentParser:
    create = actions.add_parser("create", help="a new endpoint; its signing secret is shown")
    create.add_argument("url", metavar="URL", help="https://…")
    create.add_argument("--events", default="*", metavar="TYPES", help="with commas between, compile.* too; default: *")
    create.add_argument("--description", default="", metavar="TEXT")
    create.set_defaults(command=_run_create)
    return create


def _add_rm(actions: "Actions") -> argparse.ArgumentParser:
    rm = actions.add_parser("rm", help="delete an endpoint; what is pending is canceled")
    rm.add_argument("id", metavar="WE", help="we_…")
    rm.set_defaults(command=_run_rm)
    return rm


def _add_test(actions: "Actions") -> argparse.ArgumentParser:
    test = actions.add_parser("test", help="send a signed webhook.test now, and say how it went")
    test.add_argument("id", metavar="WE", help="we_…")
    test.add_argument("--type", metavar="TYPE", help="an example of this type instead of webhook.test")
    test.set_defaults(command=_run_test)
    return test


def _add_deliveries(actions: "Actions") -> argparse.ArgumentParser:
    deliveries = actions.add_parser("deliveries", help="what was sent where, newest first")
    deliveries.add_argument("--endpoint", metavar="WE", help="we_…: to this endpoint alone")
    deliveries.add_argument("--status", choices=DELIVERY_STATUSES)
    deliveries.add_argument("--limit", type=count_of, default=20, metavar="N", help="how many (default: 20)")
    deliveries.set_defaults(command=_run_deliveries)
    return deliveries


def _add_replay(actions: "Actions") -> argparse.ArgumentParser:
    replay = actions.add_parser("replay", help="send again: one delivery, or all that failed since a time")
    replay.add_argument("id", metavar="ID", help="whd_… of a delivery, or we_… of an endpoint with --since")
    replay.add_argument("--since", metavar="TIME", help="of an endpoint: what failed from then on")
    replay.set_defaults(command=_run_replay)
    return replay


def _add_listen(actions: "Actions") -> argparse.ArgumentParser:
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
    return ls(as_json=options.json, connect=connect_of(options))


def _run_create(options: argparse.Namespace) -> int:
    return create(
        options.url,
        events=_types(options.events),
        description=options.description,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_rm(options: argparse.Namespace) -> int:
    return rm(options.id, as_json=options.json, connect=connect_of(options))


def _run_test(options: argparse.Namespace) -> int:
    return test(options.id, type=options.type, as_json=options.json, connect=connect_of(options))


def _run_deliveries(options: argparse.Namespace) -> int:
    return deliveries(
        endpoint=options.endpoint,
        status=options.status,
        limit=options.limit,
        as_json=options.json,
        connect=connect_of(options),
    )


def _run_replay(options: argparse.Namespace) -> int:
    return replay(options.id, since=options.since, as_json=options.json, connect=connect_of(options))


def _run_listen(options: argparse.Namespace) -> int:
    from gpu_runners.cli.api.webhook_listening import listen

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


def ls(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = list(client.webhook_endpoints.list())
        if as_json:
            print_lines(rows)
            return
        cells = ((row.id, row.url, ", ".join(row.events), row.status, when(row.last_success_at)) for row in rows)
        none = "There is no endpoint. `kolm webhooks create URL` makes one."
        print_table(("id", "url", "events", "status", "last success"), cells, none=none)

    return run_command(act, connect)


def create(url: str, *, events: list[str], description: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        more = {"description": description} if description else {}
        row = client.webhook_endpoints.create(url, events=events, **more)
        if as_json:
            print_json(row.raw)
        else:
            print(f"{row.id} {row.url}\n{row.secret}\nThe receiver verifies with this secret.")

    return run_command(act, connect)


def rm(id: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.delete(f"/v1/webhook_endpoints/{id}")
        print_json(row) if as_json else print(f"{id}: deleted.")

    return run_command(act, connect)


def test(id: str, *, type: str | None, as_json: bool, connect: Connect) -> int:
    """Exit 0 where the receiver took it, 1 where it did not."""

    def act(client: Client) -> int:
        row = client.post(f"/v1/webhook_endpoints/{id}/test", {} if type is None else {"type": type})
        if as_json:
            print_json(row)
        else:
            print(f"{row['id']} {row['type']}: {row['status']}{_answer(row)}")
        return OK if row["status"] == "succeeded" else FAILED

    return run_command(act, connect)


def deliveries(*, endpoint: str | None, status: str | None, limit: int, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = list(client.webhook_deliveries.list(endpoint=endpoint, status=status, limit=limit))
        if as_json:
            print_lines(rows)
            return
        cells = (
            (
                row.id,
                row.type,
                row.endpoint,
                row.status,
                str(row.attempts),
                str(row.status_code or row.error or ""),
                when(row.created_at),
                when(row.next_attempt_at),
            )
            for row in rows
        )
        titles = ("id", "type", "endpoint", "status", "tries", "answer", "created", "next try")
        print_table(titles, cells, right=(4,), none="No delivery fits.")

    return run_command(act, connect)


def replay(id: str, *, since: str | None, as_json: bool, connect: Connect) -> int:
    is_endpoint = id.startswith("we_")
    if is_endpoint != (since is not None):
        return fail("replay a delivery (whd_…), or an endpoint (we_…) with --since TIME.", code=USAGE)

    def act(client: Client) -> None:
        if is_endpoint:
            row = client.post(f"/v1/webhook_endpoints/{id}/replay", {"since": since})
            print_json(row) if as_json else print(f"{row['n_deliveries']} deliveries are sent again.")
            return
        row = client.post(f"/v1/webhook_deliveries/{id}/replay")
        print_json(row) if as_json else print(f"{row['id']} {row['type']}: {row['status']}")

    return run_command(act, connect)


def _answer(row: Mapping[str, Any]) -> str:
    """The receiver's answer to the last attempt."""
    attempt = (row.get("log") or [{}])[0]
    parts = [str(part) for part in (row.get("status_code"), row.get("error"), attempt.get("detail")) if part]
    latency = f" in {attempt['latency_ms']} ms" if attempt.get("latency_ms") is not None else ""
    return (f" ({', '.join(parts)})" if parts else "") + latency


OPTIONS: dict[str, AddOptions] = {
    "webhooks": _webhooks_options,
}
