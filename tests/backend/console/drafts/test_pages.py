"""The draft cache's page: what is kept, what it was worth, why a family is suspended, and the purge."""

import re

import pytest
from django.utils import timezone

from backend.console.drafts.figures import kinship_rates
from backend.domain.drafts.calibration import GRID_VERSION, curves_to_bytes, flat_curves
from backend.domain.drafts.vocabulary import Strategy
from backend.domain.roles import Role
from backend.drafts.models import Calibration, Draft
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.backend.drafts.rows import make_drafts, make_offer, make_verdict, scope_of
from tests.draft_factories import of_family, store
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant():
    return make_tenant()


def fill(tenant, *, n_verdicts=10):
    rows = make_drafts(tenant, "give it back", "money back please")
    scope = scope_of(tenant)
    money = {"avoided_microusd": 900_000, "verification_microusd": 200_000, "n_accepted": 3, "n_reused": 3}
    make_offer(tenant, scope_id=scope.id, **money)
    for i in range(n_verdicts):
        make_verdict(rows[0], distance=0.02 + 0.03 * (i % 4), is_accepted=i % 3 > 0)
    return scope


def calibrate(tenant, scope, strategy, **fields):
    flat = {"grid_version": GRID_VERSION, "log_posterior": curves_to_bytes(flat_curves())}
    with tenant_scope(tenant.id):
        Calibration.objects.create(tenant_id=tenant.id, scope_id=scope.id, strategy=strategy, **flat, **fields)


def test_an_empty_cache_says_what_fills_it(tenant):
    text = get(logged_in(tenant), "/app/drafts")
    assert "No drafts yet" in text
    assert re.search(r"/v1/compiles .*-d ", text)


def test_the_page_has_size_savings_and_acceptance_by_distance(tenant):
    fill(tenant)
    text = get(logged_in(tenant), "/app/drafts")
    assert "$0.70" in text
    assert text.count('class="chart') >= 2
    assert "from 0.05" in text
    assert "router" in text


def test_a_family_has_its_strategies_with_their_intervals(tenant):
    fill(tenant)
    text = get(logged_in(tenant), "/app/drafts?family=router")
    assert "judge" in text
    assert "minilm@sha256:0" in text
    assert "Purge router" in text


def test_a_suspended_family_says_since_when_and_why(tenant):
    scope = fill(tenant)
    calibrate(
        tenant, scope, Strategy.JUDGE, n_audited=200, n_audited_refused=70, n_audited_bad=60, n_audit_positives=100,
        n_audit_positives_accepted=97, label_votes=[[10, 5, 6, 0, 40]], max_bad_rate=0.02, suspended_at=timezone.now(),
    )  # fmt: skip
    text = get(logged_in(tenant), "/app/drafts")
    assert "router is suspended" in text
    assert "200 accepted drafts" in text
    assert "Of 400 drafts that were picked, 200 got another label" in text
    assert "2.0 % that the spec allows" in text


def test_a_judge_that_is_none_is_named_with_why_the_teacher_judges_in_its_place(tenant):
    scope = fill(tenant)
    judge = "cheap@https://llm.example.com/v1"
    calibrate(tenant, scope, Strategy.DELEGATE, judge=judge, n_negative_controls=40, n_negative_accepted=30)
    text = get(logged_in(tenant), "/app/drafts?family=router")
    assert judge in text
    assert "The teacher judges in its place: it refused 10 of 40 planted texts" in text


def test_a_purge_wants_the_name_typed_and_deletes_that_family_alone(tenant):
    fill(tenant)
    store(tenant, ["kept"], scope=of_family("other"))
    client = logged_in(tenant)
    post(client, "/app/drafts/purge", {"family": "router", "confirm": "route"}, status=400)
    assert n_drafts(tenant) == 3
    answer = post(client, "/app/drafts/purge", {"family": "router", "confirm": "router"})
    assert answer["Location"] == "/app/drafts"
    assert n_drafts(tenant) == 1
    assert "2 drafts of router are deleted" in get(client, "/app/drafts")


def n_drafts(tenant):
    with tenant_scope(tenant.id):
        return Draft.objects.of_tenant(tenant.id).count()


def test_viewers_see_the_cache_and_cannot_purge_it(tenant):
    fill(tenant)
    viewer = logged_in(tenant, Role.VIEWER)
    assert "Purge" not in get(viewer, "/app/drafts?family=router")
    post(viewer, "/app/drafts/purge", {"family": "router", "confirm": "router"}, status=403)
    assert n_drafts(tenant) == 2


def test_another_tenants_family_is_not_there_and_is_not_purged(tenant):
    other = make_tenant("Other")
    fill(other)
    client = logged_in(tenant)
    get(client, "/app/drafts?family=router", status=404)
    post(client, "/app/drafts/purge", {"family": "router", "confirm": "router"})
    assert n_drafts(other) == 2


def test_a_hostile_family_name_is_escaped(tenant):
    store(tenant, ["x"], scope=of_family('<img src="x">'))
    assert '<img src="x">' not in get(logged_in(tenant), "/app/drafts")


def test_the_page_that_explains_drafts_is_there(client):
    assert "Drafts" in client.get("/docs/drafts").content.decode()


def test_acceptance_by_another_column_leaves_repeats_out_and_a_column_that_is_not_there_gives_nothing(tenant):
    scope = fill(tenant)
    (draft, _) = make_drafts(tenant, "once more", "and again", seed=1)
    make_verdict(draft, strategy=Strategy.REPEAT)
    make_verdict(draft, strategy=Strategy.LOGPROBS, is_accepted=False)
    with tenant_scope(tenant.id):
        rates = kinship_rates(tenant.id, [scope.id], column="strategy")
        assert [(name, rate.k, rate.n) for name, rate in rates] == [("judge", 6, 10), ("logprobs", 0, 1)]
        assert kinship_rates(tenant.id, [scope.id], column="nothing") == []
        assert kinship_rates(tenant.id, []) == []
