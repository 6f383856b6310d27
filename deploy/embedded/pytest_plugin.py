"""Postgres and Valkey for the tests: `-p deploy.embedded.pytest_plugin` (in pyproject.toml).

Ports and secrets are chosen before Django reads its settings; the servers start once it is known that a collected test
needs them, and die with pytest. DATABASE_URL and REDIS_URL from outside are used instead. `tests/conftest.py` says as
whom tests connect.

Each of several workers (`pytest -n`) has servers of its own: tests stop theirs, fill them and read their logs. That
costs a worker 0.6 s for the servers and 4 s for the migrations.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

from deploy.embedded.stack import EmbeddedServices

SET_BY_CONTROLLER = "KOLM_TESTS_SET_BY_CONTROLLER"
SERVICES = pytest.StashKey[EmbeddedServices]()
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "django_db_setup", "live_server", "embedded_services"})


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """A wrapper, to be before pytest-django's own hook, which reads the settings."""
    for name in os.environ.pop(SET_BY_CONTROLLER, "").split():  # we are a worker: these name the controller's servers
        del os.environ[name]
    services = EmbeddedServices()
    early_config.stash[SERVICES] = services
    os.environ[SET_BY_CONTROLLER] = " ".join(services.env.keys() - os.environ.keys())
    os.environ.update(services.env)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Hand on the servers of this process, if it is a controller of workers: what a test starts has the environment of
    its own."""
    if not getattr(config.option, "numprocesses", None):
        os.environ.pop(SET_BY_CONTROLLER, None)


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(map(_needs_servers, session.items)):
        session.config.stash[SERVICES].stack.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    services = config.stash.get(SERVICES, None)
    if services is not None:
        services.close()


def _needs_servers(item: pytest.Item) -> bool:
    has_mark = item.get_closest_marker("django_db") is not None
    return has_mark or bool(DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))


@pytest.fixture(scope="session")
def embedded_services(pytestconfig: pytest.Config) -> EmbeddedServices:
    return pytestconfig.stash[SERVICES]
