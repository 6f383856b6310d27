"""How long each test takes: `tests/durations.tsv`, committed, and the plugin that measures it anew (`make durations`).

One line a test function, all its parameters together: seconds of set-up, call and tear-down by the wall clock, how many
tests that were, and its name. The scheduler of parallel workers (`tests.scheduling`) starts with what takes longest, so
the table need not be exact and a new test needs no line.
"""

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "durations.tsv"
HEAD = "# seconds\ttests\tname: written by `make durations`"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", type=Path, metavar="FILE", help="write how long each test function took")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.durations_to and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.option.durations_to))


class Recorder:
    """Adds up what is reported, by workers too, and writes the table at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = function_of(report.nodeid)
        self._seconds[name] += report.duration
        self._tests[name] += report.when == "setup"

    def pytest_sessionfinish(self) -> None:
        rows = [f"{self._seconds[name]:.2f}\t{self._tests[name]}\t{name}" for name in sorted(self._seconds)]
        self._path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")


def function_of(node_id: str) -> str:
    """The node id without its parameters, which may hold anything: `tests/a/test_b.py::test_c`."""
    return node_id.partition("[")[0].partition("@")[0]


@cache
def seconds_by_function() -> dict[str, float]:
    """Wall seconds of each line of the committed table."""
    return {name: seconds for name, (seconds, _) in _rows().items()}


@cache
def seconds_by_case() -> dict[str, float]:
    """Wall seconds of one test of each line, on the average."""
    return {name: seconds / max(1, n) for name, (seconds, n) in _rows().items()}


def _rows() -> dict[str, tuple[float, int]]:
    if not TABLE.exists():
        return {}
    rows = (line.split("\t", 2) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:])
    return {name: (float(seconds), int(n)) for seconds, n, name in rows}
