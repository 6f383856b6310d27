"""A short day of the bench `tests/bench/fair_queue.py`: two runners, big teams with long trainings, small ones with one
short job each."""

import pytest

from backend.domain.jobs.absence import Absence
from backend.runner_jobs import own_absence
from tests.bench.fair_queue import BAR, measure, quantile

pytestmark = pytest.mark.usefixtures("committed_db")


def test_a_small_team_waits_a_fifth_of_what_it_does_first_in_first_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_absence, "absence", Absence(break_s=1e9))
    size = {"n_big": 2, "n_small": 4, "each_big": 3, "hours": 0.6}
    fifo, fair = (measure(1, is_fair=is_fair, **size) for is_fair in (False, True))
    assert quantile(fair.small, 0.95) * BAR <= quantile(fifo.small, 0.95)
    assert fair.n_preempted > 0
    assert fair.ended <= 1.1 * fifo.ended, "giving way costs little"
