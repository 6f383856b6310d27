"""The spec's own judge of drafts: a cheaper model is asked, the teacher audits it, and it is used within bounds."""

from typing import Any

import pytest

from backend.compiles.models import CompileEvent
from backend.domain.drafts.vocabulary import Arm, Certificate, Strategy
from backend.drafts.calibrations import locked_calibration
from backend.drafts.models import Calibration, Draft, Scope, Verdict
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import make_compile
from tests.workers.drafts.test_offering import (
    TO_SELECTION,
    compile_once,
    known,
    off_topic_refused,
    rows_of,
    spec,
    teacher,
    tenant,
    verified,
)
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    check_money,
    is_about_drafts,
    slices,
    start,
    taught_by,
    walk_through,
)
from workers.drafts.delegates import standing_of
from workers.teachers.judges.slice_audit import MAX_ASKS
from workers.teachers.prompts.judge_audit import AUDIT_SYSTEM

__all__ = ["known", "tenant"]  # fixtures
pytestmark = pytest.mark.usefixtures("committed_db")
CHEAP = {"model": "cheap", "price": {"input_usd_per_mtok": 0.005, "output_usd_per_mtok": 0.4}}
NAME = "cheap@https://llm.example.com/v1"


def warm(monkeypatch: Any, tenant: Tenant, asked: ScriptedTeacher, judge: ScriptedTeacher, **changes: Any) -> Any:
    """A sibling of the first compile whose spec names a judge of its own."""
    taught_by(monkeypatch, asked, cheap=judge, cheaper=judge)
    cache = {"judge": CHEAP} | changes.pop("draft_cache", {})
    task = changes.pop("task", "Does the customer of this shop ask for money back?")
    row = make_compile(tenant, **spec(draft_cache=cache, task=task, **changes))
    walk_through(start(row), *TO_SELECTION)
    return row
