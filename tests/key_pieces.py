"""A deployment's keys for one test: files of its own, and what the owner of the tables writes down is taken back."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from backend.artifacts.models import SigningKey
from deploy.embedded.stack import EmbeddedServices


@contextmanager
def as_owner(services: EmbeddedServices) -> Iterator[None]:
    """This thread is the owner of the tables for a while, as an operator with KOLM_DB_ROLE=owner is."""
    before = {name: connection.settings_dict[name] for name in ("USER", "PASSWORD")}
    parts = conninfo_to_dict(services.env["DATABASE_OWNER_URL"])
    _connect(USER=parts["user"], PASSWORD=parts["password"])
    try:
        yield
    finally:
        _connect(**before)


def _connect(**changed: Any) -> None:
    connection.close()
    connection.close_pool()
    connection.settings_dict.update(changed)


@contextmanager
def no_database() -> Iterator[None]:
    """This thread's connections are refused, as while Postgres is away."""
    before = connection.settings_dict["PORT"]
    _connect(PORT="1")
    try:
        yield
    finally:
        _connect(PORT=before)


def run_as_owner(services: EmbeddedServices, *command: str) -> str:
    out = StringIO()
    with as_owner(services):
        call_command(*command, stdout=out)
    return out.getvalue()


@contextmanager
def signing_key_of_its_own(folder: Path, services: EmbeddedServices) -> Iterator[Path]:
    """The session's signing key in a file that may be replaced. Needs `committed_db`."""
    before, mine = settings.KOLM_SIGNING_KEY_FILE, folder / "signing_key.pem"
    mine.write_bytes(Path(before).read_bytes())
    documents = list(SigningKey.objects.values())
    settings.KOLM_SIGNING_KEY_FILE = mine
    try:
        yield mine
    finally:
        settings.KOLM_SIGNING_KEY_FILE = before
        with as_owner(services):
            SigningKey.objects.all().delete()
            SigningKey.objects.bulk_create(SigningKey(**each) for each in documents)
