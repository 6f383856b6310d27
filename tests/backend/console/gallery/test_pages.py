import pytest
import yaml
from django.utils.html import escape

from backend.compiles.models import Compile
from backend.console.compiles.editor import example_text
from backend.console.gallery.tasks import SENTENCES, read_measured, tasks
from backend.domain.number_words import percent
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.bench import gallery as bench
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db


def test_each_card_has_its_figures_and_leads_into_the_editor():
    text = get(logged_in(make_tenant()), "/app/gallery")
    assert len(tasks()) >= 5
    for task in tasks():
        assert escape(task.sentence) in text
        assert f'href="/app/compiles/new?example={task.name}"' in text
        assert f"{percent(task.accuracy_ppm)} of what was held out" in text
        assert f"about {task.minutes} min" in text


def test_one_press_compiles_the_task_and_a_second_one_does_not_compile_it_again():
    tenant = make_tenant()
    client = logged_in(tenant)
    answers = [post(client, "/app/gallery/spam/start", {"token": "one"}) for _ in range(2)]
    assert answers[0]["Location"] == answers[1]["Location"]
    with tenant_scope(tenant.id):
        (row,) = Compile.objects.of_tenant(tenant.id)
    assert row.name == "spam"


def test_who_may_not_compile_sees_the_cards_without_buttons():
    client = logged_in(make_tenant(), Role.VIEWER)
    assert "Compile it" not in get(client, "/app/gallery")
    post(client, "/app/gallery/spam/start", {"token": "one"}, status=403)


@pytest.mark.parametrize("task", ["nothing", "candidates", "inbox-shares"])
def test_only_tasks_of_the_gallery_are_started(task):
    post(logged_in(make_tenant()), f"/app/gallery/{task}/start", {"token": "one"}, status=404)


def test_every_task_has_its_words_and_its_spec():
    assert set(read_measured()["tasks"]) <= set(SENTENCES) == set(bench.NAMES)
    for name in SENTENCES:
        assert yaml.safe_load(example_text(name))["name"] == name


def test_the_figures_are_those_of_the_bench_s_page():
    page = bench.PAGE.read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    for name, figures in read_measured()["tasks"].items():
        mine = [line for line in lines if line.startswith(f"| {name} |")]
        assert len(mine) == figures["n_compiles"]
        for line, run in zip(mine, figures["runs"], strict=True):
            answers = {row["name"]: row for row in run["rows"]}
            for who in (bench.STUDENT, bench.TEACHER):
                assert f"{answers[who]['accuracy_ppm'] / 1e4:.1f} %" in line
        assert any(f"| {figures['spent_microusd'] / 1e6:.3f} |" in line for line in mine)
        assert any(f"| {figures['k_score_ppm'] / 1e6:.3f} |" in line for line in mine)
