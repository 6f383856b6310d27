"""A Postgres of the bench's own, with the settings of production (what is committed is on the disk), migrated, and
Django connected to it as kolm_app. It ends with the bench."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from deploy.embedded import postgres
from deploy.embedded.home import ROOT
from deploy.embedded.ports import HOST
from deploy.embedded.stack import EmbeddedServices

_FROM_OUTSIDE = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    port: int
    superuser_password: str
    app_password: str

    def superuser(self) -> "psycopg.Connection[Any]":
        """For loading in bulk (COPY refuses tables with row-level security) and VACUUM; sees all rows."""
        return self._connect("postgres", self.superuser_password)

    def app(self) -> "psycopg.Connection[Any]":
        """As the product's processes are: row-level security binds it."""
        return self._connect("kolm_app", self.app_password)

    def set_fsync(self, is_on: bool) -> None:
        with self.superuser() as connection:
            connection.execute(f"ALTER SYSTEM SET fsync = {'on' if is_on else 'off'}")
            connection.execute("SELECT pg_reload_conf()")

    def _connect(self, user: str, password: str) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            host=HOST, port=self.port, user=user, password=password, dbname=postgres.DATABASE, autocommit=True
        )


@contextmanager
def running_server() -> Iterator[Server]:
    variables = {name: value for name, value in os.environ.items() if name not in _FROM_OUTSIDE}
    with EmbeddedServices(services=("postgres",), variables=variables, forgetful=False) as services:
        os.environ.update(services.env)
        owner = os.environ | {"KOLM_DB_ROLE": "owner"}
        for command in (("migrate", "--verbosity", "0"), ("install_tenant_key", "--verbosity", "0")):
            subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=owner, check=True)
        import django

        django.setup()
        keys = services.stack.plan.credentials
        yield Server(
            port=next(iter(services.stack.plan.ports.values())),
            superuser_password=keys.postgres_superuser_password,
            app_password=keys.postgres_app_password,
        )
        from django.db import connection

        connection.close()
        connection.close_pool()


@dataclass(slots=True)
class Spent:
    wall_s: float = 0.0
    cpu_s: float = 0.0
    was_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`n` things done in `spent`."""

    n: int
    spent: Spent

    @property
    def per_s(self) -> float:
        return self.n / self.spent.wall_s

    @property
    def cpu_ms(self) -> float:
        return self.spent.cpu_s * 1e3 / self.n


@contextmanager
def clock(backends: Sequence[int] = ()) -> Iterator[Spent]:
    """Wall seconds, and CPU seconds of this process together with those of the given Postgres backends (Linux)."""
    spent = Spent()
    cpu, wall = _cpu_s(backends), time.perf_counter()
    yield spent
    spent.wall_s = time.perf_counter() - wall
    spent.cpu_s = _cpu_s(backends) - cpu


def _cpu_s(backends: Sequence[int]) -> float:
    theirs = sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in backends)
    return time.process_time() + theirs * 1e-9
