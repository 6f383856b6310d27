"""The preview's worker side: what a compile would be offered, from the rows that are there, without asking the teacher
anything."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from backend.compiles.uploads.inputs import load_gold, split
from backend.domain.drafts.vocabulary import Arm, Strategy, VerdictKind
from backend.domain.spec.parsing import Spec, canonical_spec, parse_spec
from backend.drafts.cache import Admitted, SourcePrompt, admit
from backend.drafts.calibrations import locked_calibration, suspend
from backend.drafts.models import Calibration, Draft, Preview, Scope, Verdict
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import LABELS, small_spec
from tests.factories import make_tenant
from workers.candidates.slices import declare_slices, slice_names, slice_text
from workers.drafts.repeats import source_prompt
from workers.drafts.scopes import draft_scope
from workers.embedding.sentence import load_embedder
from workers.live.draft_preview import preview
from workers.step.teacher_profile import identity_of
from workers.tasks import preview_drafts

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


def keep(
    tenant: Tenant,
    spec: Spec,
    *,
    n: int = 12,
    n_tokens: int = 400,
    family: str = "",
    texts: Sequence[str] = (),
    messages: tuple[tuple[str, str], ...] = (("user", "write"),),
) -> None:
    """Drafts of a compile of the very same spec, for its first slice."""
    embedder = load_embedder()
    pool = declare_slices(spec)[0]
    text = slice_text(pool)
    scope = draft_scope(
        identity_of(spec.teacher),
        family=family or spec.family,
        embedder=embedder.identity,
        temperature=spec.sampling.temperature_inputs,
    )
    rows = [
        Admitted(candidate_id=new_uuid7(), text=text_, score=None, signal="none", logprob=None,
                 n_tokens=n_tokens, cost_microusd=9, is_kept=False)
        for text_ in texts or [f"text {i}" for i in range(n)]
    ]  # fmt: skip
    with tenant_scope(tenant.id):
        prompt = SourcePrompt(slice_text=text, messages=messages)
        vector = embedder.embed([text])[0].tolist()
        names = slice_names(spec, pool)
        admit(tenant.id, new_uuid7(), rows, scope=scope, prompt=prompt, slice_vector=vector, names=names)


def teacher_json(**changes: Any) -> dict[str, Any]:
    teacher: dict[str, Any] = long_spec().teacher.model_dump(mode="json", exclude_none=True)
    return teacher | changes


def certify(tenant: Tenant, spec: Spec) -> None:
    """A hundred verdicts of a judge that let every draft in, and controls that it all got right."""
    with tenant_scope(tenant.id):
        scope = Scope.objects.get(tenant_id=tenant.id)
        draft = Draft.objects.filter(tenant_id=tenant.id).first()
        Verdict.objects.bulk_create(
            Verdict(
                tenant_id=tenant.id, offer_id=new_uuid7(), compile_id=new_uuid7(), scope_id=scope.id,
                source_id=draft.source_id, draft_id=draft.id, strategy=Strategy.JUDGE, kind=VerdictKind.VERDICT,
                distance=0.0, predicted=0.5, propensity=1.0, is_accepted=True, n_tokens=5, n_tokens_kept=5,
                cost_microusd=1, price_version="v", gate_score=1.0,
            )
            for _ in range(100)
        )  # fmt: skip
        row = locked_calibration(tenant.id, scope.id, Strategy.JUDGE)
        row.n_negative_controls = 100
        row.save()


def suspend_all(tenant: Tenant) -> None:
    with tenant_scope(tenant.id):
        row = locked_calibration(tenant.id, Scope.objects.get(tenant_id=tenant.id).id, Strategy.JUDGE)
        suspend(row)
        row.save()


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


def test_drafts_for_an_engine_go_along_with_the_requests_as_in_a_compile(tenant):
    """`draft_cache.verify` engine and a teacher whose engine takes proposals: nobody is asked, whatever drafts cost."""
    spec = long_spec(teacher=teacher_json(engine="vllm"), draft_cache={"verify": "engine"})
    keep(tenant, spec)
    first = slices(tenant, spec)[0]
    assert (first["arm"], first["strategy"], first["n_shown"]) == ("offered", "engine", 12)
    assert (first["expected_verification_microusd"], first["expected_net_microusd"]) == (0, 0)
    assert "engine" in first["reason"]


def test_drafts_that_could_not_become_candidates_are_not_shown(tenant):
    spec = long_spec(verifiers=[{"kind": "excludes", "any_of": ["forbidden"], "gate": True}])
    keep(tenant, spec, texts=[f"a forbidden text {i}" for i in range(10)] + ["an allowed text", "one more"])
    first = slices(tenant, spec)[0]
    assert (first["n_drafts"], first["n_shown"]) == (12, 2)
    keep(other := make_tenant(), spec, texts=[f"a forbidden text {i}" for i in range(12)])
    assert {(part["arm"], part["n_shown"]) for part in slices(other, spec)} == {("no_drafts", 0)}


def test_held_out_gold_and_captures_are_not_shown(tenant):
    captures = [f"capture {i}" for i in range(4)]
    labels = [{"name": name, "share": 0.5} for name in LABELS]
    spec = long_spec(captures={"inline": captures}, slices=[{"name": label["name"], "share": 0.5} for label in labels])
    with tenant_scope(tenant.id):
        gold = split(tenant.id, spec, load_gold(tenant.id, spec))
    heldout = [example.input for example in gold.heldout]
    assert heldout
    keep(tenant, spec, texts=[*heldout, *captures])
    assert {part["n_shown"] for part in slices(tenant, spec)} == {0}


def test_a_certified_gate_lets_drafts_in_where_asking_does_not_pay(tenant):
    changes = {
        "draft_cache": {"gate": True, "max_bad_rate": 0.5},
        "verifiers": [{"kind": "length", "min_chars": 1, "max_chars": 300}],
        "teacher": teacher_json(price={"input_usd_per_mtok": 10, "output_usd_per_mtok": 0.1}),
    }
    spec = long_spec(**changes)
    keep(tenant, spec, n_tokens=5)
    assert {part["arm"] for part in slices(tenant, spec)} == {"not_worth"}
    certify(tenant, spec)
    first = slices(tenant, spec)[0]
    assert (first["strategy"], first["arm"]) == ("gate", "offered")
    assert first["expected_verification_microusd"] == 0
    assert first["expected_net_microusd"] > 0


def test_a_suspended_family_is_asked_about_nothing_but_the_same_prompt_is_taken(tenant):
    spec = long_spec()
    keep(tenant, spec)
    suspend_all(tenant)
    assert (first := slices(tenant, spec)[0])["arm"] == "suspended"
    assert (first["n_shown"], first["expected_net_microusd"]) == (0, 0)
    part = declare_slices(spec)[0]
    same = source_prompt(spec, part, temperature=spec.sampling.temperature_inputs, exemplars=())
    keep(tenant, spec, texts=["again"], messages=same.messages)
    assert (first := slices(tenant, spec)[0])["arm"] == "suspended"
    assert first["n_shown"] == 1
    assert first["expected_net_microusd"] > 0


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
