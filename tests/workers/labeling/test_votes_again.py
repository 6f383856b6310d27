"""Further votes beside the answers that an earlier compile's teacher gave, through the steps on real rows."""

from typing import Any

import pytest

from backend.compiles.models import Compile
from backend.compiles.states import LABELED_STATES
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS
from tests.factories import make_tenant
from tests.workers.labeling.test_purchases import ALL, TEXTS, make, recorded
from tests.workers.pipeline_helpers import calls, candidates, check_money, start, step, walk_through

pytestmark = pytest.mark.usefixtures("committed_db")
# a teacher that guesses about every other text
GUESSED = {text: [LABELS[(i + n) % 2] for n in range(5)] for i, text in enumerate(TEXTS) if i % 4}


def n_asked_again(row: Compile) -> list[int]:
    """Of each round of further votes."""
    return [one["n"] for one in step(row, StepName.LABELING).purchases if "asked_again" in one.get("why", ())]


def n_answered(row: Compile) -> int:
    return sum(call.n for call in calls(row) if call.step == StepName.LABELING)


def n_votes(row: Compile) -> dict[str, int]:
    return {one.text: sum(one.votes.values()) for one in candidates(row, state__in=LABELED_STATES)}


def known(row: Compile) -> dict[str, int]:
    with tenant_scope(row.tenant_id):
        return {one.text: len(one.known_answers or ()) for one in candidates(row, state__in=LABELED_STATES)}


@pytest.mark.nightly
def test_inputs_with_known_answers_that_are_asked_again_have_the_votes_of_one_call_more(monkeypatch: Any) -> None:
    recorded(monkeypatch, GUESSED)
    tenant, cached = make_tenant(), {"draft_cache": {"enabled": True}}
    earlier = make(tenant, sampling={"k_select": len(TEXTS), "label_samples": 2}, **cached)
    walk_through(start(earlier), *ALL)
    row = make(tenant, **cached)
    walk_through(start(row), *ALL)
    assert set(known(row).values()) == {2}
    rounds = n_asked_again(row)
    assert rounds[0] > 0
    assert sum(rounds) == sum(call.step == StepName.LABELING for call in calls(row)), "one call each"
    assert sum(rounds) < n_answered(row) == sum(n_votes(row).values()) - sum(known(row).values())
    check_money(row)
