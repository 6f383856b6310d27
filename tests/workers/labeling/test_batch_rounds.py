"""Rounds of labelling whose calls go into a vendor's batches."""

import pytest

from backend.domain.lifecycle import StepName
from tests.workers.labeling.test_purchases import GOLD, TEXTS
from tests.workers.pipeline_helpers import calls, candidates, check_money, step
from tests.workers.steps.test_batch_mode import batches_of, carry_to, compile_in_batches
from tests.workers.steps.test_batch_mode import vendor as vendor
from tests.workers.teachers.batch_vendor import BatchVendor

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_plan_that_decides_sends_a_batch_a_round_and_two_rounds_of_rows(vendor: BatchVendor) -> None:
    row = compile_in_batches(
        vendor,
        plan="auto",
        sampling={},
        captures={"inline": [*TEXTS, *(f"{text} Once more." for text in TEXTS)]},
        examples={"inline": GOLD, "holdout": 0.5},
    )
    carry_to(row, StepName.DISTILLATION)
    purchases = step(row, StepName.LABELING).purchases
    of_rows = [one for one in purchases if "round" in one and "asked_again" not in one["why"]]
    assert len(of_rows) == 1, "the start is a round as well"
    assert "stopped_for" in purchases[-1]
    labeling = [batch for batch in batches_of(row) if batch.step == StepName.LABELING]
    assert 2 <= len(labeling) <= 3
    labeled = candidates(row, state__in=["trained", "left_out", "unverified"])
    assert len(labeled) == 20 + of_rows[0]["n"]
    keys = [call.key for call in calls(row) if call.step == StepName.LABELING]
    assert len(keys) == len(set(keys)), "nothing is asked twice"
    check_money(row)
