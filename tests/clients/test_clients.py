"""litellm, langchain-openai, instructor and openai, as deploy/clients.lock.txt locks them, against `kolm serve`.

Skipped as a whole where `make setup-clients` has not been run; `make test-clients` does both.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.running import CLIENTS, MISSING, PYTHON, small_servers, try_client

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason=MISSING),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_servers(tmp_path_factory.mktemp("clients")) as path:
        yield path


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_what_the_page_says_of_it(name: str, work: Path) -> None:
    report = try_client(name, work)
    assert len(report.rows) >= 9
    assert [row for row in report.rows if row[1]] == []
