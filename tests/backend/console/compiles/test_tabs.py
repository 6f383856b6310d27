"""The tabs of a compile's page: addresses that work without a script, fragments for one, losses while it trains."""

import json
import re

import pytest

from backend.compiles.events import append_event
from backend.compiles.models import StepRun
from backend.console.compiles.tabs import Tab
from backend.domain.lifecycle import CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from tests.backend.console.compiles.test_pages import judged, logged_in_for
from tests.backend.console.pages import get, plain
from tests.compile_factories import LABELS, change, make_compile, make_receipts, public_id
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row(committed_db):
    made = make_compile(make_tenant())
    judged(made, [LABELS[i % 2] for i in range(38)] + ["refund", "refund"])
    make_receipts(made, n=2)
    change(made, status=CompileStatus.GATE_FAILED)
    return made


def current(text: str) -> list[str]:
    return re.findall(r'<a id="tab-(\w+)" href="\?tab=\1" aria-current="page"', text)


@pytest.mark.parametrize("tab", list(Tab))
def test_every_tab_is_a_whole_page_with_an_address(row, tab):
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab={tab}")
    assert current(text) == [tab]
    assert "It did not pass its gate" in text  # the head is above each


@pytest.mark.parametrize("tab", list(Tab))
def test_a_tab_comes_alone_where_the_page_is_open(row, tab):
    headers = {"HX-Request": "true", "HX-Target": "tabs"}
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab={tab}", headers=headers)
    assert text.startswith('<div id="tabs">')
    assert current(text) == [tab]
    assert "<html" not in text


def test_going_back_restores_the_whole_page(row):
    headers = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
    assert "<html" in get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=steps", headers=headers)


def test_the_first_tab_is_what_a_reader_wants_first(row):
    client, path = logged_in_for(row), f"/app/compiles/{public_id(row)}"
    assert current(get(client, path)) == ["gate"]
    assert current(get(client, f"{path}?slice=0")) == ["selection"]
    assert current(get(client, f"{path}?tab=nonsense")) == ["gate"]
    change(row, status=CompileStatus.RUNNING)
    assert current(get(client, path)) == ["steps"]


def test_the_head_answers_in_order(row):
    text = plain(get(logged_in_for(row), f"/app/compiles/{public_id(row)}"))
    answers = ["It did not pass its gate", "How good", "What it cost", "What to do next", 'aria-label="More about']
    places = [text.index(answer) for answer in answers]
    assert places == sorted(places)
    assert "Accuracy 97.5 % [87.1, 99.5] on 40 held-out inputs" in text
    assert "1 of 40 held-out answers" in text


def test_a_running_compile_says_how_far_it_is(row):
    change(row, status=CompileStatus.RUNNING, gate=None, evaluation=None, k_score_ppm=None)
    with tenant_scope(row.tenant_id):
        StepRun.objects.filter(compile=row, name=StepName.SLICING).update(status="succeeded")
        StepRun.objects.filter(compile=row, name=StepName.SYNTHESIS).update(status="running", done=12, total=96)
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}")
    assert "Synthesis, 12 of 96. 1 of 9 steps are done." in text
    assert "Measured on held-out gold after training." in text


def test_the_losses_that_a_runner_reports_are_drawn_while_it_trains(row):
    change(row, status=CompileStatus.RUNNING)
    reports = [
        ("calibrate 1 of 1, epoch 1 of 2", 3, 0.7),
        ("refit, epoch 1 of 2", 6, 0.5),
        ("refit, epoch 2 of 2", 9, 0.25),
    ]
    with tenant_scope(row.tenant_id):
        for message, done, loss in reports:
            data = {"step": "distillation", "done": done, "total": 12, "message": message, "loss": loss, "eta_s": 4.0}
            append_event(row.tenant_id, row.id, "step.progress", data)
        append_event(row.tenant_id, row.id, "step.progress", {"step": "distillation", "done": 0, "total": 0})
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}/parts/training")
    plot = json.loads(re.search(r'<script id="loss-data"[^>]*>(.*?)</script>', text)[1])
    assert plot["x"] == [3, 6, 9]
    assert {one["label"]: one["values"] for one in plot["series"]} == {
        "calibrate 1 of 1": [0.7, None, None],
        "refit": [None, 0.5, 0.25],
    }
    assert "loss 0.2500 at step 9 of 12" in text
    page = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=training")
    assert f'hx-get="/app/compiles/{public_id(row)}/parts/training" hx-trigger="kolm:advanced' in page


def test_the_data_tab_has_the_labels_with_what_the_teacher_gave_them(row):
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=data")
    assert "Labels and their shares" in text
    for label in LABELS:
        assert f"<bdi>{label}</bdi>" in text
