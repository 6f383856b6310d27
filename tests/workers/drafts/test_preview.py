"""A preview and the compile that follows it decide alike: one function makes the plan of both."""

from typing import Any

import pytest

from backend.domain.drafts.vocabulary import Arm, Strategy
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import parse_spec
from backend.tenants.models import Tenant
from tests.compile_factories import small_spec
from tests.factories import make_tenant
from tests.workers.drafts.test_offering import compile_once, off_topic_refused, spec, teacher
from tests.workers.pipeline_helpers import slices
from workers.live.draft_preview import prospects

pytestmark = pytest.mark.usefixtures("committed_db")
TASK = "Does the customer of this shop ask for money back?"
DEAR = {"price": {"input_usd_per_mtok": 9.0, "output_usd_per_mtok": 1.0}}
ENGINE = {"verify": "engine"}
STRICT = [{"kind": "excludes", "any_of": ["a"], "gate": True}]


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.mark.parametrize(
    ("changes", "arm", "strategy"),
    [
        ({"task": TASK}, Arm.OFFERED, Strategy.JUDGE),
        ({"task": TASK, "teacher": DEAR}, Arm.NOT_WORTH, Strategy.JUDGE),
        ({"task": TASK, "family": "elsewhere"}, Arm.NO_DRAFTS, None),
        ({"task": TASK, "verifiers": STRICT}, Arm.NO_DRAFTS, None),
        ({"task": TASK, "teacher": {"engine": "vllm"}, "draft_cache": ENGINE}, Arm.OFFERED, Strategy.ENGINE),
        ({"task": TASK, "teacher": {"engine": "vllm"}}, Arm.OFFERED, Strategy.LOGPROBS),
        ({"teacher": {"revision": "r1"}}, Arm.OFFERED, Strategy.REPEAT),
    ],
)
def test_what_a_preview_shows_is_what_the_compile_plans(
    tenant: Tenant, monkeypatch: Any, changes: dict[str, Any], arm: Arm, strategy: Strategy | None
) -> None:
    compile_once(monkeypatch, tenant, teacher(), teacher=changes.get("teacher", {}))
    shown = prospects(tenant.id, parse_spec(small_spec(**spec(**changes))))
    row = compile_once(
        monkeypatch, tenant, teacher(off_topic_refused), steps=(StepName.SLICING, StepName.SYNTHESIS), **changes
    )
    plans = [part.offer_plan for part in slices(row)]
    assert {(plan.arm, plan.strategy) for plan in plans} == {(arm, strategy)}
    assert [(part.arm, part.strategy) for part in shown] == [(plan.arm, plan.strategy) for plan in plans]
    assert [part.n_sources for part in shown] == [plan.n_sources for plan in plans]
