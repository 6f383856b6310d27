"""The page of one compile, on what the pipeline really leaves and on hostile rows."""

from typing import Any

import numpy as np
import pytest

from backend.artifacts.models import Receipt
from backend.compiles.events import append_event
from backend.compiles.models import Candidate, Compile, StepRun
from backend.console.compiles.receipts import check_chain
from backend.domain.evaluation.alternatives import AlternativeName, label_alternatives
from backend.domain.evaluation.classification import evaluate
from backend.domain.evaluation.gate import decide_gate
from backend.domain.evaluation.gate_floors import GateOptions
from backend.domain.evaluation.kscore import score_evaluation
from backend.domain.evaluation.quality_card import Basis, Spent, TeacherCost, quality_card
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.console.pages import get, logged_in, post
from tests.backend.domain.evaluation.scores import own
from tests.compile_factories import (
    LABELS,
    change,
    fresh,
    make_artifact,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    public_id,
)
from tests.factories import make_tenant
from tests.workers.collapsing_teacher import TO_SELECTION, collapsed, make
from tests.workers.pipeline_helpers import start, taught_by, walk_through

HOSTILE = '<script>alert("x")</script>\u202egnp.exe'
LONG = "a very long word " * 6_000  # 100 KB


def judged(row: Compile, answers: list[str | None], *, frozen: list[str] | None = None) -> None:
    """As the gate's step leaves a compile, by the gate's own code; `frozen` are the answers of the frozen base."""
    truths = [LABELS[i % 2] for i in range(len(answers))]
    others = {} if frozen is None else {AlternativeName.FROZEN: frozen}
    alternatives = () if frozen is None else label_alternatives(truths, answers, others)
    evaluation = evaluate(LABELS, truths, answers)
    score = score_evaluation(evaluation, size_bytes=9_000, own=own(700), cost_nanousd=20, p50_us=900)
    decision = decide_gate(GateOptions(), evaluation, score, alternatives=alternatives)
    shown = evaluation.to_json() | {"alternatives": [one.to_json() for one in alternatives]}
    change(row, evaluation=shown, gate=decision.to_json(), k_score_ppm=decision.k_score.composite_ppm)
    with tenant_scope(row.tenant_id):
        facts = {"passed": decision.passed, "k_score": decision.k_score.to_json()}
        StepRun.objects.filter(compile=row, name=StepName.GATE).update(output={"digests": {}, "facts": facts})


def trained(row: Compile) -> None:
    """As distillation leaves its step: the log of both fits."""
    log: list[dict[str, Any]] = [
        {"fit": "calibrate", "epoch": 1, "train_loss": 0.7, "validation_loss": 0.6},
        {"fit": "calibrate", "epoch": 2, "train_loss": 0.4, "validation_loss": 0.5},
        {"fit": "train", "epoch": 1, "train_loss": 0.65},
        {"fit": "train", "epoch": 2, "train_loss": 0.31},
    ]
    facts = {"training_log": log, "n_parameters": 1234, "runner_ms": 3210, "attempts": 1, "resumed_from_epoch": 0}
    with tenant_scope(row.tenant_id):
        StepRun.objects.filter(compile=row, name=StepName.DISTILLATION).update(output={"digests": {}, "facts": facts})


@pytest.mark.usefixtures("committed_db")
def test_what_a_walked_compile_leaves_is_shown(monkeypatch):
    taught_by(monkeypatch, collapsed())
    row = make(["resynthesize", "drop_k"])
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    trained(row)
    judged(fresh(row), ["refund", "other"] * 14 + [None, "refund"])
    make_receipts(row, n=1)
    client = logged_in_for(row)
    text = get(client, f"/app/compiles/{public_id(row)}?tab=all")
    assert "policy_clarification" in text
    assert "cluster gap: fewer clusters than K" in text
    assert "map-gap" in text
    assert "map-kept" in text
    assert "map-dropped" in text
    assert "distinct groups were too few: another round at a higher temperature" in text
    assert "mitigation: drop_k" in text
    assert "natural clusters" in text
    assert "Accuracy, lower bound" in text
    assert "wilson" in text
    assert "no answer" in text  # a column of the confusion matrix
    assert '"loss-data"' in text
    assert "validation loss" in text
    with tenant_scope(row.tenant_id):
        n_kept = Candidate.objects.filter(compile=row).exclude(state__in=("dropped", "rejected")).count()
    assert f"kept ({n_kept})" in text
    one = get(client, f"/app/compiles/{public_id(row)}?slice=0")
    assert "map-cluster" in one
    data = get(client, f"/app/compiles/{public_id(row)}/data")
    assert "not among the K of its slice" in data
    assert "kept, labeled and trained on" in data


def test_a_model_is_shown_beside_its_alternatives_with_the_interval_of_the_difference(row):
    truths = [LABELS[i % 2] for i in range(160)]
    swapped = [LABELS[1 - i % 2] for i in range(16)] + truths[16:]
    judged(row, swapped, frozen=truths)
    change(row, status=CompileStatus.GATE_FAILED)
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert "Beside the alternatives" in text
    assert "always the commonest label" in text
    assert "logistic regression on the frozen base, same pairs" in text
    assert '<span class="bad-text">−10.0</span>' in text
    assert "Not clearly worse than an alternative" in text
    assert "The adaptation made it worse" in text
    assert "Quality card" not in text


def test_the_quality_card_says_what_an_answer_takes_and_when_the_compile_has_paid_for_itself(row):
    truths = [LABELS[i % 2] for i in range(40)]
    judged(row, truths)
    card = quality_card(
        task_type="label",
        evaluation=evaluate(LABELS, truths, truths),
        alternatives=label_alternatives(truths, truths, {}),
        student=Spent(answer_us=5_000, nanousd=750),
        head=None,
        teacher=TeacherCost(nanousd=30_750, n_calls=40, basis=Basis.LABELING),
        compile_microusd=60_000,
        price_version="2026-11-22",
    )
    change(row, evaluation=fresh(row).evaluation | {"card": card.to_json()})
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert "Quality card" in text
    assert "on a runner ($0.00075 for 1,000 answers): after 2,000 answers" in text
    assert "without the output of second and later answers" in text


def logged_in_for(row: Compile, role: Role = Role.OWNER) -> Any:
    with tenant_scope(row.tenant_id):
        return logged_in(Tenant.objects.get(id=row.tenant_id), role)


@pytest.fixture
def row(db) -> Compile:
    return make_compile(make_tenant())


def test_a_compile_that_has_just_been_queued_has_a_page_that_follows_it(row):
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert f'data-stream="/app/compiles/{public_id(row)}/events"' in text
    assert "Packaging" in text
    assert "The first receipt is signed when the first step ends" in text
    assert "Cancel" in text


def test_texts_of_customers_and_teachers_cannot_harm_the_page(row):
    pool = make_slice(row, name="x" * 40 + "<b>", is_synthesized=True)
    vector = np.ones(8, dtype=np.float32)
    for i, text in enumerate([HOSTILE, LONG, "fine", "other fine"]):
        vector[i] = i + 2
        make_candidate(
            pool, text=text, state="trained", embedding=vector.tobytes(), label=HOSTILE[:60], votes={HOSTILE: 3}
        )
    make_candidate(pool, text="\u202e" + HOSTILE, state="rejected", reasons=[HOSTILE])
    with tenant_scope(row.tenant_id):
        append_event(row.tenant_id, row.id, "warning", {"code": HOSTILE, "message": HOSTILE})
    change(row, failure_code="teacher_failed", failure_message=HOSTILE, failed_step="synthesis", status="failed")
    client = logged_in_for(row)
    for path in ("", "?tab=all", "/data", "/parts/head", "/parts/steps", "/parts/wrong"):
        text = get(client, f"/app/compiles/{public_id(row)}{path}")
        assert "<script>alert" not in text
    data = get(client, f"/app/compiles/{public_id(row)}/data")
    assert "&lt;script&gt;alert" in data
    assert "<bdi>" in data
    assert "102,000 characters" in data or "102000" in data
    assert len(data) < 60_000


@pytest.mark.nightly
def test_a_page_stays_small_and_answers_with_few_queries_however_large_the_compile(row):
    rng = np.random.default_rng(7)
    pools = [make_slice(row, name=f"slice-{i}", position=i, k_actual=4) for i in range(40)]
    rows = []
    with tenant_scope(row.tenant_id):
        for n in range(2_400):
            pool = pools[n % 40]
            vector = rng.normal(size=16).astype(np.float32)
            rows.append(
                Candidate(
                    tenant_id=row.tenant_id,
                    compile=row,
                    slice=pool,
                    text=f"message {n} " + "word " * 30,
                    text_key=f"{n:064x}",
                    origin="draft" if n % 11 == 0 else "fresh",
                    state="trained" if n % 3 == 0 else "dropped",
                    cluster=n % 4,
                    embedding=(vector / np.linalg.norm(vector)).tobytes(),
                )
            )
        Candidate.objects.bulk_create(rows)
    make_receipts(row, n=9)
    client = logged_in_for(row)
    text = get(client, f"/app/compiles/{public_id(row)}?tab=all")
    assert "2000 of 2400 are drawn" in text
    assert "24 of 40 are shown" in text
    assert text.count("<tr data-row") == 0
    data = get(client, f"/app/compiles/{public_id(row)}/data")
    assert data.count("<tr data-row") == 50


def test_the_chain_is_verified_and_a_changed_receipt_is_named(row):
    make_receipts(row, n=4)
    make_artifact(row)
    client = logged_in_for(row, Role.VIEWER)
    path = f"/app/compiles/{public_id(row)}/verify"
    held = post(client, path, status=200).content.decode()
    assert "4 receipts, each signed and chained; the .kolm is intact and trusted" in held
    with tenant_scope(row.tenant_id):
        receipts = list(Receipt.objects.filter(compile_id=row.id).order_by("seq"))
    whole = check_chain(receipts, public_id(row))
    assert [link.fault for link in whole] == [""] * 4
    dropped = check_chain([*receipts[:1], *receipts[2:]], public_id(row))
    assert [bool(link.fault) for link in dropped] == [False, True, True]
    receipts[2].envelope["payload"] = receipts[1].envelope["payload"]
    assert "signature does not belong" in check_chain(receipts, public_id(row))[2].fault
    assert "about another compile" in check_chain(receipts[:1], "cmp_" + "0" * 26)[0].fault


def test_another_tenants_compile_is_not_there(row):
    client = logged_in(make_tenant())
    for path in ("", "/data", "/data.jsonl", "/parts/head", "/parts/gate"):
        get(client, f"/app/compiles/{public_id(row)}{path}", status=404)
    for path in ("/verify", "/cancel", "/resume", "/ablate"):
        assert client.post(f"/app/compiles/{public_id(row)}{path}", {"arm": "all"}).status_code == 404
    assert get(client, "/app/compiles/nonsense", status=404)


def test_who_may_only_look_sees_no_buttons_and_cannot_press_them(row):
    client = logged_in_for(row, Role.VIEWER)
    text = get(client, f"/app/compiles/{public_id(row)}?tab=all")
    assert "/cancel" not in text
    assert "Bill</h2>" not in text
    for path in ("cancel", "resume", "ablate"):
        assert client.post(f"/app/compiles/{public_id(row)}/{path}").status_code == 403
    assert fresh(row).status == CompileStatus.QUEUED


def test_a_compile_is_canceled_and_resumed_with_a_larger_budget(row):
    client = logged_in_for(row, Role.DEVELOPER)
    post(client, f"/app/compiles/{public_id(row)}/cancel")
    assert fresh(row).status == CompileStatus.CANCELED
    text = get(client, f"/app/compiles/{public_id(row)}?tab=all")
    assert "Resume continues at the first unfinished step" in text
    assert "data-stream" not in text
    post(client, f"/app/compiles/{public_id(row)}/resume", {"budget_usd": "3.5"})
    assert (fresh(row).status, fresh(row).budget_microusd) == (CompileStatus.QUEUED, 3_500_000)
    post(client, f"/app/compiles/{public_id(row)}/resume", {"budget_usd": "free"}, status=400)


@pytest.mark.parametrize("plan", ["auto", "fixed"])
def test_a_fixed_plan_is_offered_as_an_arm_where_the_plan_decided(db, plan: str) -> None:
    row = make_compile(make_tenant(), plan=plan)
    change(row, status=CompileStatus.GATE_FAILED)
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert 'name="arm" value="random"' in text
    assert ('name="arm" value="fixed"' in text) == (plan == "auto")


def test_a_part_of_the_pairs_that_trains_is_on_the_page_with_its_figure(row) -> None:
    figures = {"gain_ppm": 20_000, "se_ppm": 9_000}
    cuts = [
        {"name": "all", "n": 300, "accuracy_ppm": 801_000, "chosen": False, **figures},
        {"name": "class_weights", "n": 300, "accuracy_ppm": 821_000, "chosen": True, **figures},
        {"name": "half", "n": 150, "accuracy_ppm": 711_000, "chosen": False, **figures},
    ]
    facts = {"n_labeled": 290, "n_pairs": 300, "n_synthetic_pairs": 290, "n_gold_pairs": 10, "cuts": cuts}
    with tenant_scope(row.tenant_id):
        done = {"status": "succeeded", "output": {"digests": {"dataset": "d", "labels": "e"}, "facts": facts}}
        StepRun.objects.filter(compile=row, name=StepName.LABELING).update(**done)
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert "80.1 % on 300 pairs" in text
    assert '82.1 % on 300 pairs <span class="tag good">trains</span>' in text
    assert "71.1 % on" not in text


def test_a_failure_says_what_to_do(row):
    change(row, status="failed", failure_code="budget_exhausted", failure_message="Too little.", failed_step="labeling")
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert "Labeling failed" in text
    assert "/docs/errors#budget_exhausted" in text
    assert "New budget" in text


def test_after_a_failed_preflight_the_spec_is_changed_in_a_new_compile(row):
    change(row, status="failed", failure_code="preflight_failed", failure_message="The key is wrong.")
    text = get(logged_in_for(row), f"/app/compiles/{public_id(row)}?tab=all")
    assert "choose Compile again and change it" in text
    assert "Resume continues at this step" not in text
