"""A process that dies anywhere in the rounds of labelling is followed by one that goes on: nothing is asked or paid
twice, and the same is bought."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from backend.compiles import leases
from backend.compiles.models import Compile
from backend.domain.lifecycle import StepName
from tests.factories import make_tenant
from tests.workers.labeling.test_purchases import TEXTS, TO_SELECTION, make, other, recorded, right_label
from tests.workers.pipeline_helpers import calls, candidates, check_money, start, step, take_over, walk_through

pytestmark = pytest.mark.usefixtures("committed_db")


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


def bought(row: Compile) -> list[tuple[Any, ...]]:
    return [(one.text, one.state, one.votes, one.posterior, one.bought_in, one.bought_for) for one in candidates(row)]


def live_and_die(monkeypatch: Any, after: int, *, is_committed: bool) -> dict[str, int]:
    """The process dies right before or right after its transaction of this number commits."""
    real, n = leases.fenced_transaction, {"left": after}

    @contextmanager
    def dying(lease: leases.Lease) -> Iterator[Any]:
        with real(lease) as fenced:
            yield fenced
            n["left"] -= 1
            if n["left"] == 0 and not is_committed:
                raise Killed
        if n["left"] == 0:
            raise Killed

    monkeypatch.setattr(leases, "fenced_transaction", dying)
    return n


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_committed", [True, False], ids=["after", "before"])
def test_labelling_that_dies_at_every_transaction_ends_as_if_it_had_not(monkeypatch, is_committed):
    wrong = {text: [other(right_label(text)), *[right_label(text)] * 4] for text in TEXTS[18:21]}
    recorded(monkeypatch, wrong)
    teacher = {"provider": "grammar", "model": "kolm-grammar-1", "concurrency": 16}
    changes: dict[str, Any] = {
        "teacher": teacher,
        "plan": "auto",
        "sampling": {"min_agreement": 0.95},
        "draft_cache": {"enabled": False},
    }
    tenant = make_tenant()  # whose gold is divided in one way
    whole = make(tenant, **changes)
    walk_through(start(whole), *TO_SELECTION, StepName.LABELING)
    row = make(tenant, **changes)
    run = start(row)
    walk_through(run, *TO_SELECTION)
    real = leases.fenced_transaction
    for after in range(1, 200):
        live_and_die(monkeypatch, after, is_committed=is_committed)
        try:
            walk_through(run, StepName.LABELING)
            break
        except Killed:
            monkeypatch.setattr(leases, "fenced_transaction", real)
            run = take_over(run, row)
    monkeypatch.setattr(leases, "fenced_transaction", real)
    assert after > 5
    assert step(row, StepName.LABELING).status == "succeeded"
    assert bought(row) == bought(whole)
    assert step(row, StepName.LABELING).purchases == step(whole, StepName.LABELING).purchases
    applied = [call.key for call in calls(row) if call.step == StepName.LABELING and call.state == "applied"]
    assert sorted(applied) == sorted(call.key for call in calls(whole) if call.step == StepName.LABELING)
    check_money(row)
