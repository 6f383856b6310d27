"""`python -m deploy.embedded up [--detach] | down | status | env | wipe`. Exit status 0: done; 1: could not, in one
sentence; 3: not up.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from deploy.embedded import credentials, layout
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import EVERYTHING, Part
from deploy.embedded.processes import created_at, last_line
from deploy.embedded.stack import end_leftovers, run

NOT_UP = 3
START_WITHIN_S = 180.0
STOP_WITHIN_S = 40.0


def up(home: Home, variables: Mapping[str, str], parts: tuple[Part, ...], *, detach: bool) -> int:
    if home.is_up():
        print(f"kolm is already up at {home.read_state().get('url', '(starting)')}")
        return 0
    if not detach:
        run(home, variables, parts)
        return 0
    return _up_detached(home, variables, parts)


def _up_detached(home: Home, variables: Mapping[str, str], parts: tuple[Part, ...]) -> int:
    home.create()
    log = home.log("supervisor")
    command = [sys.executable, "-m", "deploy.embedded", "up", "--only", ",".join(parts)]
    with log.open("wb") as out:
        supervisor = subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    shown, deadline = "", time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        state = home.read_state()
        doing = state.get("doing", "") if state.get("supervisor") == supervisor.pid else ""
        if doing == "ready":
            print(f"kolm is up at {state['url']} (logs: {home.logs}); `make down` ends it")
            return 0
        if doing and doing != shown:
            shown = doing
            print(f"{doing} ...", flush=True)
        if supervisor.poll() is not None:
            raise CannotStart(last_line(log))
        time.sleep(0.05)
    supervisor.terminate()
    raise CannotStart(f"kolm was not up after {START_WITHIN_S:.0f} s; it was {shown or 'starting'} (logs: {home.logs})")


def down(home: Home) -> int:
    """End the stack, or what a killed supervisor has left of it."""
    if not home.is_up():
        if home.state.exists():
            end_leftovers(home)
        print("kolm is not up")
        return 0
    supervisor = home.read_state().get("supervisor")
    deadline = time.monotonic() + STOP_WITHIN_S
    if supervisor is not None:
        os.kill(supervisor, signal.SIGTERM)
    while home.is_up():
        if time.monotonic() > deadline:
            raise CannotStart(
                f"The supervisor (process {supervisor}) did not end within {STOP_WITHIN_S:.0f} s; "
                f"see {home.log('supervisor')}."
            )
        time.sleep(0.05)
    print("kolm is down; its data stays in", home.path)
    return 0


def status(home: Home, *, as_json: bool) -> int:
    state = home.read_state() if home.is_up() else {}
    children = state.get("children", {})
    rows = {name: child | {"running": created_at(child["pid"]) is not None} for name, child in children.items()}
    if as_json:
        print(json.dumps(state | {"children": rows}, indent=2))
    elif not state:
        print("kolm is not up; `make up` starts it")
    else:
        print(f"{state['url']}  {state['doing']}")
        for name, row in rows.items():
            port = state["ports"].get(name, "-")
            running = "running" if row["running"] else "down"
            why = f" (the last: {row['reason']})" if row.get("reason") else ""
            print(f"  {name:<10} {running:<8} pid {row['pid']:<8} port {port!s:<6} restarts {row['restarts']}{why}")
    return 0 if state.get("doing") == "ready" else NOT_UP


def env(home: Home, variables: Mapping[str, str]) -> int:
    """Shell exports of a running stack, for `eval "$(python -m deploy.embedded env)"`."""
    state = home.read_state() if home.is_up() else {}
    if not state:
        print("kolm is not up; `make up` starts it", file=sys.stderr)
        return NOT_UP
    parts = tuple(Part(name) for name in state["parts"])
    plan = layout.plan(home, credentials.load_or_create(home), variables, parts, recorded=state["ports"])
    for name, value in plan.exports().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def wipe(home: Home, *, sure: bool) -> int:
    if home.is_up():
        raise CannotStart("The stack is up: end it first with `python -m deploy.embedded down`.")
    if not sure:
        raise CannotStart(
            f"This deletes every compile, artifact and key in {home.path}; say `wipe --yes` if you mean it."
        )
    end_leftovers(home)
    home.wipe()
    print(f"{home.path} is empty")
    return 0


def _parts(text: str) -> tuple[Part, ...]:
    wanted = text.split(",")
    if unknown := [name for name in wanted if name not in set(Part)]:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}; there are {', '.join(Part)}")
    return tuple(part for part in Part if part in wanted)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="python -m deploy.embedded", description="kolm on one machine, from $KOLM_HOME (default ./.kolm)."
    )
    commands = root.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start everything and stay in front; with --detach, return once it is up")
    start.add_argument("--detach", action="store_true")
    start.add_argument("--only", type=_parts, default=EVERYTHING, metavar="PART,PART", help=f"of {', '.join(Part)}")
    commands.add_parser("down", help="end everything; the data stays")
    show = commands.add_parser("status", help="what is running")
    show.add_argument("--json", action="store_true")
    commands.add_parser("env", help="print shell exports for the running stack (they hold its secrets)")
    erase = commands.add_parser("wipe", help="delete all data")
    erase.add_argument("--yes", action="store_true")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    variables = layout.environ()
    home = Home.from_environ(variables)
    try:
        if chosen.command == "up":
            return up(home, variables, chosen.only, detach=chosen.detach)
        if chosen.command == "down":
            return down(home)
        if chosen.command == "status":
            return status(home, as_json=chosen.json)
        if chosen.command == "env":
            return env(home, variables)
        return wipe(home, sure=chosen.yes)
    except CannotStart as fault:
        print(fault, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
