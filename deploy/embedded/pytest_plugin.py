"""Postgres and Valkey for the tests: `-p deploy.embedded.pytest_plugin` (in pyproject.toml).

Ports and secrets are chosen before Django reads its settings; the servers start once it is known that a collected test
needs them, and die with pytest. DATABASE_URL and REDIS_URL from outside are used instead. `tests/conftest.py` says as
whom tests connect.
"""

import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.home import ROOT
from deploy.embedded.stack import EmbeddedServices

SERVICES = pytest.StashKey[EmbeddedServices]()
# folders whose tests need no server, unless one of them asks for the database
WITHOUT_SERVERS = tuple(
    ROOT / "tests" / folder for folder in ("backend/domain", "gpu_runners", "deploy", "acceptance", "browser", "faults")
)
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "django_db_setup", "live_server", "embedded_services"})


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """A wrapper, to be before pytest-django's own hook, which reads the settings."""
    services = EmbeddedServices()
    early_config.stash[SERVICES] = services
    os.environ.update(services.env)
    return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(map(_needs_servers, session.items)):
        session.config.stash[SERVICES].stack.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    services = config.stash.get(SERVICES, None)
    if services is not None:
        services.close()


def _needs_servers(item: pytest.Item) -> bool:
    asks = item.get_closest_marker("django_db") is not None
    asks = asks or bool(DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))
    return asks or not _is_below(item.path, WITHOUT_SERVERS)


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@pytest.fixture(scope="session")
def embedded_services(pytestconfig: pytest.Config) -> EmbeddedServices:
    return pytestconfig.stash[SERVICES]
