"""The tiers of the suite. A folder decides, and in the backend's and the workers' folders whether a test asks for the
database:

    unit         neither server nor model nor other process: `make check`
    db           a real Postgres and Valkey, one of each to every worker
    process      other processes and servers: real engines, sandboxes, teachers, the command, parts of a deployment
    acceptance   a whole deployment, and a first look at its console in a browser
    nightly      marked one by one, the browser's and the benches' tests, and of a test with many cases those that do
                 not fit into DAILY_S: `make test-all` has them, with hypothesis' full profile

`make test` runs all but the last. The markers `faults` and `vllm` stand outside: they have suites of their own.
"""

from collections import defaultdict
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

from tests.durations import function_of, seconds_by_case

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
    "browser": Tier.NIGHTLY,
    "browser/test_first_look.py": Tier.ACCEPTANCE,
    "clients": Tier.PROCESS,
    "bench": Tier.NIGHTLY,
    "deploy": Tier.PROCESS,
    "faults": Tier.NIGHTLY,
    "gpu_runners": Tier.PROCESS,
    "vllm": Tier.NIGHTLY,
    "workers/real_servers": Tier.NIGHTLY,
    "workers/sandbox": Tier.PROCESS,
    "workers/teachers/grammar/test_server.py": Tier.PROCESS,
    "workers/teachers/openai_compatible": Tier.PROCESS,
    "workers/teachers/verifiers": Tier.PROCESS,
    "workers/test_cluster_gap_of_texts.py": Tier.PROCESS,
    "workers/test_heartbeat.py": Tier.PROCESS,
    "workers/test_sender_ends.py": Tier.PROCESS,
}
DAILY = "not nightly and not faults and not vllm"  # as in pyproject.toml
DAILY_S = 1.5  # what one test function may take of a daily run, by the committed durations
DATABASE_FIXTURES = frozenset({"db", "django_db_setup", "committed_db", "embedded_services"})


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders of other tiers where one tier alone is asked for, and the nightly ones where they are not:
    importing their tests takes longer than the unit tests themselves."""
    asked, tier = config.option.markexpr, _tier_of_folder(collection_path)
    is_other = asked in {Tier.UNIT, Tier.DB} and tier not in {None, asked}
    is_nightly = asked == DAILY and tier is Tier.NIGHTLY and collection_path.is_file()
    return is_other or is_nightly or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` chooses among them."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker(Tier.NIGHTLY) is None:
            cases[function_of(item.nodeid)].append(item)
    known = seconds_by_case()
    for name, among in cases.items():
        daily = set(evenly(len(among), known.get(name, 0.0)))
        for i, item in enumerate(among):
            tier = tier_of(item) if i in daily else Tier.NIGHTLY
            item.add_marker(tier.value)  # a plain string: it crosses to the controller


def evenly(n: int, seconds_each: float) -> list[int]:
    """Which of `n` cases are tried daily: as many as fit into DAILY_S, at least one, at even distances."""
    n_daily = n if n * seconds_each <= DAILY_S else max(1, int(DAILY_S / seconds_each))
    return [i * n // n_daily for i in range(n_daily)]


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
