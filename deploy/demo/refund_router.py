"""`make demo`: one real compile through the public API, then what came of it, verified and run. `make key`: its key.

Nothing is computed here: the tables show what GET /v1/compiles/{id}, its steps and slices answer; the `kolm` command
does the rest. Safe to repeat: the tenant, its key and the pinned keyring are made once.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from rich.console import Console

from deploy.demo import demo_report, demo_webhook
from deploy.demo.next_version import next_version
from deploy.embedded import credentials, layout
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home, replace_private
from deploy.embedded.layout import Part
from deploy.embedded.parts import pin_keyring

SPEC = "examples/refund-router.yaml"
MESSAGES = (
    "You billed me twice for order 20418, please give me one of the payments back.",
    "I sent the boots back two weeks ago and still see no money on my card.",
    "How many days do I have to return a jacket that does not fit?",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The running stack and the demo's key to it."""

    home: Home
    api: httpx.Client
    variables: Mapping[str, str]
    webhook_origin: str

    def get(self, path: str) -> Any:
        response = self.api.get(path)
        if response.is_error:
            raise CannotStart(f"GET {path} answered {response.status_code}: {response.text[:300]}")
        return response.json()

    def kolm(self, *arguments: str, quiet: bool = False) -> "subprocess.CompletedProcess[str]":
        """The command a customer uses. Its progress display goes straight to the terminal unless `quiet`."""
        command = layout.python("-m", "gpu_runners.cli", *arguments)
        return subprocess.run(command, cwd=ROOT, env=dict(self.variables), capture_output=quiet, text=True)


def main() -> int:
    console = Console()
    started = time.monotonic()
    try:
        access = open_access(Home.from_environ(os.environ))
        if sys.argv[1:] == ["--key"]:  # `make key`
            print(access.variables["KOLM_API_KEY"])
            return 0
        with contextlib.closing(access.api), demo_webhook.receiving(access.api, access.webhook_origin) as inbox:
            status = walk(access, inbox, console)
    except (CannotStart, httpx.TransportError) as fault:
        print(fault, file=sys.stderr)
        return 1
    console.print(f"\n[dim]whole demo: {time.monotonic() - started:.0f} s[/dim]")
    return status


def walk(access: Access, inbox: demo_webhook.Inbox | None, console: Console) -> int:
    """Compile, show, verify, run, compile the next version; then what was told of it and what it cost."""
    path = access.home.path / "artifacts" / f"{Path(SPEC).stem}.kolm"
    compile_ids = [run_compile(access, SPEC, path, console)]
    status = 1
    if show(access, compile_ids[0], path, console):
        status = try_out(access, path, console)
        if status == 0:
            compile_ids.append(compile_next_version(access, path, console))
            status = 0 if access.get(f"/v1/compiles/{compile_ids[1]}")["artifact"] is not None else 1
    if inbox is None:
        console.print("\n[dim]webhooks to this machine are not allowed here (KOLM_ALLOW_PRIVATE_WEBHOOKS)[/dim]")
    else:
        console.print(inbox.report(compile_ids[-1]))
    for compile_id in compile_ids:
        compile = access.get(f"/v1/compiles/{compile_id}")
        console.print(demo_report.bill(compile, access.get(f"/v1/compiles/{compile_id}/bill")), soft_wrap=True)
    return status


def open_access(home: Home) -> Access:
    """The stack of this home, with a tenant, a user and a key. Raises CannotStart when it is not up."""
    state = home.read_state() if home.is_up() else {}
    if not state:
        raise CannotStart("kolm is not up: start it with `make up`.")
    parts = tuple(Part(name) for name in state["parts"])
    plan = layout.plan(home, credentials.load_or_create(home), layout.environ(), parts, recorded=state["ports"])
    pin_keyring(plan)
    key = _known_key(plan) or _new_key(plan)
    variables = plan.bare_environment() | {
        "KOLM_API_URL": plan.local_url,
        "KOLM_API_KEY": key,
        "KOLM_KEYRING": str(home.keyring),
    }
    variables |= {name: os.environ[name] for name in ("TERM", "COLUMNS", "NO_COLOR") if name in os.environ}
    api = httpx.Client(base_url=plan.local_url, headers={"Authorization": f"Bearer {key}"}, timeout=30)
    return Access(home=home, api=api, variables=variables, webhook_origin=plan.webhook_origin)


def _known_key(plan: layout.Layout) -> str | None:
    """The key of an earlier demo, if this database still knows it."""
    note = plan.home.path / "demo.json"
    if not note.exists():
        return None
    key = str(json.loads(note.read_text())["key"])
    headers = {"Authorization": f"Bearer {key}"}
    # a key keeps the scopes that there were when it was made
    nouns = ("compiles", "webhook_endpoints", "deployments")
    asked = [httpx.get(f"{plan.local_url}/v1/{noun}?limit=1", headers=headers) for noun in nouns]
    return key if all(answer.status_code == 200 for answer in asked) else None


def _new_key(plan: layout.Layout) -> str:
    tenant = _manage(plan, "create_tenant", "demo")["id"]
    _manage(plan, "create_user", "demo@example.com", "--tenant", tenant)
    key = str(
        _manage(plan, "create_api_key", "--tenant", tenant, "--name", "demo", "--preset", "command_line")["secret"]
    )
    replace_private(plan.home.path / "demo.json", json.dumps({"tenant": tenant, "key": key}) + "\n")
    return key


def _manage(plan: layout.Layout, *arguments: str) -> Any:
    command = layout.python("manage.py", *arguments, "--json")
    done = subprocess.run(command, cwd=ROOT, env=plan.backend_environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotStart(f"manage.py {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def compile_next_version(access: Access, path: Path, console: Console) -> str:
    """Compile the next version of the task, whose drafts are what the first one's selection did not keep; its id."""
    console.print(
        "\n[bold]the next version of the task[/bold]: every hint in other words, one label renamed, one slice new.\n"
        "No prompt is the same any more: what the first version left over is shown to the teacher, who judges it."
    )
    spec = path.with_name(f"{path.stem}-next.json")
    spec.write_text(json.dumps(next_version(yaml.safe_load((ROOT / SPEC).read_text())), indent=1))
    compile_id = run_compile(access, str(spec), spec.with_suffix(".kolm"), console)
    compile = access.get(f"/v1/compiles/{compile_id}")
    slices = access.get(f"/v1/compiles/{compile_id}/slices")["data"]
    console.print(demo_report.verdict(compile))
    console.print(demo_report.drafts(slices))
    console.print(demo_report.draft_summary(compile))
    return compile_id


def run_compile(access: Access, spec: str, path: Path, console: Console) -> str:
    """Compile a spec to `path`; returns the compile's id. A failed gate is a result too, and is shown."""
    before = _newest(access)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    console.print(f"[bold]$ kolm compile {spec} --wait[/bold]", soft_wrap=True)
    started = time.monotonic()
    done = access.kolm("compile", spec, "--wait", "--out", str(path))
    compile_id = _newest(access)
    if compile_id is None or compile_id == before:
        raise CannotStart(f"`kolm compile` ended with status {done.returncode} before anything was queued.")
    console.print(f"[dim]compiled in {time.monotonic() - started:.0f} s[/dim]\n")
    return compile_id


def _newest(access: Access) -> str | None:
    rows = access.get("/v1/compiles?limit=1")["data"]
    return str(rows[0]["id"]) if rows else None


def show(access: Access, compile_id: str, path: Path, console: Console) -> bool:
    """Print the result; returns whether there is an artifact."""
    compile = access.get(f"/v1/compiles/{compile_id}")
    console.print(demo_report.verdict(compile))
    console.print(demo_report.slices(access.get(f"/v1/compiles/{compile_id}/slices")["data"]))
    console.print(demo_report.costs(compile, access.get(f"/v1/compiles/{compile_id}/steps")["data"]))
    if compile["artifact"] is None:
        return False
    console.print(f"\n[bold]artifact[/bold]  {path}  ({path.stat().st_size:,} bytes)", soft_wrap=True)
    return True


def try_out(access: Access, path: Path, console: Console) -> int:
    """`kolm verify`, then three `kolm run`; returns the first status that is not 0."""
    statuses = []
    for arguments in (("verify", str(path)), *(("run", str(path), message) for message in MESSAGES)):
        words = " ".join(f'"{word}"' for word in arguments[2:])
        console.print(f"\n[bold]$ kolm {arguments[0]} {path.name}[/bold] {words}", soft_wrap=True, highlight=False)
        done = access.kolm(*arguments, quiet=True)
        print((done.stdout + done.stderr).strip(), flush=True)
        statuses.append(done.returncode)
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())
