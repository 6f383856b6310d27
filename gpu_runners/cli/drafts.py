"""`kolm drafts`: the draft cache over the API. Exit 0; 1 when the API refuses or does not answer; 2 for options that
make no sense."""

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from gpu_runners.cli import draft_tables as tables
from gpu_runners.cli.api import Connect, agrees, told
from gpu_runners.cli.exit_codes import FAILED
from gpu_runners.kolm import Client, read_document

PAGE = 100
Row = dict[str, Any]


def stats(*, family: str | None, since: str | None, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        answer = client.get(_path("/v1/drafts/stats", family=family, since=since))
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_stats(answer["data"])

    return told(act, connect)


def list_drafts(
    *,
    family: str | None,
    state: str | None,
    search: str | None,
    limit: int,
    as_json: bool,
    connect: Connect,
) -> int:
    def act(client: Client) -> None:
        rows = _drafts(client, limit, family=family, state=state, q=search)
        if as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_drafts(list(rows))

    return told(act, connect)


def show(draft: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        row = client.get(f"/v1/drafts/{quote(draft, safe='')}")
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_draft(row)

    return told(act, connect)


def preview(spec: str, *, as_json: bool, connect: Connect) -> int:
    def act(client: Client) -> None:
        # asked once: the API itself has waited for a worker already
        answer = client.post("/v1/drafts/preview", read_document(spec), attempts=1)
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_preview(answer)

    return told(act, connect)


def delete(draft: str, *, connect: Connect) -> int:
    def act(client: Client) -> None:
        found = client.delete(f"/v1/drafts/{quote(draft, safe='')}")
        n_others = found["n_drafts"] - 1
        print(f"{draft} is deleted" + (f", and {n_others} that began as it." if n_others else "."))

    return told(act, connect)


def purge(family: str, *, yes: bool, connect: Connect) -> int:
    """Asks before it deletes, unless it was told not to."""

    def act(client: Client) -> None:
        found = client.delete(_path("/v1/drafts", family=family))
        if found["n_keys"] == 0:
            print(f"Nothing was kept of the family {family!r}.")
            return
        print(
            f"{family}: {found['n_drafts']} drafts of {found['n_sources']} slices and {found['n_label_drafts']} label "
            "answers are deleted, and the key that their texts were sealed with."
        )

    if not yes and not agrees(f"Delete all drafts of the family {family!r}? There is no way back. [y/N] "):
        print("kolm: nothing was deleted; answer y, or pass --yes.", file=sys.stderr)
        return FAILED
    return told(act, connect)


def _drafts(client: Client, limit: int, **filters: str | None) -> Iterator[Row]:
    """Page by page; a search that was cut short is gone on with until it has `limit` or is at its end."""
    after: str | None = None
    left = limit
    while left > 0:
        page = client.get(_path("/v1/drafts", limit=str(min(left, PAGE)), after=after, **filters))
        yield from page["data"]
        left -= len(page["data"])
        after = page["next_cursor"]
        if after is None:
            return


def _path(path: str, **query: str | None) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
