"""The tiers of the suite. A folder decides, and in the backend's and the workers' folders whether a test asks for the
database:

    unit         neither server nor other process: `make check`
    db           a real Postgres and Valkey, one of each to every worker
    process      other processes: real engines, sandboxes, the command, parts of a deployment
    acceptance   a whole deployment, and its console in a browser
    nightly      marked one by one, and the benches' tests: `make test-all` has them, with hypothesis' full profile

`make test` runs all but the last. The markers `faults` and `vllm` stand outside: they have suites of their own.
"""

from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent


class Tier(StrEnum):
    UNIT = "unit"
    DB = "db"
    PROCESS = "process"
    ACCEPTANCE = "acceptance"
    NIGHTLY = "nightly"


# the longest path that leads to a test decides; what no line names is UNIT, or DB where it asks for the database
FOLDERS = {
    "acceptance": Tier.ACCEPTANCE,
    "browser": Tier.ACCEPTANCE,
    "bench": Tier.NIGHTLY,
    "deploy": Tier.PROCESS,
    "faults": Tier.NIGHTLY,
    "gpu_runners": Tier.PROCESS,
    "vllm": Tier.NIGHTLY,
    "workers/embedding": Tier.PROCESS,
    "workers/sandbox": Tier.PROCESS,
}
DATABASE_FIXTURES = frozenset({"db", "django_db_setup", "committed_db", "embedded_services"})


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders of other tiers where one tier alone is asked for: importing their tests takes longer than
    the unit tests themselves."""
    asked, tier = config.option.markexpr, _tier_of_folder(collection_path)
    return True if asked in {Tier.UNIT, Tier.DB} and tier not in {None, asked} else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` chooses among them."""
    for item in items:
        if item.get_closest_marker(Tier.NIGHTLY) is None:
            item.add_marker(tier_of(item).value)  # a plain string: it crosses to the controller


def tier_of(item: pytest.Item) -> Tier:
    tier = _tier_of_folder(item.path)
    return tier or (Tier.DB if asks_for_the_database(item) else Tier.UNIT)


@cache  # asked for thousands of tests in a few hundred files
def _tier_of_folder(path: Path) -> Tier | None:
    if not path.is_relative_to(HERE):
        return None
    return FOLDERS.get(path.relative_to(HERE).as_posix()) or _tier_of_folder(path.parent)


def asks_for_the_database(item: pytest.Item) -> bool:
    has_mark = item.get_closest_marker("django_db") is not None
    return has_mark or bool(DATABASE_FIXTURES & set(getattr(item, "fixturenames", ())))
