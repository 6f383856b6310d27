"""The preview's worker side: what a compile would be offered, from the rows that are there, without asking the teacher
anything."""

from typing import Any
from uuid import UUID

import pytest

from backend.domain.drafts.vocabulary import Arm
from backend.domain.spec.parsing import Spec, canonical_spec, parse_spec
from backend.drafts.cache import Admitted, SourcePrompt, admit
from backend.drafts.models import Calibration, Preview
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import small_spec
from tests.factories import make_tenant
from workers.candidates.slices import declared, slice_text
from workers.drafts.scopes import draft_scope
from workers.embedding.sentence import load_embedder
from workers.live.draft_preview import preview
from workers.tasks.drafts import preview_drafts
from workers.teachers.factory import identity_of

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def long_spec(**changes: Any) -> Spec:
    """A teacher whose output is dear beside its input: then a verified draft pays."""
    teacher = {
        "provider": "openai_compatible",
        "model": "m",
        "revision": "r1",
        "base_url": "https://llm.example.com/v1",
        "price": {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 10},
    }
    return parse_spec(small_spec(**({"teacher": teacher} | changes)))


def keep(tenant: Tenant, spec: Spec, *, n: int = 12, n_tokens: int = 400, family: str = "") -> None:
    """Drafts of a compile of the very same spec, for its first slice."""
    embedder = load_embedder()
    pool = declared(spec)[0]
    text = slice_text(spec, pool)
    scope = draft_scope(
        identity_of(spec.teacher),
        family=family or spec.family,
        embedder=embedder.identity,
        temperature=spec.sampling.temperature_inputs,
    )
    rows = [
        Admitted(candidate_id=new_uuid7(), text=f"text {i}", score=None, signal="none", logprob=None,
                 n_tokens=n_tokens, cost_microusd=9, is_kept=False)
        for i in range(n)
    ]  # fmt: skip
    with tenant_scope(tenant.id):
        prompt = SourcePrompt(slice_text=text, messages=(("user", "write"),))
        vector = embedder.embed([text])[0].tolist()
        admit(tenant.id, new_uuid7(), rows, scope=scope, prompt=prompt, slice_vector=vector)


def asked(tenant: Tenant, document: Any) -> Preview:
    """The row after a worker has looked at it."""
    with tenant_scope(tenant.id):
        row = Preview.objects.create(tenant_id=tenant.id, spec=document)
    preview(tenant.id, row.id)
    return row_of(tenant, row.id)


def row_of(tenant: Tenant, preview_id: UUID) -> Preview:
    with tenant_scope(tenant.id):
        return Preview.objects.get(id=preview_id)


def slices(tenant: Tenant, spec: Spec) -> list[dict[str, Any]]:
    row = asked(tenant, canonical_spec(spec))
    assert row.status == "answered", row.result
    found: list[dict[str, Any]] = row.result["slices"]
    return found


def test_a_slice_that_was_compiled_before_is_offered_its_drafts(tenant):
    spec = long_spec()
    keep(tenant, spec)
    first, second = slices(tenant, spec)
    assert (first["slice"], first["arm"], first["strategy"]) == ("refund", Arm.OFFERED, "judge")
    assert first["nearest_distance_ppm"] < 2_000
    assert (first["n_drafts"], first["n_sources"]) == (12, 1)
    assert 0 < first["expected_accepted"] <= first["n_shown"] <= 12
    assert 0 <= first["acceptance_low_ppm"] < first["acceptance_high_ppm"] <= 1_000_000
    assert 0 < first["break_even_ppm"] < 1_000_000
    net = first["expected_avoided_microusd"] - first["expected_verification_microusd"]
    assert abs(first["expected_net_microusd"] - net) <= 1
    assert first["expected_net_microusd"] > 0
    assert second["nearest_distance_ppm"] > first["nearest_distance_ppm"]


def test_an_empty_cache_says_that_it_is_empty(tenant):
    for part in slices(tenant, long_spec()):
        assert (part["arm"], part["n_shown"], part["strategy"]) == ("no_drafts", 0, None)
        assert "no draft" in part["reason"]


def test_drafts_of_another_family_are_not_seen(tenant):
    spec = long_spec()
    keep(tenant, spec, family="triage")
    assert {part["n_drafts"] for part in slices(tenant, spec)} == {0}


def test_drafts_of_another_tenant_are_not_seen(tenant):
    spec = long_spec()
    keep(make_tenant(), spec)
    assert {part["n_drafts"] for part in slices(tenant, spec)} == {0}


def test_drafts_of_another_revision_are_not_seen(tenant):
    spec = long_spec()
    keep(tenant, spec)
    teacher = spec.teacher.model_dump() | {"revision": "r2"}
    other = spec.model_copy(update={"teacher": type(spec.teacher).model_validate(teacher)})
    assert {part["n_drafts"] for part in slices(tenant, other)} == {0}


def test_what_does_not_pay_is_not_offered_and_says_so(tenant):
    dear = {"input_usd_per_mtok": 10, "output_usd_per_mtok": 0.1}
    spec = long_spec(teacher=long_spec().teacher.model_dump(mode="json", exclude_none=True) | {"price": dear})
    keep(tenant, spec, n_tokens=5)
    first = slices(tenant, spec)[0]
    assert (first["arm"], first["n_shown"], first["expected_net_microusd"]) == ("not_worth", 0, 0)
    assert first["n_drafts"] == 12
    assert "cost more than it saves" in first["reason"]


def test_a_spec_that_switches_the_cache_off_is_told_so(tenant):
    spec = long_spec(draft_cache={"verify": "off"})
    keep(tenant, spec)
    assert {part["arm"] for part in slices(tenant, spec)} == {"off"}


def test_a_preview_leaves_no_trace(tenant):
    spec = long_spec()
    keep(tenant, spec)
    slices(tenant, spec)
    with tenant_scope(tenant.id):
        assert not Calibration.objects.exists()


def test_whoever_asked_hears_of_a_spec_that_cannot_be_priced(tenant):
    document = canonical_spec(long_spec())
    document["teacher"]["price"] = None
    keep(tenant, long_spec())
    row = asked(tenant, document)
    assert row.status == "failed"
    assert "price" in row.result


def test_a_question_that_nobody_waits_for_any_more_is_passed_over(tenant):
    preview_drafts(str(tenant.id), str(new_uuid7()))
    with tenant_scope(tenant.id):
        assert not Preview.objects.exists()
