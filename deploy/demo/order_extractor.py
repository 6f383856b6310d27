"""`make demo-json`: a json task end to end. A spec is compiled, its artifact verified and put behind a name at the
OpenAI-compatible address, and asked about mails whose right answers were written beforehand (order_mails); then what
that cost.

Nothing is computed here but whether an answer is the right one: all else is what the API and the `kolm` command answer.
"""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from backend.domain.number_words import milliseconds, usd
from deploy.demo.order_mails import MAILS, count_right, report
from deploy.demo.refund_router import Access, open_access, run_compile, show
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import Home

SPEC = "examples/order-extractor.yaml"
NAME = "orders"
BILLED_WITHIN_S = 30.0  # servers tell what they answered every few seconds


def main() -> int:
    console, started = Console(), time.monotonic()
    try:
        access = open_access(Home.from_environ(os.environ))
        with contextlib.closing(access.api):
            status = walk(access, console)
    except (CannotStart, httpx.TransportError) as fault:
        print(fault, file=sys.stderr)
        return 1
    console.print(f"\n[dim]whole demo: {time.monotonic() - started:.0f} s[/dim]")
    return status


def walk(access: Access, console: Console) -> int:
    """Compile, verify, deploy, ask, and read what it cost; the first status that is not 0.

    A wrong answer is shown as one and ends nothing.
    """
    path = access.home.path / "artifacts" / f"{Path(SPEC).stem}.kolm"
    compile_id = run_compile(access, SPEC, path, console)
    if not show(access, compile_id, path, console):
        return 1
    artifact = access.get(f"/v1/compiles/{compile_id}")["artifact"]
    statuses = [run_command(access, console, "verify", str(path)), deploy(access, artifact, console)]
    replies = [ask(access, asked.mail) for asked in MAILS]
    console.print(f"\n[bold]$ kolm chat {NAME} MAIL[/bold], for each of {len(MAILS)} mails", highlight=False)
    for asked, reply in zip(MAILS, replies, strict=True):
        console.print(report(asked, reply), soft_wrap=True)
    console.print(f"\n[bold]{count_right(replies)}[/bold]\n", highlight=False)
    console.print(tabulate(wait_until_billed(access, n_at_least=len(MAILS))))
    return next((status for status in statuses if status), 0)


def ask(access: Access, mail: str) -> str:
    """The deployment's answer. Raises CannotStart where it gives none."""
    done = access.kolm("chat", NAME, mail, quiet=True)
    if done.returncode != 0:
        raise CannotStart(f"`kolm chat` ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def deploy(access: Access, artifact: str, console: Console) -> int:
    """A name for the artifact: a new one the first time, the next version under the old name after that."""
    known = {row["name"]: row for row in access.get("/v1/deployments?limit=100")["data"]}
    if NAME not in known:
        return run_command(access, console, "deployments", "create", NAME, artifact)
    if known[NAME]["artifact"] == artifact:
        return 0
    return run_command(access, console, "deployments", "promote", NAME, "--artifact", artifact)


def run_command(access: Access, console: Console, *arguments: str) -> int:
    """Run the command as a customer does and print what it says; its status."""
    words = " ".join(f'"{word}"' if " " in word else word for word in arguments)
    console.print(f"\n[bold]$ kolm {words}[/bold]", soft_wrap=True, highlight=False)
    done = access.kolm(*arguments, quiet=True)
    print((done.stdout + done.stderr).strip(), flush=True)
    return done.returncode


def wait_until_billed(access: Access, *, n_at_least: int) -> dict[str, Any]:
    """The deployment once what was just answered is in its figures, or as it is after BILLED_WITHIN_S."""
    deployment = next(row for row in access.get("/v1/deployments?limit=100")["data"] if row["name"] == NAME)
    until = time.monotonic() + BILLED_WITHIN_S
    while True:
        one: dict[str, Any] = access.get(f"/v1/deployments/{deployment['id']}")
        figures = [row for row in one["last_24h"] if row["artifact"] == deployment["artifact"]]
        if time.monotonic() > until or sum(row["n_requests"] for row in figures) >= n_at_least:
            return one
        time.sleep(0.5)


def tabulate(deployment: dict[str, Any]) -> Table:
    """Tabulate what the deployment answered in the last day, by artifact."""
    table = Table(title=f"deployment {deployment['name']}, last 24 hours", title_justify="left", box=None)
    for title in ("artifact", "requests", "prompt tokens", "answer tokens", "first token p50", "billed"):
        table.add_column(title, justify="left" if title == "artifact" else "right")
    for row in deployment["last_24h"]:
        first = row["first_token_p50_us"]
        table.add_row(
            row["artifact"],
            f"{row['n_requests']:,}",
            f"{row['prompt_tokens']:,}",
            f"{row['completion_tokens']:,}",
            "" if first is None else milliseconds(first),
            usd(row["amount_microusd"]),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
