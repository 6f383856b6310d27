"""Estimates take candidates to be as long as those that the task's teacher wrote before."""

import pytest

from backend.compiles.lifecycle.submission import check
from backend.compiles.lifecycle.written_before import ENOUGH, written_before
from backend.compiles.models import Candidate, Compile, Slice
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import canonical_spec, parse_spec
from backend.tenants.isolation import tenant_scope
from tests.backend.domain.spec.test_parsing import document
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db
SHORT = "Where is it?"


def compiled(tenant, n=ENOUGH, *, origin="fresh", text=SHORT, **changes) -> None:
    """A compile of the document with `changes`, whose teacher wrote n texts."""
    spec = parse_spec(document(**changes))
    with tenant_scope(tenant.id):
        row = Compile.objects.create(
            tenant_id=tenant.id,
            name=spec.name,
            family=spec.family,
            spec=canonical_spec(spec),
            spec_sha256="0" * 64,
            estimate={},
            budget_microusd=1,
        )
        part = Slice.objects.create(
            tenant_id=tenant.id,
            compile=row,
            position=0,
            name="all",
            share_ppm=1_000_000,
            n_candidates=n,
            k_requested=n,
        )
        Candidate.objects.bulk_create(
            Candidate(
                tenant_id=tenant.id, compile=row, slice=part, text=f"{text} {i}", text_key=f"{i:064x}", origin=origin
            )
            for i in range(n)
        )


def found(tenant, **changes) -> list[str]:
    with tenant_scope(tenant.id):
        return written_before(tenant.id, parse_spec(document(**changes)))


def test_the_latest_compile_of_the_same_task_and_teacher_is_read():
    tenant = make_tenant()
    assert found(tenant) == []
    compiled(tenant, text="An older one")
    compiled(tenant)
    compiled(tenant, ENOUGH - 1, text="Too few")
    compiled(tenant, text="Another task", task="Sort these messages by their language, as a reader would.")
    compiled(tenant, text="Drafts", origin="draft")
    assert [text.rsplit(" ", 1)[0] for text in found(tenant)] == [SHORT] * ENOUGH
    assert found(tenant, task="Sort the messages by mood, from calm to furious.") == []


def test_another_tenants_texts_are_never_read():
    compiled(make_tenant("Others"))
    assert found(make_tenant()) == []


def test_an_estimate_is_of_candidates_as_long_as_those():
    tenant = make_tenant()
    examples = {
        "inline": [{"input": f"{'A long message, ' * 10}{i}", "output": ("refund", "other")[i % 2]} for i in range(80)]
    }
    with tenant_scope(tenant.id):
        before = check(tenant.id, document(examples=examples))[1]
    compiled(tenant)
    with tenant_scope(tenant.id):
        after = check(tenant.id, document(examples=examples))[1]
    for step in (StepName.SYNTHESIS, StepName.LABELING):
        assert after.steps[step].expected < before.steps[step].expected
    assert after.steps[StepName.EVALUATION].expected <= before.steps[StepName.EVALUATION].expected
    assert any("earlier compile" in line for line in after.assumptions)
    assert not any("earlier compile" in line for line in before.assumptions)
