"""Whom the tests are to the database: the owner makes and migrates it, then every test is kolm_app, the role of
production, with exactly production's grants, whom row-level security binds.

Django cannot empty tables as that role, and append-only tables refuse it anyway: a test that needs real commits takes
`committed_db` and a tenant of its own. `transactional_db` and `live_server` are not for this project.

(Here and not in the plugin that starts the servers: a conftest's fixture replaces pytest-django's, a plugin's does
not.)
"""

import os
from collections.abc import Generator
from io import StringIO

import pytest
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict
from pytest_django import DjangoDbBlocker

from backend.valkey import PatientRedis, pause
from deploy.embedded.stack import EmbeddedServices

os.environ["HF_HUB_OFFLINE"] = "1"  # of every test and of what it starts: before the hub's library reads it


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: DjangoDbBlocker, embedded_services: EmbeddedServices
) -> Generator[None]:
    """In the place of pytest-django's, which makes no database for a run whose tests all take `committed_db`. It is
    not dropped: it ends with its server, and a process of the last test may still be leaving it."""
    from django.core.management import call_command
    from django.test.utils import setup_databases

    with django_db_blocker.unblock():
        _connect_as(embedded_services.env["DATABASE_OWNER_URL"])
        setup_databases(verbosity=0, interactive=False, aliases={"default"}, serialized_aliases=set())
        call_command("install_tenant_key")
        call_command("install_signing_key", stdout=StringIO())
        _connect_as(embedded_services.env["DATABASE_URL"])
        yield


@pytest.fixture
def committed_db(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Generator[None]:
    """The database without a transaction around the test: commits are real, other threads and processes see them, and
    nothing is taken back. Isolation is a tenant of one's own."""
    from django.db import connection

    assert request.node.get_closest_marker("django_db") is None, "django_db puts the test into a transaction after all"
    with django_db_blocker.unblock():
        yield
        connection.close()


def _connect_as(address: str) -> None:
    """Give Django's connection the user and password of `address`; which database it uses stays."""
    from django.db import connection

    connection.close()
    connection.close_pool()
    parts = conninfo_to_dict(address)
    connection.settings_dict["OPTIONS"]["pool"]["max_size"] = 40  # tests ask from more threads than a web process has
    connection.settings_dict.update({"USER": parts["user"], "PASSWORD": parts["password"]})


@pytest.fixture(scope="session", autouse=True)
def passwords_are_quick() -> Generator[None]:
    with override_settings(PASSWORD_HASHERS=["tests.quick_passwords.QuickArgon2"]):
        yield


@pytest.fixture(autouse=True)
def valkey_may_be_asked() -> None:
    """A test before may have taken Valkey away, less than a moment ago."""
    for each in (pause, PatientRedis.pause):
        each.note_answer()
