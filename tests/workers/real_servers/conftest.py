"""Each real server once, behind a wire that is listened to. One that is not installed is skipped by name."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.real_servers.servers import KINDS, RealServer
from tests.workers.real_servers.wire import Wire, listening

MARKS = {"vllm": [pytest.mark.vllm]}


@pytest.fixture(
    scope="session", params=[pytest.param(kind, id=kind.name, marks=MARKS.get(kind.name, [])) for kind in KINDS]
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    kind = request.param
    missing = kind.missing()
    if missing:
        pytest.skip(missing)
    with kind.running(tmp_path_factory.mktemp(kind.name)) as running:
        yield running


@pytest.fixture
def wire(server: RealServer, settings: Any) -> Iterator[Wire]:
    with listening(server) as heard:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (heard.origin,)
        yield heard
