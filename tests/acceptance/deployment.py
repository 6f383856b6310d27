"""A whole deployment for tests: every part of `deploy.embedded` as a process of its own, on free ports, with data in a
temporary folder and leases of a few seconds.

Tests reach it as customers do, over HTTP with an API key. What no customer sees (the journal of teacher calls, usage
facts, drafts) is read as Postgres' superuser, whom row-level security does not bind.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
import psycopg
from psycopg.rows import dict_row

from backend.domain.ids import Prefix, decode_id
from deploy.embedded import credentials, layout, postgres
from deploy.embedded.home import ROOT, Home
from deploy.embedded.layout import EVERYTHING, Layout, Part
from deploy.embedded.ports import free_ports
from deploy.embedded.stack import EmbeddedServices, end_leftovers

COMPILE_LEASE_S, RUNNER_LEASE_S = 3, 4
TERMINAL = frozenset({"succeeded", "gate_failed", "failed", "canceled", "expired"})
T = TypeVar("T")
Row = dict[str, Any]
# one process for what an operator does in two: Django takes a second to begin
_CUSTOMER = """
import io, json, sys
import django
django.setup()
from django.core.management import call_command
def made(*command):
    answer = io.StringIO()
    call_command(*command, "--json", stdout=answer)
    return json.loads(answer.getvalue())
tenant = made("create_tenant", sys.argv[1])["id"]
key = made("create_api_key", "--tenant", tenant, "--name", "tests", "--scopes", "all")["secret"]
print(json.dumps([tenant, key]))
"""


def eventually(look: Callable[[], T | None], *, within_s: float, every_s: float = 0.1, what: str = "") -> T:
    """The first truthy answer of `look`; fails when there is none within so many seconds of a machine with nothing else
    to do, and as many times longer as there is work for each of its cores."""
    began, busy = time.monotonic(), 1.0
    while not (found := look()):
        busy = max(busy, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert time.monotonic() - began < within_s * busy, (
            f"not within {within_s:.0f} s of a quiet machine ({busy:.1f} times as long on this one): {what or look}"
        )
        time.sleep(every_s)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """A tenant with an API key."""

    tenant_id: UUID
    key: str
    api: httpx.Client

    def get(self, path: str, **query: Any) -> Any:
        response = self.api.get(path, params=query)
        assert response.status_code == 200, f"GET {path}: {response.status_code} {response.text[:500]}"
        return response.json()

    def compile(self, spec: Mapping[str, Any]) -> str:
        """Start a compile; its id."""
        response = self.api.post("/v1/compiles", json=spec)
        assert response.status_code == 202, f"{response.status_code} {response.text[:2000]}"
        return str(response.json()["id"])

    def ended(self, compile_id: str, *, within_s: float) -> Row:
        """The compile once it has ended."""

        def look() -> Row | None:
            compile: Row = self.get(f"/v1/compiles/{compile_id}")
            return compile if compile["status"] in TERMINAL else None

        return eventually(look, within_s=within_s, every_s=0.2, what=f"{compile_id} ends")

    def succeeded(self, compile_id: str, *, within_s: float) -> Row:
        compile = self.ended(compile_id, within_s=within_s)
        assert compile["status"] == "succeeded", json.dumps({k: compile[k] for k in ("status", "failure", "gate")})
        return compile

    def events(self, compile_id: str) -> list[Row]:
        """All events so far."""
        found: list[Row] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.get(f"/v1/compiles/{compile_id}/events", after=after)
            found += page["data"]
            if not page["has_more"]:
                return found

    def download(self, artifact_id: str) -> bytes:
        response = self.api.get(f"/v1/artifacts/{artifact_id}/download")
        assert response.status_code == 200, response.text
        return response.content


class Deployment:
    """What is the same whoever started the parts."""

    def __init__(self, plan: Layout) -> None:
        self.plan = plan

    @property
    def url(self) -> str:
        return self.plan.local_url

    def child(self, part: Part) -> int:
        """The pid of a part, as the supervisor noted it."""
        return int(self.plan.home.read_state()["children"][part]["pid"])

    def rows(self, query: str, *parameters: object) -> list[Row]:
        """Rows of any tenant."""
        with self.connect() as connection:
            return connection.execute(query, parameters).fetchall()

    def connect(self) -> "psycopg.Connection[Row]":
        password = self.plan.credentials.postgres_superuser_password
        address = postgres.url(self.plan.ports[Part.POSTGRES], "postgres", password)
        return psycopg.connect(address, autocommit=True, row_factory=dict_row)

    @contextmanager
    def customer(self, name: str) -> Iterator[Customer]:
        command = [sys.executable, "-c", _CUSTOMER, name]
        environment = self.plan.backend_environment()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        tenant, key = json.loads(done.stdout)
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=40) as api:
            yield Customer(tenant_id=decode_id(Prefix.TENANT, tenant), key=key, api=api)

    def manage(self, *arguments: str) -> Row:
        """What a management command answers."""
        command = [sys.executable, "manage.py", *arguments, "--json"]
        environment = self.plan.backend_environment()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        answer: Row = json.loads(done.stdout)
        return answer

    def python(self, *arguments: str, stdout: int | None = None, **variables: str) -> "subprocess.Popen[bytes]":
        """Another process of this deployment, with the settings of web and worker. The caller ends it."""
        environment = self.plan.backend_environment() | variables
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stdout)


def _variables(allow_teachers: str, **more: str) -> dict[str, str]:
    """The caller's environment without what the test run's own servers left in it."""
    ours = ("DATABASE_", "REDIS_", "KOLM_", "DJANGO_", "PYTEST_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return inherited | {
        "KOLM_PORT": str(free_ports(1)[0]),
        "KOLM_COMPILE_LEASE_S": str(COMPILE_LEASE_S),
        "KOLM_RUNNER_LEASE_S": str(RUNNER_LEASE_S),
        "KOLM_ALLOW_PRIVATE_TEACHERS": allow_teachers,
        "KOLM_RATE_PER_KEY": "100000",
        "KOLM_RATE_PER_TENANT": "100000",
        "KOLM_DEFAULT_PLAN": "enterprise",
        **more,
    }


@contextmanager
def running(*, allow_teachers: str = "0", parts: Sequence[Part] = EVERYTHING, **variables: str) -> Iterator[Deployment]:
    """All parts, or those that a test needs, as children of this process. None is restarted when it dies."""
    services = EmbeddedServices(services=tuple(parts), variables=_variables(allow_teachers, **variables))
    try:
        services.stack.start()
        yield Deployment(services.stack.plan)
    finally:
        _show_logs(services.home)
        services.close()


@contextmanager
def supervised(*, allow_teachers: str = "0") -> Iterator[Deployment]:
    """All parts under `python -m deploy.embedded up`, which restarts what dies."""
    home = Home(path=Path(tempfile.mkdtemp(prefix="kolm-faults-")))
    variables = _variables(allow_teachers, KOLM_HOME=str(home.path))
    try:
        _embedded(variables, "up", "--detach")
        state = home.read_state()
        parts = tuple(Part(name) for name in state["parts"])
        secrets = credentials.load_or_create(home)
        yield Deployment(layout.plan(home, secrets, variables, parts, recorded=state["ports"]))
    finally:
        _show_logs(home)
        _embedded(variables, "down")
        end_leftovers(home)
        shutil.rmtree(home.path)


def _embedded(variables: Mapping[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "deploy.embedded", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=dict(variables), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def _show_logs(home: Home) -> None:
    """The ends of the logs, for whoever reads a failed run; pytest swallows them otherwise."""
    for log in sorted(home.logs.glob("*.log")):
        lines: Sequence[str] = log.read_text(errors="replace").splitlines()[-15:]
        print(f"--- {log.name}", *lines, sep="\n")
