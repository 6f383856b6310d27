"""GET /v1/drafts/stats: counts and sums that can be added up by hand, rates with their intervals, nulls where there is
nothing to say."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backend.domain.drafts.calibration import GRID_VERSION, SourceCount, curves_to_bytes, flat_curves, learn_from
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.vocabulary import Arm, Strategy
from backend.drafts.cache import DraftScope
from backend.drafts.calibrations import measured_bad_rate
from backend.drafts.models import Calibration, Draft
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import SCOPE, admitted, make_drafts, make_offer, make_outcome, make_verdict, scope_of
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db

OTHER = DraftScope(family="router", teacher="grammar/kolm-grammar-1@r2", embedder=SCOPE.embedder)
ELSEWHERE = DraftScope(family="triage", teacher=SCOPE.teacher, embedder=SCOPE.embedder)


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def ask(tenant: Tenant, query: str = "") -> Any:
    return Client().get(f"/v1/drafts/stats{query}", headers=bearer(make_api_key(tenant)))


def families(tenant: Tenant, query: str = "") -> list[dict[str, Any]]:
    answer = ask(tenant, query)
    assert answer.status_code == 200, answer.content
    return answer.json()["data"]


def calibrate(tenant: Tenant, **changes: Any) -> None:
    curves = learn_from(flat_curves(), [SourceCount(distance=0.1, n_shown=4, n_accepted=4)] * 10, flat_curves())
    fields: dict[str, Any] = {
        "scope": scope_of(tenant),
        "strategy": Strategy.JUDGE,
        "grid_version": GRID_VERSION,
        "log_posterior": curves_to_bytes(curves),
        "n_observations": curves.n_observations,
    }
    with tenant_scope(tenant.id):
        Calibration.objects.create(tenant_id=tenant.id, **(fields | changes))


def test_a_cache_that_is_empty_has_no_families(tenant):
    assert families(tenant) == []


def test_what_is_kept_is_counted_by_family_teacher_and_use(tenant):
    make_drafts(tenant, "a", "b", admitted("picked", is_kept=True))
    make_drafts(tenant, "c", scope=OTHER)
    make_drafts(tenant, "d", scope=ELSEWHERE)
    make_drafts(make_tenant(), "not ours")
    router, triage = families(tenant)
    assert (router["family"], router["n_drafts"], router["n_kept"], router["n_sources"]) == ("router", 3, 1, 2)
    assert (router["n_tokens"], router["cost_microusd"]) == (12, 6)
    assert [(scope["teacher"], scope["n_drafts"]) for scope in router["scopes"]] == [
        (SCOPE.teacher, 2),
        (OTHER.teacher, 1),
    ]
    assert router["n_bytes"] == sum(scope["n_bytes"] for scope in router["scopes"]) > 0
    assert (triage["family"], triage["n_drafts"]) == ("triage", 1)


def test_a_quarantined_draft_is_no_longer_one_of_the_products(tenant):
    bad, _ = make_drafts(tenant, "bad", "good")
    with tenant_scope(tenant.id):
        Draft.objects.filter(id=bad.id).update(state="quarantined")
    (router,) = families(tenant)
    assert (router["n_drafts"], router["n_quarantined"], router["n_tokens"]) == (1, 1, 4)


def test_the_account_of_look_ups_adds_up_and_may_be_below_zero(tenant):
    (draft,) = make_drafts(tenant, "a")
    scope = scope_of(tenant)
    make_offer(tenant, scope_id=scope.id, n_shown=8, n_accepted=6, n_reused=5, avoided_microusd=100,
               verification_microusd=30, embedding_microusd=1, kept_tokens={"judged": 40})  # fmt: skip
    make_offer(tenant, scope_id=scope.id, n_shown=4, arm=Arm.PROBED, verification_microusd=70, audit_microusd=9,
               exploration_microusd=12, strategy=Strategy.LOGPROBS, kept_tokens={"exact": 7, "bounded": 1})  # fmt: skip
    make_offer(tenant, scope_id=None, n_shown=0, arm=Arm.NO_DRAFTS, strategy="", embedding_microusd=1)
    for n in range(12):
        make_verdict(draft, is_accepted=n < 6, strategy=Strategy.JUDGE if n < 8 else Strategy.LOGPROBS)
    make_verdict(draft, strategy=Strategy.REPEAT)
    (router,) = families(tenant)
    found = router["lookups"]
    assert found["n_lookups"] == 3
    assert found["arms"] == {"no_drafts": 1, "offered": 1, "probed": 1}
    assert (found["n_shown"], found["n_accepted"], found["n_reused"]) == (12, 6, 5)
    assert found["kept_tokens"] == {"bounded": 1, "exact": 7, "judged": 40}
    assert found["net_microusd"] == 100 - (30 + 70) - (1 + 1) - 9 - 12 == -23
    low, high = exact_interval(6, 12, 0.95)
    assert found["acceptance"] == {
        "k": 6,
        "n": 12,
        "rate_ppm": 500_000,
        "low_ppm": round(low * 1e6),
        "high_ppm": round(high * 1e6),
    }
    (inside,) = router["scopes"]
    assert inside["lookups"]["n_lookups"] == 2
    judge, logprobs, repeat = inside["strategies"]
    assert (judge["lookups"]["acceptance"]["k"], judge["lookups"]["acceptance"]["n"]) == (6, 8)
    assert (repeat["strategy"], repeat["lookups"]["n_lookups"]) == ("repeat", 0)
    assert (judge["strategy"], judge["lookups"]["net_microusd"]) == ("judge", 69)
    assert (logprobs["strategy"], logprobs["lookups"]["net_microusd"]) == ("logprobs", -91)


def test_labels_that_were_known_are_told_apart_from_the_drafts_of_slices(tenant):
    make_offer(tenant, n_shown=4, verification_microusd=30)
    make_offer(tenant, slice_position=-1, strategy=Strategy.REPEAT, n_shown=9, n_accepted=9, n_reused=9,
               avoided_microusd=100)  # fmt: skip
    (router,) = families(tenant)
    assert (router["lookups"]["n_lookups"], router["lookups"]["n_shown"]) == (1, 4)
    assert router["labels"] == {"n_reused": 9, "avoided_microusd": 100}
    assert (router["lookups"]["net_microusd"], router["net_microusd"]) == (-30, 70)


def test_what_was_paid_stays_told_after_a_family_is_purged(tenant):
    (draft,) = make_drafts(tenant, "a")
    make_offer(tenant, scope_id=draft.scope_id, verification_microusd=30)
    make_verdict(draft)
    headers = bearer(make_api_key(tenant))
    assert Client().delete("/v1/drafts?family=router", headers=headers).status_code == 200
    (router,) = families(tenant)
    assert (router["n_drafts"], router["scopes"], router["lookups"]["net_microusd"]) == (0, [], -30)
    assert (router["lookups"]["acceptance"]["k"], router["lookups"]["acceptance"]["n"]) == (1, 1)  # verdicts stay


def test_a_rate_of_nothing_is_null(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant, n_observations=0)
    (router,) = families(tenant)
    assert router["lookups"]["acceptance"] == {"k": 0, "n": 0, "rate_ppm": None, "low_ppm": None, "high_ppm": None}
    (strategy,) = router["scopes"][0]["strategies"]
    assert strategy["bad_drafts"] == {
        "n_audited": 0,
        "n_refused": 0,
        "rate_ppm": None,
        "low_ppm": 0,
        "high_ppm": 1_000_000,
        "bound_ppm": None,
        "other_label": {
            "n": 0,
            "n_other": 0,
            "n_fresh": 0,
            "n_fresh_other": 0,
            "estimate_ppm": None,
            "low_ppm": 0,
            "high_ppm": 1_000_000,
        },
    }
    assert strategy["curve"] is None
    assert router["holdback"] is None


def test_bad_drafts_are_told_with_their_interval_and_a_suspension_is_told(tenant):
    make_drafts(tenant, "a")
    calibrate(
        tenant, n_audited=400, n_audited_refused=80, n_audited_bad=60,
        n_audit_positives=300, n_audit_positives_accepted=285, n_positive_controls=300, n_positive_accepted=285,
        n_negative_controls=300, n_negative_accepted=3, suspended_at=timezone.now(),
    )  # fmt: skip
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert strategy["is_suspended"] is True
    assert strategy["suspended_at"] is not None
    bad = strategy["bad_drafts"]
    assert (bad["n_audited"], bad["n_refused"]) == (400, 60)
    with tenant_scope(tenant.id):
        measured = measured_bad_rate(Calibration.objects.get())
    assert measured.estimate is not None
    assert bad["rate_ppm"] == round(measured.estimate * 1e6)
    assert (bad["low_ppm"], bad["high_ppm"]) == (round(measured.low * 1e6), round(measured.high * 1e6))
    assert 0 < bad["low_ppm"] <= bad["rate_ppm"] < bad["high_ppm"] == 1_000_000
    assert strategy["negative_controls"]["rate_ppm"] == 10_000
    assert strategy["positive_controls"]["rate_ppm"] == 950_000


def test_a_judge_of_the_spec_is_named_with_the_reason_why_the_teacher_judges_in_its_place(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant, strategy=Strategy.DELEGATE, judge="cheap@https://llm.example.com/v1")
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert (strategy["strategy"], strategy["judge"]) == ("delegate", "cheap@https://llm.example.com/v1")
    assert strategy["judge_refusal"] == ""
    with tenant_scope(tenant.id):
        Calibration.objects.update(n_negative_controls=40, n_negative_accepted=30)
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert strategy["judge_refusal"].startswith("it refused 10 of 40 planted texts")
    with tenant_scope(tenant.id):
        Calibration.objects.update(suspended_at=timezone.now())
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert strategy["judge_refusal"] == "too many of the drafts that it accepted were bad"


def test_the_teachers_own_verdicts_name_no_judge(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant, suspended_at=timezone.now())
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert (strategy["judge"], strategy["judge_refusal"]) == ("", "")


def test_label_votes_are_counted_and_bound_the_drafts_of_another_label(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant, label_votes=[[10, 2, 6, 0, 30], [0, 0, 16, 1, 10]], n_audited=400)
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    bad, votes = strategy["bad_drafts"], strategy["bad_drafts"]["other_label"]
    assert [votes[name] for name in ("n", "n_other", "n_fresh", "n_fresh_other")] == [300, 60, 340, 10]
    assert 0 < votes["low_ppm"] < votes["estimate_ppm"] == 200_000 < votes["high_ppm"] < 500_000
    assert (bad["rate_ppm"], bad["low_ppm"], bad["high_ppm"]) == (200_000, votes["low_ppm"], 1_000_000)


def test_the_curve_falls_with_distance(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant)
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    heights = [point["acceptance_ppm"] for point in strategy["curve"]]
    assert [point["distance_ppm"] for point in strategy["curve"]][:3] == [0, 50_000, 100_000]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > 700_000 > 300_000 > heights[-1]


def test_verdicts_are_counted_by_distance(tenant):
    (draft,) = make_drafts(tenant, "a")
    calibrate(tenant)
    for distance, is_accepted, kind in [(0.01, True, "verdict"), (0.04, False, "verdict"), (0.31, True, "verdict"),
                                        (0.31, True, "audit"), (0.31, True, "void")]:  # fmt: skip
        make_verdict(draft, distance=distance, is_accepted=is_accepted, kind=kind)
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert [(band["distance_ppm"], band["k"], band["n"]) for band in strategy["by_distance"]] == [
        (0, 1, 2),
        (300_000, 1, 1),
    ]
    assert families(tenant, "?since=2999-01-01T00:00:00Z")[0]["scopes"][0]["strategies"][0]["by_distance"] == []


def test_a_curve_of_another_grid_is_not_read(tenant):
    make_drafts(tenant, "a")
    calibrate(tenant, grid_version=GRID_VERSION + 1, log_posterior=b"\x00")
    (strategy,) = families(tenant)[0]["scopes"][0]["strategies"]
    assert strategy["curve"] is None


def test_held_back_slices_are_compared_with_the_others_that_had_drafts_once_there_are_both(tenant):
    make_outcome(tenant, Arm.OFFERED, n_candidates=10, cost_microusd=40, mean_score=0.6)
    make_outcome(tenant, Arm.PROBED, n_candidates=10, cost_microusd=60, mean_score=0.2)
    make_outcome(tenant, Arm.NOT_WORTH, n_candidates=20, cost_microusd=20, mean_score=0.2)
    make_outcome(tenant, Arm.NO_DRAFTS, n_candidates=10, cost_microusd=999)
    assert families(tenant)[0]["holdback"] is None
    make_outcome(tenant, Arm.HELD_BACK, n_candidates=10, cost_microusd=100, mean_score=None)
    make_outcome(tenant, Arm.HELD_BACK, n_candidates=10, cost_microusd=140, mean_score=0.5)
    assert families(tenant)[0]["holdback"] == {
        "held_back": {"n_slices": 2, "n_candidates": 20, "cost_per_candidate_microusd": 12.0, "mean_score": 0.5},
        "not_held_back": {"n_slices": 3, "n_candidates": 40, "cost_per_candidate_microusd": 3.0, "mean_score": 0.3},
    }


def test_one_family_can_be_asked_for(tenant):
    make_drafts(tenant, "a")
    make_drafts(tenant, "d", scope=ELSEWHERE)
    make_offer(tenant)
    make_offer(tenant, family="triage")
    assert [found["family"] for found in families(tenant, "?family=triage")] == ["triage"]
    assert families(tenant, "?family=nobody") == []


def test_since_bounds_the_look_ups_and_not_what_is_kept(tenant):
    make_drafts(tenant, "a")
    make_offer(tenant, n_shown=3)
    make_outcome(tenant, Arm.OFFERED)
    make_outcome(tenant, Arm.HELD_BACK)
    (past,) = families(tenant, "?since=2026-01-01T00:00:00Z")
    assert (past["n_drafts"], past["lookups"]["n_shown"], past["holdback"] is None) == (1, 3, False)
    (future,) = families(tenant, "?since=2999-01-01T00:00:00Z")
    assert (future["n_drafts"], future["lookups"]["n_lookups"], future["holdback"]) == (1, 0, None)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("?since=yesterday", "/since"),
        ("?since=", "/since"),
        ("?family=", "/family"),
        (f"?family={'x' * 101}", "/family"),
        ("?famly=x", "/famly"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(tenant, query, pointer):
    answer = ask(tenant, query)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_no_family_of_another_tenant_is_told(tenant):
    theirs = make_tenant()
    make_drafts(theirs, "a")
    make_offer(theirs)
    make_outcome(theirs, Arm.OFFERED)
    assert families(tenant) == []
