"""What drafts saved: sums that can be added up by hand, and the same figure wherever it is shown."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from backend.compiles.draft_savings import DraftSavings, Part, savings_by_family, savings_of_compile
from backend.compiles.draft_words import acceptance_words, engine_words, summary, teacher_time
from backend.compiles.models import Compile
from backend.domain.drafts.vocabulary import Saving
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from deploy.demo import demo_report
from gpu_runners.cli.api.compile_outcome import print_saved
from gpu_runners.cli.display.draft_tables import print_stats
from tests.backend.compiles.draft_world import ACCEPTED, SUMMARY, draft_world, make_call
from tests.backend.console.pages import get, logged_in
from tests.backend.drafts.rows import make_offer
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def of_compile(row: Compile) -> DraftSavings:
    with tenant_scope(row.tenant_id):
        found = savings_of_compile(row.tenant_id, row.id)
    assert found is not None
    return found


def api(tenant: Tenant, path: str) -> Any:
    answer = Client().get(path, headers=bearer(make_api_key(tenant)))
    assert answer.status_code == 200, answer.content
    return answer.json()


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_figure_adds_up_by_hand(tenant: Tenant) -> None:
    found = of_compile(draft_world(tenant))
    assert found.saving == Saving(avoided=1_110, verification=100, embedding=1, audits=9)
    assert (found.slices.paid_microusd, found.labels.paid_microusd) == (400 + 90, 150 + 150 + 300)
    assert (found.slices.without_drafts_microusd, found.labels.without_drafts_microusd) == (490 + 910, 600 + 200)
    assert (found.net_microusd, found.net_share_ppm) == (1_000, round(1e6 * 1_000 / 2_200))
    assert (found.n_asked, found.n_accepted, found.n_repeated) == (3, 2, 5)
    # 7 candidates at 100 ms, 4 label prompts at 100 ms, less 300 ms of questions
    assert (found.saved_ms, teacher_time(found.saved_ms)) == (800, "0.80 s")
    assert (summary(found), acceptance_words(found)) == (SUMMARY, ACCEPTED)


def test_what_was_paid_is_what_was_not_saved(tenant: Tenant) -> None:
    found = of_compile(draft_world(tenant))
    for part in (found.slices, found.labels):
        assert part.without_drafts_microusd - part.saving.net == part.paid_microusd + part.costs_microusd


def test_api_command_line_and_demo_show_the_same_figure(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    row = draft_world(tenant)
    compile, stats = api(tenant, f"/v1/compiles/{public_id(row)}"), api(tenant, "/v1/drafts/stats")
    (family,) = stats["data"]
    assert compile["drafts"] == family["saving"] == stats["total"]
    assert (compile["drafts"]["summary"], compile["drafts"]["accepted"]) == (SUMMARY, ACCEPTED)
    assert family["lookups"]["acceptance"] == family["saving"]["acceptance"]
    assert family["net_microusd"] == family["saving"]["net_microusd"] == 1_000
    print_stats(stats)
    of_the_family = capsys.readouterr().out
    print_saved(compile)
    of_the_compile = capsys.readouterr().out
    for written in (of_the_family, of_the_compile, demo_report.draft_summary(compile).plain):
        assert SUMMARY in written
        assert ACCEPTED in written


@pytest.mark.parametrize(
    "path", ["compiles/{}?tab=all", "compiles/compare?compile={}&compile={}", "drafts", "drafts?family=router"]
)
def test_every_page_shows_the_figure_that_the_api_has(tenant: Tenant, path: str) -> None:
    row = draft_world(tenant)
    shown = text_of(
        get(logged_in(tenant, Role.VIEWER), f"/app/{path.format(public_id(row), public_id(make_compile(tenant)))}")
    )
    saving = api(tenant, f"/v1/compiles/{public_id(row)}")["drafts"]
    assert saving["summary"] in shown
    assert saving["accepted"] in shown
    assert "compare" in path or saving["time_saved"] in shown


@pytest.mark.parametrize("path", ["compiles/{}?tab=all", "drafts"])
def test_what_an_engine_kept_is_shown_wherever_savings_are(
    tenant: Tenant, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = draft_world(tenant)
    make_offer(
        tenant, compile_id=row.id, slice_position=7, engine_written=6_400, engine_proposed=8_969, engine_kept=3_661
    )
    found = of_compile(row)
    assert (found.net_microusd, found.n_asked) == (1_000, 3)  # passes are no money, proposals no verdicts
    words = engine_words(found)
    assert words.startswith("3,661 of 6,400 tokens came from drafts: 2.34 tokens a pass of the engine")
    compile = api(tenant, f"/v1/compiles/{public_id(row)}")
    assert compile["drafts"]["engine"]["per_pass"] == pytest.approx(2.3366, abs=1e-4)
    assert words in text_of(get(logged_in(tenant, Role.VIEWER), f"/app/{path.format(public_id(row))}"))
    print_saved(compile)
    assert words in capsys.readouterr().out


def test_a_share_without_labels_is_of_synthesis_alone(tenant: Tenant) -> None:
    row = make_compile(tenant)
    make_offer(tenant, compile_id=row.id, n_reused=2, avoided_microusd=300, verification_microusd=100)
    make_call(row, "synthesis:0:0:0", 100)
    make_call(row, "labeling:one", 5_000)
    assert summary(of_compile(row)) == "Net saving $0.0002, 50.0 % of what synthesis would have cost"
    assert of_compile(row).saved_ms is None


def test_a_loss_is_written_as_one(tenant: Tenant) -> None:
    row = make_compile(tenant)
    make_offer(tenant, compile_id=row.id, avoided_microusd=0, verification_microusd=33)
    make_call(row, "synthesis:0:0:0", 100, 8, 400)
    make_call(row, "drafts:0:0", 33, 1, 250)
    found = of_compile(row)
    assert summary(found) == "Net saving -$0.000033, -33.0 % of what synthesis would have cost"
    assert teacher_time(found.saved_ms) == "-0.25 s"


def test_a_compile_that_looked_for_nothing_has_no_figure(tenant: Tenant) -> None:
    row = make_compile(tenant)
    assert api(tenant, f"/v1/compiles/{public_id(row)}")["drafts"] is None
    with tenant_scope(tenant.id):
        assert savings_by_family(tenant.id) == {}
    assert summary(DraftSavings()) == "Net saving $0"


def test_families_are_added_up_and_of_another_tenant_nothing_is_counted(tenant: Tenant) -> None:
    draft_world(tenant)
    make_offer(tenant, family="triage", n_reused=1, avoided_microusd=50)
    draft_world(make_tenant("Other"))
    stats = api(tenant, "/v1/drafts/stats")
    assert [row["saving"]["net_microusd"] for row in stats["data"]] == [1_000, 50]
    assert (stats["total"]["net_microusd"], stats["total"]["n_compiles"]) == (1_050, 2)
    assert api(tenant, "/v1/drafts/stats?family=triage")["total"]["net_microusd"] == 50
    assert api(tenant, "/v1/drafts/stats?since=2100-01-01T00:00:00Z")["total"]["n_compiles"] == 0


def test_untimed_calls_are_in_no_mean_and_sums_keep_what_was_measured() -> None:
    timed, untimed = DraftSavings(saved_ms=5), DraftSavings()
    assert (timed + untimed).saved_ms == 5
    assert (untimed + untimed).saved_ms is None
    part = Part(n_reused=1, saving=Saving(avoided=3), paid_microusd=1)
    assert (part + part).net_share_ppm == 750_000
