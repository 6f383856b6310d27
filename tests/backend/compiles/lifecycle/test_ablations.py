"""/v1/compiles/{id}/ablations: who may be ablated, what an arm is, and what is answered once it is measured."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client

from backend.blobs import put_json, put_jsonl
from backend.compiles.models import Compile, CompileLease, Outbox, StepRun, TeacherCall
from backend.domain.answers.candidates import text_key
from backend.domain.lifecycle import STEPS, CompileStatus, StepName, StepStatus
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import (
    change,
    make_candidate,
    make_compile,
    make_slice,
    make_teacher_key,
    public_id,
)
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db
TRUTHS = ["refund", "other"] * 10
LABEL_COST = 120


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def secret(tenant: Tenant) -> str:
    return make_api_key(tenant)


@pytest.fixture
def source(tenant: Tenant) -> Compile:
    """Nine valid candidates of which three were labelled, and one rejected; evaluated at 15 of 20."""
    return ended(make_compile(tenant, name="router"), n_labeled=3, n_dropped=6, answers=answers(15))


def answers(n_right: int, *, at: int = 0) -> list[str]:
    """Answers to TRUTHS of which `n_right` are right, from row `at` on."""
    right = {(at + i) % len(TRUTHS) for i in range(n_right)}
    return [truth if i in right else "?" for i, truth in enumerate(TRUTHS)]


def ended(row: Compile, *, n_labeled: int, n_dropped: int, answers: Sequence[str]) -> Compile:
    """As after a street: candidates in their last states, label calls, the outputs of the steps."""
    pool = make_slice(row)
    states = ["trained"] * n_labeled + ["dropped"] * n_dropped + ["rejected"]
    for i, state in enumerate(states):
        make_candidate(pool, text=f"text {i}", state=state)
    heldout = [{"input": f"gold {i}", "output": truth} for i, truth in enumerate(TRUTHS)]
    outputs = {
        StepName.SLICING: {"digests": {"gold_heldout": put_jsonl(row.tenant_id, heldout)}, "facts": {}},
        StepName.LABELING: {"digests": {}, "facts": {"n_pairs": n_labeled + 12, "n_gold_pairs": 12}},
        StepName.EVALUATION: {
            "digests": {"evals": put_json(row.tenant_id, {"predictions": list(answers)})},
            "facts": {},
        },
    }
    with tenant_scope(row.tenant_id):
        for name, output in outputs.items():
            StepRun.objects.filter(compile=row, name=name).update(status=StepStatus.SUCCEEDED, output=output)
        StepRun.objects.filter(compile=row, name=StepName.DISTILLATION).update(spent_microusd=2000)
        StepRun.objects.filter(compile=row, name=StepName.EVALUATION).update(spent_microusd=300)
        for i in range(n_labeled):
            label_call(row, f"text {i}")
    change(row, status=CompileStatus.GATE_FAILED, k_score_ppm=800_000)
    with tenant_scope(row.tenant_id):
        row.refresh_from_db()
    return row


def label_call(row: Compile, text: str) -> None:
    TeacherCall.objects.create(
        tenant_id=row.tenant_id,
        compile=row,
        step=StepName.LABELING,
        key=f"labeling:{text_key(text)}",
        state="applied",
        fence=1,
        model="m",
        n=5,
        reserved_microusd=0,
        cost_microusd=LABEL_COST,
    )


def address(row: Compile) -> str:
    return f"/v1/compiles/{public_id(row)}/ablations"


def post(secret: str, row: Compile, body: Any, **headers: str) -> Any:
    headers = bearer(secret) | headers
    return Client().post(address(row), json.dumps(body), content_type="application/json", headers=headers)


def listed(secret: str, row: Compile) -> Any:
    return Client().get(address(row), headers=bearer(secret)).json()["data"]


def test_an_arm_is_a_queued_compile_of_its_own(tenant: Tenant, secret: str, source: Compile) -> None:
    answer = post(secret, source, {"arm": "all"})
    assert answer.status_code == 202, answer.content
    body = answer.json()
    assert answer["Location"] == f"/v1/compiles/{body['id']}"
    assert body["ablation"] == {"of": public_id(source), "arm": "all"}
    assert (body["name"], body["status"], body["artifact"]) == ("router-ablation-all", "queued", None)
    assert body["budget_microusd"] == source.budget_microusd
    assert (body["spec"]["sampling"]["method"], body["spec"]["draft_cache"]["enabled"]) == ("all", False)
    with tenant_scope(tenant.id):
        row = Compile.objects.get(ablation_of=source.id)
        assert list(StepRun.objects.filter(compile=row).order_by("position").values_list("name", flat=True)) == list(
            STEPS
        )
    assert CompileLease.objects.get(compile_id=row.id).due_at is not None
    assert Outbox.objects.filter(ids__compile_id=str(row.id), sent_at=None).count() == 1


def test_what_is_no_ablation_says_so(secret: str, source: Compile) -> None:
    shown = Client().get(f"/v1/compiles/{public_id(source)}", headers=bearer(secret)).json()
    assert shown["ablation"] is None


def test_the_estimate_asks_for_the_labels_that_are_missing_and_for_nothing_that_is_copied(
    secret: str, source: Compile
) -> None:
    steps = {arm: {s["step"]: s for s in made(secret, source, arm)["estimate"]["steps"]} for arm in ("all", "random")}
    assert steps["all"]["labeling"]["expected_microusd"] == 6 * LABEL_COST
    assert steps["random"]["labeling"]["expected_microusd"] == 2 * LABEL_COST
    for arm in steps.values():
        assert {arm[name]["high_microusd"] for name in ("slicing", "synthesis", "verification", "selection")} == {0}
    assert steps["random"]["distillation"]["expected_microusd"] == 2000
    job = 900  # its fee, whatever its size
    assert steps["all"]["distillation"]["expected_microusd"] == job + (2000 - job) * (12 + 9) // 15


def made(secret: str, source: Compile, arm: str) -> Any:
    answer = post(secret, source, {"arm": arm})
    assert answer.status_code == 202, answer.content
    return answer.json()


def test_the_same_key_is_the_same_arm_and_without_one_every_post_is_another(
    tenant: Tenant, secret: str, source: Compile
) -> None:
    first, again = (post(secret, source, {"arm": "random"}, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.content, again["Idempotent-Replayed"]) == (again.content, "true")
    post(secret, source, {"arm": "random"})
    with tenant_scope(tenant.id):
        assert Compile.objects.filter(ablation_of=source.id).count() == 2


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (CompileStatus.QUEUED, "Wait"),
        (CompileStatus.RUNNING, "Wait"),
        (CompileStatus.CANCELING, "Wait"),
        (CompileStatus.FAILED, "Resume"),
        (CompileStatus.CANCELED, "Resume"),
        (CompileStatus.EXPIRED, "Resume"),
    ],
)
def test_a_compile_that_was_not_evaluated_is_refused_with_what_to_do(
    secret: str, source: Compile, status: CompileStatus, word: str
) -> None:
    change(source, status=status)
    answer = post(secret, source, {"arm": "all"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ablatable")
    assert word in answer.json()["detail"]


@pytest.mark.parametrize("n_labeled", [0, 4])
def test_a_compile_that_selected_nothing_away_has_nothing_to_compare(
    tenant: Tenant, secret: str, n_labeled: int
) -> None:
    row = ended(make_compile(tenant), n_labeled=n_labeled, n_dropped=0, answers=answers(9))
    answer = post(secret, row, {"arm": "all"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ablatable")


def test_a_fixed_plan_is_an_arm_of_a_plan_that_decided_alone(tenant: Tenant, secret: str, source: Compile) -> None:
    answer = post(secret, source, {"arm": "fixed"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_ablatable")
    assert "The plan of this compile was fixed" in answer.json()["detail"]
    row = ended(make_compile(tenant, name="planned", plan="auto"), n_labeled=4, n_dropped=0, answers=answers(9))
    body = made(secret, row, "fixed")
    assert body["ablation"] == {"of": public_id(row), "arm": "fixed"}
    assert (body["spec"]["plan"]["kind"], body["spec"]["sampling"]["method"]) == ("fixed", "auto")


def test_an_ablation_is_not_ablated(tenant: Tenant, secret: str, source: Compile) -> None:
    made(secret, source, "all")
    with tenant_scope(tenant.id):
        arm = Compile.objects.get(ablation_of=source.id)
    answer = post(secret, arm, {"arm": "all"})
    assert (answer.status_code, answer.json()["code"]) == (409, "ablation_of_ablation")


@pytest.mark.parametrize("body", [{}, {"arm": "some"}, {"arm": "all", "seed": 3}, {"arm": "all", "budget_microusd": 0}])
def test_a_body_that_names_no_arm_or_something_else_is_a_400(secret: str, source: Compile, body: Any) -> None:
    assert post(secret, source, body).status_code == 400


def test_a_budget_that_cannot_suffice_is_refused_with_the_least_that_would(
    tenant: Tenant, secret: str, source: Compile
) -> None:
    answer = post(secret, source, {"arm": "all", "budget_microusd": 10})
    assert (answer.status_code, answer.json()["code"]) == (422, "budget_below_estimate")
    assert answer.json()["errors"][0]["pointer"] == "/budget_microusd"
    assert made_with(secret, source, 900_000)["budget_microusd"] == 900_000
    with tenant_scope(tenant.id):
        assert Compile.objects.filter(ablation_of=source.id).count() == 1


def made_with(secret: str, source: Compile, budget: int) -> Any:
    return post(secret, source, {"arm": "all", "budget_microusd": budget}).json()


def test_a_teacher_key_that_was_deleted_since_is_noticed_before_anything_starts(tenant: Tenant, secret: str) -> None:
    key = make_teacher_key(tenant)
    teacher = {"provider": "openai_compatible", "model": "m", "base_url": "https://llm.example.com/v1"}
    teacher |= {"api_key": public_id(key), "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}
    row = ended(make_compile(tenant, teacher=teacher), n_labeled=3, n_dropped=6, answers=answers(9))
    with tenant_scope(tenant.id):
        key.delete()
    answer = post(secret, row, {"arm": "all"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_teacher_key")


def test_another_tenants_compile_is_not_found(source: Compile) -> None:
    stranger = make_api_key(make_tenant("Stranger"))
    for answer in (
        post(stranger, source, {"arm": "all"}),
        Client().get(address(source), headers=bearer(stranger)),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_arms_are_listed_newest_first_and_compared_once_they_are_evaluated(
    tenant: Tenant, secret: str, source: Compile
) -> None:
    assert listed(secret, source) == []
    ids = [made(secret, source, arm)["id"] for arm in ("all", "random")]
    rows = listed(secret, source)
    assert [row["id"] for row in rows] == ids[::-1]
    assert [row["comparison"] for row in rows] == [None, None]
    with tenant_scope(tenant.id):
        arm = Compile.objects.get(ablation_of=source.id, arm="all")
    ended(arm, n_labeled=9, n_dropped=0, answers=answers(14, at=3))
    with tenant_scope(tenant.id):  # three of its nine texts were labelled by the source
        taken = [f"labeling:{text_key(f'text {i}')}" for i in range(3)]
        TeacherCall.objects.filter(compile=arm, key__in=taken).delete()
    found = next(row for row in listed(secret, source) if row["arm"] == "all")
    assert (found["object"], found["of"], found["status"]) == ("ablation", public_id(source), "gate_failed")
    value = found["comparison"]
    # the source is right on rows 0 to 14, the arm on 3 to 16
    counts = {name: value["paired"][name] for name in ("n", "both", "first", "second", "neither")}
    assert counts == {"n": 20, "both": 12, "first": 3, "second": 2, "neither": 3}
    assert value["paired"]["difference_ppm"] == 50_000
    assert value["paired"]["low_ppm"] < 50_000 < value["paired"]["high_ppm"]
    assert (value["paired"]["p_value_ppm"], value["paired"]["is_clear"]) == (1_000_000, False)
    assert (value["selected"]["correct"], value["arm"]["correct"]) == (15, 14)
    assert (value["selected"]["n_labels"], value["selected"]["n_labels_reused"]) == (3, 0)
    assert (value["arm"]["n_labels"], value["arm"]["n_labels_reused"]) == (9, 3)
    # as if the arm had bought all its labels itself
    assert value["selected"]["label_cost_microusd"] == 3 * LABEL_COST
    assert value["arm"]["label_cost_microusd"] == 9 * LABEL_COST
    assert value["label_cost_difference_microusd"] == -6 * LABEL_COST
    assert (value["selected"]["n_pairs"], value["arm"]["n_pairs"]) == (15, 21)
    assert value["k_score_difference_ppm"] == 0


def test_a_source_has_no_arm_and_an_arm_has_a_source(tenant: Tenant, source: Compile) -> None:
    for fields in ({"arm": "all"}, {"ablation_of": new_uuid7()}):
        with pytest.raises(IntegrityError), transaction.atomic():
            change(source, **fields)


def test_arms_are_found_by_an_index(tenant: Tenant, source: Compile) -> None:
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(
            "EXPLAIN SELECT id FROM compiles_compile WHERE tenant_id = %s AND ablation_of = %s", [tenant.id, source.id]
        )
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "compile_ablations" in plan
