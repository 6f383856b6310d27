"""What the gateway keeps in its process is forgotten between tests, and no server is left registered."""

from collections.abc import Iterator
from typing import Any

import pytest

from backend.serving.gateway import admission
from backend.serving.models import Server
from backend.serving.runners import servers
from tests.backend.serving.worlds import FarSide, World, make_world, say_hello, served, web_process


@pytest.fixture(autouse=True)
def fresh_gateway(committed_db: None, settings) -> Iterator[None]:
    settings.KOLM_RATE_PER_KEY = settings.KOLM_RATE_PER_TENANT = 1_000_000
    Server.objects.all().delete()
    servers._looked_at = float("-inf")
    servers._unhealthy_until.clear()
    servers._under_way.clear()
    admission._callers.clear()
    yield
    Server.objects.all().delete()


@pytest.fixture(scope="package")
def web(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """For `chat` and for whoever looks at the socket itself."""
    from django.db import connection

    with django_db_blocker.unblock(), web_process() as url:
        yield url
        connection.close()


@pytest.fixture
def world(committed_db: None, web: str) -> World:
    return make_world()


@pytest.fixture
def far(committed_db: None, web: str) -> Iterator[FarSide]:
    """A server that is registered and answers."""
    side = FarSide()
    with served(side) as url:
        assert say_hello(url).status_code == 200
        yield side
