"""`kolm drafts`: the draft cache over the API. Exit 0; 1 when the API refuses or does not answer; 2 for options that
make no sense."""

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gpu_runners import draft_tables as tables
from gpu_runners.api_client import Api, ApiError
from gpu_runners.compile_commands import EXIT_FAILED, EXIT_OK, Unreadable, read_document

PAGE = 100
Row = dict[str, Any]


def stats(*, family: str | None, since: str | None, plot: str | None, as_json: bool, api: str, key: str | None) -> int:
    def act(client: Api) -> None:
        answer = client.get(_path("/v1/drafts/stats", family=family, since=since))
        if plot is not None:
            _plot(answer["data"], Path(plot))
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_stats(answer["data"])

    return _told(act, api, key)


def list_drafts(
    *,
    family: str | None,
    state: str | None,
    search: str | None,
    limit: int,
    as_json: bool,
    api: str,
    key: str | None,
) -> int:
    def act(client: Api) -> None:
        rows = _drafts(client, limit, family=family, state=state, q=search)
        if as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_drafts(list(rows))

    return _told(act, api, key)


def show(draft: str, *, as_json: bool, api: str, key: str | None) -> int:
    def act(client: Api) -> None:
        row = client.get(f"/v1/drafts/{quote(draft, safe='')}")
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            tables.print_draft(row)

    return _told(act, api, key)


def preview(spec: str, *, as_json: bool, api: str, key: str | None) -> int:
    def act(client: Api) -> None:
        # asked once: the API itself has waited for a worker already
        answer = client.post("/v1/drafts/preview", read_document(spec), idempotency_key=str(uuid.uuid4()), attempts=1)
        if as_json:
            print(json.dumps(answer, ensure_ascii=False))
        else:
            tables.print_preview(answer)

    return _told(act, api, key)


def delete(draft: str, *, api: str, key: str | None) -> int:
    def act(client: Api) -> None:
        found = client.delete(f"/v1/drafts/{quote(draft, safe='')}")
        n_others = found["n_drafts"] - 1
        print(f"{draft} is deleted" + (f", and {n_others} that began as it." if n_others else "."))

    return _told(act, api, key)


def purge(family: str, *, yes: bool, api: str, key: str | None) -> int:
    """Asks before it deletes, unless it was told not to."""

    def act(client: Api) -> None:
        found = client.delete(_path("/v1/drafts", family=family))
        if found["n_keys"] == 0:
            print(f"Nothing was kept of the family {family!r}.")
            return
        print(
            f"{family}: {found['n_drafts']} drafts of {found['n_sources']} slices and {found['n_label_drafts']} label "
            "answers are deleted, and the key that their texts were sealed with."
        )

    if not yes and not _agrees(f"Delete all drafts of the family {family!r}? There is no way back. [y/N] "):
        print("kolm: nothing was deleted; answer y, or pass --yes.", file=sys.stderr)
        return EXIT_FAILED
    return _told(act, api, key)


def _told(act: Callable[[Api], None], api: str, key: str | None) -> int:
    try:
        with Api(url=api, key=key) as client:
            act(client)
    except (Unreadable, ApiError) as error:
        print(f"kolm: {error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _drafts(client: Api, limit: int, **filters: str | None) -> Iterator[Row]:
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


def _plot(families: list[Row], path: Path) -> None:
    from gpu_runners.draft_plot import lines_of, svg_of_acceptance

    lines = lines_of(families)
    if not lines:
        raise Unreadable("There is nothing to draw yet: no draft was ever verified.")
    try:
        path.write_text(svg_of_acceptance(lines), encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror or error}.") from error
    print(f"{path}: acceptance by distance of {len(lines)} curves.", file=sys.stderr)


def _agrees(question: str) -> bool:
    return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")
