"""`make demo-drafts`: what the drafts of one compile save the next, at two lengths of message. Two example tasks are
compiled up to their selection, then the next version of each (`next_version`): every hint in other words, a label
renamed, a slice new. Nothing is trained.

Everything shown is what the API answers. Safe to repeat: each task's drafts are deleted first, in a family that only
this demo uses.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console

from deploy.demo import draft_report
from deploy.demo.draft_report import LAST_STEP, Pair
from deploy.demo.next_version import next_version
from deploy.demo.refund_router import Access, open_access
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home

SPECS = ("examples/refund-router.yaml", "examples/repair-desk.yaml")
N_CANDIDATES = 48  # half of what the examples buy for a student's sake: nothing is trained here
SELECTED_WITHIN_S = 300.0


def main() -> int:
    console, started = Console(), time.monotonic()
    try:
        access = open_access(Home.from_environ(os.environ))
        with contextlib.closing(access.api):
            pairs = [compile_pair(access, ROOT / spec, console) for spec in SPECS]
    except (CannotStart, httpx.TransportError) as fault:
        print(fault, file=sys.stderr)
        return 1
    console.print(draft_report.comparison(pairs))
    console.print(draft_report.BEST_CASE, style="dim", soft_wrap=True)
    console.print(f"[dim]whole demo: {time.monotonic() - started:.0f} s[/dim]")
    return 0


def compile_pair(access: Access, path: Path, console: Console) -> Pair:
    """Compile the spec and its next version up to selection, and print what the second saved."""
    spec: dict[str, Any] = yaml.safe_load(path.read_text())
    family = f"demo-drafts-{spec['name']}"
    send(access, "DELETE", f"/v1/drafts?family={family}")
    changes = {
        "family": family,
        "sampling": spec["sampling"] | {"n_candidates": N_CANDIDATES},
        "draft_cache": {"holdback": 0},
    }
    console.print(f"[bold]{path.name}[/bold], up to its selection; then its next version")
    first = compile_to_selection(access, spec | changes)
    second = compile_to_selection(access, next_version(spec) | changes)
    pair = read_pair(access, first, second)
    console.print(draft_report.of_pair(pair))
    if pair.asked:
        console.print(draft_report.side_by_side(pair.asked))
    return pair


def compile_to_selection(access: Access, spec: Mapping[str, Any]) -> str:
    """Cancel the compile as soon as its selection is done, when its drafts are stored; its id. Raises CannotStart."""
    compile_id = str(send(access, "POST", "/v1/compiles", spec)["id"])
    until = time.monotonic() + SELECTED_WITHIN_S
    while draft_report.step_of(steps_of(access, compile_id), LAST_STEP)["status"] != "succeeded":
        compile = access.get(f"/v1/compiles/{compile_id}")
        if compile["failure"] or compile["ended_at"] or time.monotonic() > until:
            reason = compile["failure"]["message"] if compile["failure"] else f"it is {compile['status']}"
            raise CannotStart(f"{compile_id} came to no selection: {reason}")
        time.sleep(0.25)
    access.api.post(f"/v1/compiles/{compile_id}/cancel")  # refused where it ended by itself, which is as good
    return compile_id


def read_pair(access: Access, first: str, second: str) -> Pair:
    n_tokens = [row["n_tokens"] for row in rows_of(access, f"/v1/compiles/{second}/candidates")]
    return Pair(
        first_steps=steps_of(access, first),
        second=access.get(f"/v1/compiles/{second}"),
        second_steps=steps_of(access, second),
        asked=list(rows_of(access, f"/v1/compiles/{second}/drafts")),
        mean_tokens=sum(n_tokens) / len(n_tokens),
    )


def steps_of(access: Access, compile_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = access.get(f"/v1/compiles/{compile_id}/steps")["data"]
    return rows


def rows_of(access: Access, path: str) -> Iterator[dict[str, Any]]:
    """Every row of a list, page by page."""
    page: dict[str, Any] = {"next_cursor": "", "has_more": True}
    while page["has_more"]:
        after = f"&after={page['next_cursor']}" if page["next_cursor"] else ""
        page = access.get(f"{path}?limit=100{after}")
        yield from page["data"]


def send(access: Access, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The API's answer. Raises CannotStart where it refuses."""
    response = access.api.request(method, path, json=body)
    if response.is_error:
        raise CannotStart(f"{method} {path} answered {response.status_code}: {response.text[:300]}")
    return response.json() if response.content else None


if __name__ == "__main__":
    sys.exit(main())
