"""One compile's figures are written alike wherever they are read: pages, API, command line, notebook."""

import html
import re

import pytest
from django.test import Client

from backend.artifacts.models import Artifact
from backend.compiles.draft_savings import savings_of_compile
from backend.domain.evaluation.alternatives import AlternativeName, label_alternatives
from backend.domain.evaluation.classification import evaluate
from backend.domain.evaluation.quality_card import Basis, Spent, TeacherCost, quality_card
from backend.domain.lifecycle import CompileStatus
from backend.domain.money.pricing import price_book
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from backend.usage.savings import note_saving
from gpu_runners.cli.api.compile_outcome import print_saved
from gpu_runners.cli.api.listings import _print_compiles
from gpu_runners.cli.display.printing import print_members
from gpu_runners.cli.display.quality_card import print_card
from gpu_runners.kolm.rows import Compile, build
from tests.backend.compiles.draft_world import SUMMARY, draft_world
from tests.backend.console.compiles.test_pages import judged
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import LABELS, change, fresh, make_artifact, make_compile, make_receipts, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

SPENT, SPENT_WORDS = 45_917, "$0.0459"
N, N_WRONG, ACCURACY = 120, 8, "93.3 %"
SAVED = "$0.001"
TEACHER = "$0.0308"  # for 1,000 answers, exactly $0.030755


def finished(tenant):
    """A compile that used drafts, was judged, billed and published, by the code that does each."""
    row = draft_world(tenant)
    truths = [LABELS[i % 2] for i in range(N)]
    answers = [LABELS[1 - i % 2] if i < N_WRONG else truths[i] for i in range(N)]
    judged(row, answers, frozen=answers[::-1])
    card = quality_card(
        task_type="label",
        evaluation=evaluate(LABELS, truths, answers),
        alternatives=label_alternatives(truths, answers, {AlternativeName.TEACHER: truths}),
        student=Spent(answer_us=5_000, nanousd=750),
        head=None,
        teacher=TeacherCost(nanousd=30_755, n_calls=40, basis=Basis.HELD_OUT),
        compile_microusd=SPENT,
        price_version=price_book().version,
    )
    change(row, evaluation=fresh(row).evaluation | {"card": card.to_json()}, spent_microusd=SPENT)
    make_receipts(row, n=9)
    artifact, score = make_artifact(row), fresh(row).k_score_ppm
    change(row, status=CompileStatus.SUCCEEDED, artifact_id=artifact.id)
    with tenant_scope(tenant.id):
        Artifact.objects.filter(id=artifact.id).update(k_score_ppm=score)
        price = {"sku": "teacher.kolm-grammar-1.output_token", "quantity": 1_000, "unit": "token"}
        fact = Fact(**price, price_version=price_book().version, source_key="one", amount_microusd=SPENT)
        record(tenant.id, [fact], compile_id=row.id, step="synthesis")
        saved = savings_of_compile(tenant.id, row.id)
        for key, part in (("slices", saved.slices), ("labels", saved.labels)):
            note_saving(
                tenant.id, row.id, step="synthesis", source_key=key, saving=part.saving, price_version="2026-11-26"
            )
    return fresh(row), artifact


def text_of(page):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_accuracy_score_cost_saving_and_teacher_are_the_same_words_everywhere(capsys):
    tenant = make_tenant()
    row, artifact = finished(tenant)
    id, other = public_id(row), public_id(make_compile(tenant))
    person = logged_in(tenant, Role.OWNER)
    answer = Client().get(f"/v1/compiles/{id}", headers=bearer(make_api_key(tenant))).json()
    assert answer["spent_microusd"] == SPENT
    assert answer["evaluation"]["accuracy_ppm"] == (N - N_WRONG) * 1_000_000 // N
    assert answer["drafts"]["net_microusd"] == 1_000
    score = f"{answer['k_score_ppm'] // 1_000 / 1_000:.3f}"
    assert answer["k_score_ppm"] % 1_000 >= 500, "else rounding up and down are the same"
    (teacher,) = [one for one in answer["card"]["rows"] if one["name"] == "teacher"]
    assert teacher["per_1000_microusd"] == 30_755

    def page(path):
        return text_of(get(person, f"/app/{path}"))

    def printed(act):
        act()
        return " ".join(capsys.readouterr().out.split())

    parsed = build(Compile, answer)
    shown = {
        "overview": (page(""), {score, SPENT_WORDS, SAVED}),
        "compile": (
            page(f"compiles/{id}") + page(f"compiles/{id}?tab=drafts"),
            {score, SPENT_WORDS, SAVED, SUMMARY, ACCURACY, TEACHER},
        ),
        "list": (page("compiles"), {score, SPENT_WORDS}),
        "compare": (page(f"compiles/compare?compile={id}&compile={other}"), {score, SPENT_WORDS, SUMMARY, ACCURACY}),
        "artifact": (page(f"artifacts/{public_id(artifact)}"), {score, ACCURACY, TEACHER}),
        "artifacts": (page("artifacts"), {score}),
        "bills": (page("bills"), {SPENT_WORDS, SAVED}),
        "drafts": (page("drafts"), {SAVED, SUMMARY}),
        "kolm ls": (printed(lambda: _print_compiles([parsed])), {score, SPENT_WORDS}),
        "kolm show": (printed(lambda: print_members(answer)), {score, SPENT_WORDS}),
        "kolm show, drafts": (printed(lambda: print_saved(answer)), {SUMMARY}),
        "kolm show, card": (printed(lambda: print_card(answer["card"])), {ACCURACY, TEACHER}),
        "notebook": (text_of(parsed._repr_html_()), {score, SPENT_WORDS, ACCURACY, TEACHER}),
    }
    missing = {name: words - {one for one in words if one in text} for name, (text, words) in shown.items()}
    assert not {name: (left, shown[name][0][:3000]) for name, left in missing.items() if left}
    rounded_up = f"{answer['k_score_ppm'] / 1e6:.3f}"
    other_forms = (rounded_up, "$0.045917", "$0.046", "$0.030755", "$0.00124", "$0.00071 ")
    exact_is_due = {"bills"}  # the column that adds up
    for name, (text, _) in shown.items():
        stray = (
            [] if name in exact_is_due else [text[at - 60 : at + 20] for at in map(text.find, other_forms) if at >= 0]
        )
        assert not stray, (name, stray)
