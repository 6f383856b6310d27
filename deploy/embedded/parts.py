"""The parts: what each is started with, when it counts as ready, and what has to happen before and after."""

import signal
import subprocess
import urllib.request
from collections.abc import Mapping

from deploy.embedded import postgres, valkey
from deploy.embedded.faults import CannotStart
from deploy.embedded.home import ROOT, replace_private
from deploy.embedded.layout import Layout, Part, python
from deploy.embedded.liveness import answers
from deploy.embedded.ports import HOST
from deploy.embedded.processes import ChildSpec, last_line

BEATING = frozenset({Part.WORKER, Part.UPKEEP, Part.DELIVERIES, Part.RUNNER})  # they listen nowhere


def child_specs(plan: Layout, *, forgetful: bool = False) -> dict[Part, ChildSpec]:
    """One ChildSpec for every part of the plan, in starting order."""
    home, ports = plan.home, plan.ports
    bare = plan.bare_environment()
    backend = plan.backend_environment()

    def program(
        part: Part, env: Mapping[str, str], *command: str, ready: str | None = None, alive: str | None = None
    ) -> ChildSpec:
        beats = home.heartbeat(part) if part in BEATING else None
        return ChildSpec(
            name=part,
            command=python(*command),
            env={**env, "KOLM_HEARTBEAT_FILE": str(beats)} if beats else env,
            cwd=ROOT,
            log=home.log(part),
            port=ports.get(part),
            # the web server passes SIGTERM on to its worker process; the others hold nothing that a lease does not
            # cover
            orphan_signal=signal.SIGTERM if part is Part.WEB else signal.SIGKILL,
            is_ready=(lambda: answers(ready)) if ready else None,
            alive_url=alive,
            alive_file=beats,
            prepare=(lambda: migrate(plan)) if part is Part.WEB else None,
            after_ready=(lambda: pin_keyring(plan)) if part is Part.WEB else None,
        )

    specs: dict[Part, ChildSpec] = {}
    for part in plan.parts:
        if part is Part.POSTGRES:
            specs[part] = postgres.child_spec(home, plan.credentials, ports[part], bare, forgetful=forgetful)
        elif part is Part.VALKEY:
            specs[part] = valkey.child_spec(home, plan.credentials, ports[part], bare, forgetful=forgetful)
        elif part is Part.GRAMMAR:
            where = ("--host", HOST, "--port", str(ports[part]))
            specs[part] = program(part, bare, "-m", "workers.teachers.grammar.server", *where, ready=plan.grammar_url)
        elif part is Part.WEB:
            local = f"http://{HOST}:{ports[part]}/readyz"
            alive = f"http://{HOST}:{ports[part]}/healthz"
            specs[part] = program(part, backend, *_granian(ports[part]), ready=local, alive=alive)
        elif part is Part.WORKER:
            pool = ("--pool", "threads", "--concurrency", "4", "--loglevel", "INFO")
            specs[part] = program(part, backend, "-m", "celery", "-A", "workers.main", "worker", *pool)
        elif part is Part.UPKEEP:
            specs[part] = program(part, backend, "-m", "workers.upkeep")
        elif part is Part.DELIVERIES:
            specs[part] = program(part, backend, "-m", "workers.deliveries")
        elif part is Part.RUNNER:
            specs[part] = program(part, plan.runner_environment(), "-m", "gpu_runners.agent")
        else:
            local = f"http://{HOST}:{ports[part]}/healthz"
            specs[part] = program(
                part, plan.server_environment(), "-m", "gpu_runners.serving", ready=local, alive=local
            )
    return specs


def _granian(port: int) -> tuple[str, ...]:
    command = ("-m", "granian", "--interface", "asginl", "--workers", "1", "--no-ws", "--workers-kill-timeout", "3")
    limits = ("--http1-header-read-timeout", "10000")  # ms: who drips headers is cut
    return (*command, *limits, "--host", HOST, "--port", str(port), "backend.asgi:application")


def migrate(plan: Layout) -> None:
    """Bring the tables up to date as their owner, give the database the key it checks tenants with, and the signing key
    its document."""
    log = plan.home.log("migrate")
    command = python("manage.py", "prepare_database", "--only")
    with log.open("ab") as out:
        done = subprocess.run(command, cwd=ROOT, env=plan.owner_environment(), stdout=out, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise CannotStart(f"manage.py prepare_database failed: {last_line(log)} (log: {log})")


def pin_keyring(plan: Layout) -> None:
    """Keep this installation's public keys beside its data: what the runner and `kolm verify` trust from now on."""
    with urllib.request.urlopen(f"{plan.local_url}/.well-known/kolm-keys.json", timeout=10) as response:
        replace_private(plan.home.keyring, response.read().decode())
