"""Which worker takes which tests, when the suite runs in several (`pytest -n`).

A file goes to one worker, whose fixtures it shares; those that share one deployment, or one world that takes long to
build, go to one worker together. What takes longest by the committed durations comes first, so that nobody waits for a
latecomer at the end.
"""

import os
import random
from collections import OrderedDict
from collections.abc import Mapping

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.durations import function_of, seconds_by_function

TOGETHER = (
    "tests/acceptance/",
    "tests/backend/drafts/test_isolation_",
    "tests/browser/",
    "tests/gpu_runners/kolm/",
    "tests/structure/",
)
UNKNOWN_S = 0.1  # of a test function that the table does not name


def pytest_configure(config: pytest.Config) -> None:
    """Sets are iterated in one order in all workers, so that they collect the same tests, and in another order each
    time."""
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(2**32)))


def pytest_report_header() -> str:
    return f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "LongestFirst":
    return LongestFirst(config, log)


class LongestFirst(LoadScopeScheduling):
    """xdist's scheduler of scopes, with our scopes in our order."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not any(self.assigned_work.values()):  # the first unit of all: the queue is as xdist made it
            seconds = seconds_by_scope(self.workqueue)
            ordered = sorted(self.workqueue.items(), key=lambda unit: (-seconds[unit[0]], unit[0]))
            self.workqueue = OrderedDict(ordered)
        super()._assign_work_unit(node)


def scope_of(node_id: str) -> str:
    path = node_id.partition("::")[0]
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


def seconds_by_scope(units: Mapping[str, Mapping[str, bool]]) -> dict[str, float]:
    """What each unit of work is expected to take."""
    known = seconds_by_function()
    functions = {scope: {function_of(node_id) for node_id in tests} for scope, tests in units.items()}
    return {scope: sum(known.get(name, UNKNOWN_S) for name in names) for scope, names in functions.items()}
