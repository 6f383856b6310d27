"""`kolm webhooks`: endpoints, deliveries, tests and replays. Listening is in `listening`."""

from collections.abc import Mapping
from typing import Any

import click

from gpu_runners.cli.api.connection import Connect, api_options, run_command
from gpu_runners.cli.command_groups import Actions
from gpu_runners.cli.display.printing import print_json, print_lines, print_table, when
from gpu_runners.cli.exit_codes import FAILED, OK, USAGE
from gpu_runners.cli.options import COUNT, PATH, json_option
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client

DELIVERY_STATUSES = ("pending", "succeeded", "failed", "canceled")


webhooks = Actions("webhooks")
EACH = "print what the API answers, one object a line"
EVENTS_HELP = "with commas between, compile.* too; default: *"


def _types(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@webhooks.command("ls", help="All endpoints.")
@json_option(EACH)
@api_options
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


@webhooks.command("create", help="A new endpoint; its signing secret is shown.")
@click.argument("url", metavar="URL", help="https://…")
@click.option("--events", default="*", metavar="TYPES", help=EVENTS_HELP)
@click.option("--description", default="", metavar="TEXT", help="what it is for")
@json_option(EACH)
@api_options
def create(*, url: str, events: str, description: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        more = {"description": description} if description else {}
        row = client.webhook_endpoints.create(url, events=_types(events), **more)
        if as_json:
            print_json(row.raw)
        else:
            print(f"{row.id} {row.url}\n{row.secret}\nThe receiver verifies with this secret.")

    return run_command(act, connect)


@webhooks.command("rm", help="Delete an endpoint; what is pending is canceled.")
@click.argument("id", metavar="WE", help="we_…")
@json_option(EACH)
@api_options
def rm(*, id: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.delete(f"/v1/webhook_endpoints/{id}")
        print_json(row) if as_json else print(f"{id}: deleted.")

    return run_command(act, connect)


@webhooks.command("test", help="Send a signed webhook.test now, and say how it went.")
@click.argument("id", metavar="WE", help="we_…")
@click.option("--type", metavar="TYPE", help="an example of this type instead of webhook.test")
@json_option(EACH)
@api_options
def test(*, id: str, type: str | None, as_json: bool, connect: Connect) -> int:
    """Exit 0 where the receiver took it, 1 where it did not."""

    def act(client: Client) -> int:
        row = client.post(f"/v1/webhook_endpoints/{id}/test", {} if type is None else {"type": type})
        if as_json:
            print_json(row)
        else:
            print(f"{row['id']} {row['type']}: {row['status']}{_answer(row)}")
        return OK if row["status"] == "succeeded" else FAILED

    return run_command(act, connect)


@webhooks.command("deliveries", help="What was sent where, newest first.")
@click.option("--endpoint", metavar="WE", help="we_…: to this endpoint alone")
@click.option("--status", type=click.Choice(DELIVERY_STATUSES), help="with this status alone")
@click.option("--limit", type=COUNT, default=20, metavar="N", help="how many (default: 20)")
@json_option(EACH)
@api_options
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


@webhooks.command("replay", help="Send again: one delivery, or all that failed since a time.")
@click.argument("id", metavar="ID", help="whd_… of a delivery, or we_… of an endpoint with --since")
@click.option("--since", metavar="TIME", help="of an endpoint: what failed from then on")
@json_option(EACH)
@api_options
def replay(*, id: str, since: str | None, as_json: bool, connect: Connect) -> int:
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


@webhooks.command("listen", help="Forward the account's events to a URL on this machine, signed.")
@click.option("--forward", required=True, metavar="URL", help="http://localhost:3000/webhooks")
@click.option("--events", default="*", metavar="TYPES", help=EVENTS_HELP)
@click.option("--secret", metavar="WHSEC", help="sign with this secret instead of a new one")
@click.option(
    "--state", type=PATH, metavar="FILE", help="remember there how far this went, and go on from it at the next start"
)
@json_option(EACH)
@api_options
def listen_here(
    *, forward: str, events: str, secret: str | None, state: str | None, as_json: bool, connect: Connect
) -> int:
    from gpu_runners.cli.api.webhooks.listening import listen

    return listen(forward, types=_types(events), secret=secret, state=state, as_json=as_json, connect=connect)


def _answer(row: Mapping[str, Any]) -> str:
    """The receiver's answer to the last attempt."""
    attempt = (row.get("log") or [{}])[0]
    parts = [str(part) for part in (row.get("status_code"), row.get("error"), attempt.get("detail")) if part]
    latency = f" in {attempt['latency_ms']} ms" if attempt.get("latency_ms") is not None else ""
    return (f" ({', '.join(parts)})" if parts else "") + latency
