"""`kolm webhooks`: endpoints, deliveries, tests and replays. Listening is in `webhook_listening`."""

from collections.abc import Mapping
from typing import Any

from gpu_runners.cli.api import Connect, fail, told
from gpu_runners.cli.exit_codes import FAILED, OK, USAGE
from gpu_runners.cli.listings import print_lines
from gpu_runners.cli.printing import print_json, print_table, when
from gpu_runners.kolm import Client


def ls(*, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        rows = list(client.webhook_endpoints.list())
        if as_json:
            print_lines(rows)
            return
        cells = ((row.id, row.url, ", ".join(row.events), row.status, when(row.last_success_at)) for row in rows)
        none = "There is no endpoint. `kolm webhooks create URL` makes one."
        print_table(("id", "url", "events", "status", "last success"), cells, none=none)

    return told(act, connect)


def create(url: str, *, events: list[str], description: str, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        more = {"description": description} if description else {}
        row = client.webhook_endpoints.create(url, events=events, **more)
        if as_json:
            print_json(row.raw)
        else:
            print(f"{row.id} {row.url}\n{row.secret}\nThe receiver verifies with this secret.")

    return told(act, connect)


def rm(id: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.delete(f"/v1/webhook_endpoints/{id}")
        print_json(row) if as_json else print(f"{id}: deleted.")

    return told(act, connect)


def test(id: str, *, type: str | None, as_json: bool, connect: Connect) -> int:
    """Exit 0 where the receiver took it, 1 where it did not."""

    def act(client: Client) -> int:
        row = client.post(f"/v1/webhook_endpoints/{id}/test", {} if type is None else {"type": type})
        if as_json:
            print_json(row)
        else:
            print(f"{row['id']} {row['type']}: {row['status']}{_answer(row)}")
        return OK if row["status"] == "succeeded" else FAILED

    return told(act, connect)


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

    return told(act, connect)


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

    return told(act, connect)


def _answer(row: Mapping[str, Any]) -> str:
    """What the receiver said to the last attempt."""
    attempt = (row.get("log") or [{}])[0]
    parts = [str(part) for part in (row.get("status_code"), row.get("error"), attempt.get("detail")) if part]
    latency = f" in {attempt['latency_ms']} ms" if attempt.get("latency_ms") is not None else ""
    return (f" ({', '.join(parts)})" if parts else "") + latency
