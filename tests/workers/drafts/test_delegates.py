"""The spec's own judge of drafts: a cheaper model is asked, the teacher audits it, and it is used within bounds."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from backend.artifacts.models import Receipt
from backend.compiles.models import CompileEvent
from backend.domain.artifact.receipts import payload_of
from backend.domain.drafts.vocabulary import Arm, Certificate, DraftState, Strategy
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import Spec, parse_spec
from backend.drafts.calibrations import locked_calibration
from backend.drafts.models import Calibration, Draft, Offer, Scope, Verdict
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import make_drafts, scope_of
from tests.compile_factories import make_compile, small_spec
from tests.factories import make_tenant
from tests.workers.drafts.test_offering import (
    TO_SELECTION,
    compile_once,
    off_topic_refused,
    rows_of,
    spec,
    teacher,
    verified,
)
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    check_money,
    drafts_shown,
    is_about_drafts,
    is_audit,
    slices,
    start,
    taught_by,
    walk_through,
)
from workers.drafts.delegates import standing_of
from workers.live.draft_preview import prospects
from workers.teachers.protocol import TeacherFailed, TeacherIdentity

pytestmark = pytest.mark.usefixtures("committed_db")
CHEAP = {"model": "cheap", "price": {"input_usd_per_mtok": 0.005, "output_usd_per_mtok": 0.4}}
NAME = "cheap@https://llm.example.com/v1"
TASK = "Does the customer of this shop ask for money back?"


class CheapJudge(ScriptedTeacher):
    """Another model, asked about drafts alone. `everything`: it accepts what stands under the wrong slice too."""

    identity = TeacherIdentity(provider="openai_compatible", model="cheap")

    def __init__(self, judge: Callable[[str], bool] = off_topic_refused, *, everything: bool = False) -> None:
        super().__init__(judge=judge, counts_tokens=True)
        self._everything = everything

    def _answers(self, request: Any) -> Any:
        assert is_about_drafts(request), "a judge of drafts writes nothing and labels nothing"
        return [f"1-{len(drafts_shown(request))}"] if self._everything else super()._answers(request)


def warm(monkeypatch: Any, tenant: Tenant, asked: ScriptedTeacher, judge: ScriptedTeacher, **changes: Any) -> Any:
    """A sibling of the first compile whose spec names a judge of its own."""
    taught_by(monkeypatch, asked, cheap=judge, other=judge)
    cache = {"judge": CHEAP} | changes.pop("draft_cache", {})
    row = make_compile(tenant, **spec(draft_cache=cache, **{"task": TASK} | changes))
    walk_through(start(row), *TO_SELECTION)
    return row


@pytest.fixture
def known(monkeypatch):
    """A tenant after a first compile."""
    tenant = make_tenant()
    compile_once(monkeypatch, tenant, teacher())
    return tenant


def evidence(tenant: Tenant, **changes: Any) -> None:
    """What is known of the cheap judge."""
    with tenant_scope(tenant.id):
        row = locked_calibration(tenant.id, Scope.objects.get(tenant_id=tenant.id).id, Strategy.DELEGATE, judge=NAME)
        for name, value in changes.items():
            setattr(row, name, value)
        row.save()


def row_of(tenant: Tenant) -> Calibration:
    (row,) = rows_of(Calibration, tenant, strategy=Strategy.DELEGATE)
    return row


def n_asked(one: ScriptedTeacher) -> int:
    return sum(map(is_about_drafts, one.asked))


def warnings_of(row: Any) -> list[str]:
    with tenant_scope(row.tenant_id):
        return [e.data["code"] for e in CompileEvent.objects.filter(compile=row, type="warning")]


# --- who is asked -----------------------------------------------------------------------------------------------


def test_the_cheaper_model_is_asked_and_the_teacher_audits_it(known, monkeypatch):
    asked, judge = teacher(off_topic_refused), CheapJudge()
    row = warm(monkeypatch, known, asked, judge)
    assert n_asked(judge)
    assert not n_asked(asked)
    assert {c.certificate for c in verified(row)} == {Certificate.DELEGATED}
    assert sum(map(is_audit, asked.asked)) == len(slices(row))  # the spec's share is 0, and evidence is thin
    learnt = row_of(known)
    assert (learnt.judge, learnt.n_audited, learnt.n_audited_bad) == (NAME, len(slices(row)), 0)
    assert learnt.n_observations > 0
    assert {v.strategy for v in rows_of(Verdict, known)} == {Strategy.DELEGATE}
    assert {o.strategy for o in rows_of(Offer, known, compile_id=row.id)} == {Strategy.DELEGATE}
    assert {call.model for call in calls(row) if call.key.startswith("delegate:")} == {"cheap"}
    check_money(row)


@pytest.mark.nightly
def test_each_is_booked_at_its_own_price(known, monkeypatch):
    row = warm(monkeypatch, known, teacher(off_topic_refused), CheapJudge())
    made = {prefix: [c for c in calls(row) if c.key.startswith(prefix)] for prefix in ("delegate:", "audit:", "synth")}
    (cheap,) = {call.price_version for call in made["delegate:"]}
    (dear,) = {call.price_version for call in (*made["audit:"], *made["synth"])}
    assert cheap != dear
    assert {call.model for call in made["delegate:"]} == {"cheap"}
    for call in made["delegate:"]:
        assert call.cost_microusd == pytest.approx(0.005 * call.input_tokens + 0.4 * call.output_tokens, abs=2)
    offers = rows_of(Offer, known, compile_id=row.id)
    assert sum(o.verification_microusd for o in offers) == sum(c.cost_microusd for c in made["delegate:"]) > 0
    assert sum(o.audit_microusd for o in offers) == sum(c.cost_microusd for c in made["audit:"]) > 0
    judged = rows_of(Verdict, known, compile_id=row.id, kind="verdict")
    assert {verdict.price_version for verdict in judged} == {cheap}
    with tenant_scope(known.id):
        receipt = Receipt.objects.get(compile_id=row.id, step=StepName.SELECTION)
    used = json.loads(payload_of(receipt.envelope))["predicate"]["teacher"]
    assert (used["models"], used["judge"]["dialect"]) == (["cheap", "kolm-grammar-1"], "openai-compatible")
    assert {price["model"] for price in used["prices"]} == {"cheap", "m"}
    check_money(row)


@pytest.mark.nightly
def test_a_cheaper_judge_pays_where_the_teacher_would_not(known, monkeypatch):
    dear = {"price": {"input_usd_per_mtok": 9.0, "output_usd_per_mtok": 1.0}}
    asked, judge = teacher(off_topic_refused), CheapJudge()
    row = warm(monkeypatch, known, asked, judge, teacher=dear)
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.OFFERED}
    assert n_asked(judge)
    row = warm(monkeypatch, known, asked, judge, teacher=dear, task="Money back?", draft_cache={"judge": None})
    assert {part.drafts["arm"] for part in slices(row)} == {Arm.NOT_WORTH}


# --- the bounds -------------------------------------------------------------------------------------------------


OUT_OF_BOUNDS = {
    "lenient": {"n_negative_controls": 8, "n_negative_accepted": 8},
    "often wrong": {"n_negative_controls": 100, "n_negative_accepted": 9},
    "blind": {"n_positive_controls": 12, "n_positive_accepted": 0},
    "bad drafts": {"n_audited": 60, "n_audited_bad": 40, "suspended_at": "2026-11-01T00:00Z"},
}


def test_what_is_known_of_a_judge_is_why_the_teacher_judges():
    tenant, judge = make_tenant(), {"judge": CHEAP}
    make_drafts(tenant, "one")
    named = parse_spec(small_spec(**spec(draft_cache=judge)))
    unnamed = parse_spec(small_spec(**spec()))

    def refusal(wanted: Spec) -> str | None:
        with tenant_scope(tenant.id):
            standing = standing_of(tenant.id, wanted, scope_of(tenant).id)
        return None if standing is None else standing.refusal

    assert (refusal(unnamed), refusal(named)) == (None, "")
    words = ["refused 0 of 8", "refused 91 of 100", "accepted 0 of 12", "were bad"]
    for known_of_it, why in zip(OUT_OF_BOUNDS.values(), words, strict=True):
        nothing = {name: None if name == "suspended_at" else 0 for each in OUT_OF_BOUNDS.values() for name in each}
        evidence(tenant, **nothing | known_of_it)
        assert why in (refusal(named) or "")
    other = parse_spec(small_spec(**spec(draft_cache={"judge": CHEAP | {"model": "other"}})))
    assert refusal(other) == ""
    assert row_of(tenant).suspended_at is not None  # looked at, and left as it is


@pytest.mark.nightly
@pytest.mark.parametrize("known_of_it", OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_out_of_bounds_the_teacher_judges(known, monkeypatch, known_of_it):
    evidence(known, **known_of_it)
    previewed = prospects(known.id, parse_spec(small_spec(**spec(draft_cache={"judge": CHEAP}, task=TASK))))
    assert {part.strategy for part in previewed} == {Strategy.JUDGE}
    assert all(NAME in part.reason for part in previewed)
    asked, judge = teacher(off_topic_refused), CheapJudge()
    row = warm(monkeypatch, known, asked, judge)
    assert not judge.asked
    assert n_asked(asked)
    assert {c.certificate for c in verified(row)} == {Certificate.JUDGED}
    assert "draft_judge_not_used" in warnings_of(row)


@pytest.mark.nightly
def test_another_judge_begins_without_evidence(known, monkeypatch):
    evidence(known, n_negative_controls=8, n_negative_accepted=8, n_audited=40, suspended_at="2026-11-01T00:00Z")
    judge = CheapJudge()
    row = warm(monkeypatch, known, teacher(off_topic_refused), judge, draft_cache={"judge": CHEAP | {"model": "other"}})
    assert n_asked(judge)
    learnt = row_of(known)
    assert learnt.judge == "other@https://llm.example.com/v1"
    assert (learnt.suspended_at, learnt.n_audited, learnt.n_negative_accepted) == (None, len(slices(row)), 0)
    assert learnt.begun_at is not None


@pytest.mark.nightly
def test_a_judge_that_accepts_everything_is_shown_to_be_none_and_the_teacher_judges(known, monkeypatch):
    evidence(known, n_negative_controls=1, n_negative_accepted=1)  # three are beyond doubt
    asked, judge = teacher(off_topic_refused), CheapJudge(everything=True)
    row = warm(monkeypatch, known, asked, judge)
    learnt = row_of(known)
    assert learnt.n_negative_accepted == learnt.n_negative_controls > 0
    assert n_asked(asked)
    assert {c.certificate for c in verified(row)} == {Certificate.JUDGED}
    assert DraftState.QUARANTINED not in {draft.state for draft in rows_of(Draft, known)}  # the judge's fault
    n_before = n_asked(judge)
    again = warm(monkeypatch, known, asked, judge, task="Is money asked back here?")
    assert n_asked(judge) == n_before
    assert "draft_judge_not_used" in warnings_of(again)
    check_money(row)


@pytest.mark.nightly
def test_the_teacher_is_asked_where_the_judge_refuses_the_question(known, monkeypatch):
    def refuse(text: str) -> bool:
        raise TeacherFailed("no", code="teacher_rejected")

    asked = teacher(off_topic_refused)
    row = warm(monkeypatch, known, asked, CheapJudge(refuse))
    assert {c.certificate for c in verified(row)} == {Certificate.JUDGED}
    assert "draft_judge_not_used" in warnings_of(row)
    check_money(row)


@pytest.mark.nightly
def test_a_judge_whose_drafts_the_teacher_refuses_in_audits_is_suspended(known, monkeypatch):
    """It accepts what earlier compiles wrote; the teacher leaves in what it wrote for this one alone."""
    evidence(known, n_audit_positives=400, n_audit_positives_accepted=400)
    for turn in range(20):
        new: set[str] = set()
        asked = teacher(lambda text: text in new)  # noqa: B023
        write = asked._write
        asked._write = lambda request: _noting(new, write(request))  # noqa: B023
        row = warm(monkeypatch, known, asked, CheapJudge(), task=f"Is money asked back? {turn}")
        if row_of(known).suspended_at is not None:
            break
    else:
        pytest.fail(str(row_of(known).n_audited_bad))
    assert "draft_judge_suspended" in warnings_of(row)
    assert "drafts_suspended" not in warnings_of(row)
    asked, judge = teacher(off_topic_refused), CheapJudge()
    row = warm(monkeypatch, known, asked, judge, task="Is money asked back at last?")
    assert {part.drafts["strategy"] for part in slices(row)} == {Strategy.JUDGE}
    assert not judge.asked


def _noting(new: set[str], texts: Any) -> Any:
    new.update(texts)
    return texts
