"""What labelling bought, on the page of its compile: while it runs, at its end, and where there were no rounds."""

from typing import Any

import pytest

from backend.compiles.models import Compile, StepRun
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import make_compile, public_id
from tests.factories import make_tenant

ROUNDS: list[dict[str, Any]] = [
    {
        "round": 1,
        "n": 75,
        "why": {"uncertain": 60, "random": 15},
        "n_rows": 100,
        "n_votes": 100,
        "accuracy_ppm": 710_000,
    },
    {"round": 2, "n": 20, "why": {"asked_again": 20}, "n_rows": 175, "n_votes": 175, "accuracy_ppm": 803_000},
]
CURVE = [
    {"n": n, "n_rows": 175, "accuracy_ppm": ppm, "loss_ppm": 500_000}
    for n, ppm in [(35, 600_000), (70, 720_000), (140, 805_000)]
]
NOISE = {"error_ppm": {"refund": 21_000, "other": 4_000}, "repeat_ppm": 300_000, "doubt_ppm": 10_000}
KNOWN = {"n_rows": 175, "n_votes": 195, "accuracy_ppm": 811_000}
END = {"stopped_for": "flat", "curve": CURVE, "noise": NOISE, **KNOWN}
DONE = {"n_labeled": 170, "n_unverified": 5, "n_labeled_before": 0, "label_samples": 1}
FACTS = {
    **DONE,
    "votes": {"n": 195, "rows": {"1": 155, "2": 20}},
    "purchases": ROUNDS,
    "at_end": KNOWN,
    "stopped_for": "flat",
    "noise": NOISE,
    "curve": CURVE,
}


@pytest.fixture
def row(db) -> Compile:
    return make_compile(make_tenant())


def section(row: Compile, *, path: str = "?tab=labels", facts: dict[str, Any] | None = None, **fields: Any) -> str:
    """The page of a compile whose labelling step has this row, from the section on."""
    if facts is not None:
        fields["output"] = {"digests": {}, "facts": facts}
    with tenant_scope(row.tenant_id):
        StepRun.objects.filter(compile=row, name=StepName.LABELING).update(**fields)
        client = logged_in(Tenant.objects.get(id=row.tenant_id))
    text = get(client, f"/app/compiles/{public_id(row)}{path}")
    return text.partition("What was bought")[2].partition("</section>")[0]


def test_each_round_is_a_line_with_what_was_bought_and_the_end_has_its_reason(row):
    shown = section(row, facts=FACTS, purchases=[*ROUNDS, END])
    assert "75 inputs (60 least sure, 15 at random)" in shown
    assert "20 inputs asked again" in shown
    assert '<td class="num">195</td>' not in shown  # votes are those of a round, not all so far
    assert "81.1 %" in shown
    assert "further labels would add next to nothing" in shown
    assert "give them clearer descriptions" in shown
    assert "155 with 1, 20 with 2" in shown
    assert "an estimated 2.1 % of its answers to inputs of &#x27;refund&#x27; are wrong" in shown


def test_accuracy_is_drawn_over_inputs_with_the_curve_and_the_purchases_as_marks(row):
    shown = section(row, purchases=[*ROUNDS, END])
    assert "after each round: from 71.0 % to 81.1 %; learning curve: from 60.0 % to 80.5 %" in shown
    assert shown.count('class="point s3"') == 2  # the first picks and a round of inputs
    assert shown.count('class="point s4"') == 1  # a round of votes


def test_the_facts_alone_show_the_same(row):
    assert section(row, facts=FACTS, purchases=None) == section(row, facts=FACTS, purchases=[*ROUNDS, END])


def test_a_compile_that_runs_shows_the_rounds_so_far_in_a_part_of_its_own(row):
    shown = section(row, path="/parts/labels", status="running", purchases=[ROUNDS[0] | {"curve": [], "noise": NOISE}])
    assert "75 inputs (60 least sure, 15 at random)" in shown
    assert "under way" in shown
    assert "Why it stopped" not in shown
    with tenant_scope(row.tenant_id):
        client = logged_in(Tenant.objects.get(id=row.tenant_id))
    page = get(client, f"/app/compiles/{public_id(row)}?tab=labels")
    assert f'hx-get="/app/compiles/{public_id(row)}/parts/labels"' in page
    assert "kolm:advanced" in page


def test_labels_of_a_release_before_were_bought_at_once(row):
    shown = section(row, facts=DONE | {"label_samples": 5}, purchases=None)
    assert "All labels were bought at once: 175 inputs, 5 votes each." in shown
    assert "<table" not in shown


def test_nothing_is_shown_before_a_label_is_there(row):
    assert section(row) == ""


def test_the_name_of_a_label_cannot_harm_the_page(row):
    noise = {"error_ppm": {"<script>alert(1)</script>": 21_000}}
    shown = section(row, purchases=[{"stopped_for": "<b>", "noise": noise, **KNOWN}])
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<b>." not in shown
