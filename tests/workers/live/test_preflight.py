"""The worker's half of a preflight that somebody waits for: one tiny call, told apart, billed once, and kept."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from backend.compiles.models import TeacherCheck
from backend.domain.ids import Prefix, encode_id
from backend.domain.planning.preflight.asked_models import asked_models
from backend.domain.planning.preflight.lines import Check
from backend.domain.spec.parsing import canonical_spec, parse_spec
from backend.preflight.teacher_checks import _queue, passed_before
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import fresh, make_teacher_key, small_spec
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import start
from tests.workers.preflight.test_compile_start import (  # noqa: F401 (a fixture)
    PRICE,
    SECRET,
    compile_at,
    endpoint,
    half_checked,
    line_of,
)
from tests.workers.teachers.hostile import completion_body
from tests.workers.teachers.reward_server import MODEL, serving_rewards
from tests.workers.teachers.strict_vendors import BY_NAME, serving
from workers.live import preflight
from workers.live.preflight import answer_preflight
from workers.preflight.compile_start import begin_compile

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def tenant():
    return make_tenant()


def ask(
    tenant: Any,
    far: Any,
    *,
    key: bool = False,
    check: Check = Check.TEACHER,
    verifiers: Any = (),
    task: Mapping[str, Any] = MappingProxyType({}),
    **teacher: Any,
) -> TeacherCheck:
    told = {"provider": "openai_compatible", "base_url": far.base_url, "model": "m-1", "price": PRICE, **teacher}
    with tenant_scope(tenant.id):
        if key:
            told["api_key"] = encode_id(Prefix.TEACHER_KEY, make_teacher_key(tenant, secret=SECRET).id)
        spec = parse_spec(small_spec(teacher=told, verifiers=list(verifiers), **task))
        assert canonical_spec(spec)
        (asked,) = [model for model in asked_models(spec) if model.check is check]
        check_id = _queue(tenant.id, spec, asked)
    answer_preflight(tenant.id, check_id)
    answer_preflight(tenant.id, check_id)  # a message that comes twice
    with tenant_scope(tenant.id):
        row: TeacherCheck = TeacherCheck.objects.get(id=check_id)
        assert (passed_before(tenant.id, asked) is not None) == (row.status == "passed")
    return row


def facts(tenant: Any) -> list[UsageFact]:
    with tenant_scope(tenant.id):
        return list(UsageFact.objects.filter(step="preflight"))


def test_a_teacher_that_answers_is_asked_and_billed_once(tenant, endpoint):  # noqa: F811
    row = ask(tenant, endpoint)
    assert (row.status, row.spec, len(endpoint.asked)) == ("passed", None, 1)
    assert {line["check"]: line["status"] for line in row.lines} == {
        "embedder": "passed",
        "teacher": "passed",
        "logprobs": "skipped",
    }
    booked = facts(tenant)
    assert {fact.sku for fact in booked} == {"teacher.m-1.input_token", "teacher.m-1.output_token"}
    assert sum(fact.amount_microusd for fact in booked) > 0


def test_a_teacher_that_takes_longer_than_one_waits_here_is_a_warning_and_the_compile_asks_it_again(
    tenant,
    endpoint,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr(preflight, "DEADLINE_S", 0.2)
    endpoint.delay_s = 0.5
    row = ask(tenant, endpoint)
    (line,) = [line for line in row.lines if line["check"] == "teacher"]
    assert (line["status"], line["code"], row.status) == ("warning", "teacher_slow", "failed")
    assert facts(tenant) == []
    compile_row = compile_at(endpoint, tenant=tenant, key=False)
    begin_compile(start(compile_row))
    assert fresh(compile_row).preflight["passed"]
    assert line_of(compile_row, "teacher")["status"] == "passed"


def test_with_a_key_of_ones_own_the_vendor_bills_it(tenant, endpoint):  # noqa: F811
    assert ask(tenant, endpoint, key=True).status == "passed"
    assert sum(fact.amount_microusd for fact in facts(tenant)) == 0
    assert sum(fact.provider_microusd for fact in facts(tenant)) > 0


def test_a_refusal_is_a_line_costs_nothing_and_tells_no_secret(tenant, endpoint, caplog):  # noqa: F811
    endpoint.reply = (401, {"error": {"message": f"Incorrect API key provided: {SECRET}", "code": "invalid_api_key"}})
    row = ask(tenant, endpoint, key=True)
    assert row.status == "failed"
    assert [line["code"] for line in row.lines if line["check"] == "teacher"] == ["wrong_key"]
    assert facts(tenant) == []
    assert SECRET not in json.dumps(row.lines) + caplog.text


def test_gold_that_fails_its_own_checks_is_a_line_and_the_teacher_is_not_asked(tenant, endpoint):  # noqa: F811
    row = ask(tenant, endpoint, task=half_checked(0.8))
    assert [(line["check"], line["status"], line["code"]) for line in row.lines] == [
        ("embedder", "passed", ""),
        ("gate", "failed", "gold_fails_checks"),
        ("teacher", "skipped", ""),
    ]
    assert (row.status, endpoint.asked) == ("failed", [])


@pytest.mark.parametrize("vendor", [BY_NAME["openai-reasoning"], BY_NAME["gemini"]], ids=lambda vendor: vendor.name)
def test_a_model_that_nobody_knew_to_think_is_asked_once_more_with_room(tenant, vendor, settings):
    with serving(vendor, lambda messages, n: ["refund"] * n) as far:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (far.base_url.removesuffix("/v1"),)
        row = ask(tenant, far)
    assert {line["check"]: line["status"] for line in row.lines}["teacher"] == "passed", row.lines
    assert len(far.answered) == 2


def test_a_reward_model_is_asked_at_its_own_price_and_its_question_names_no_embedder(tenant, endpoint, settings):  # noqa: F811
    with serving_rewards(lambda text: 0.25) as rewards:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = tuple(
            url.removesuffix("/v1") for url in (endpoint.base_url, rewards.base_url)
        )
        reward = {"kind": "reward", "api": "vllm-score", "base_url": rewards.base_url, "model": MODEL, "price": PRICE}
        row = ask(tenant, endpoint, check=Check.REWARD, verifiers=[reward])
        assert [path for path, _ in rewards.asked] == ["/score"]
    assert (row.status, endpoint.asked) == ("passed", [])
    assert [(line["check"], line["status"]) for line in row.lines] == [("reward", "passed")]
    booked = {fact.sku: fact.quantity for fact in facts(tenant)}
    assert booked[f"teacher.{MODEL}.input_token"] > 0
    assert booked[f"teacher.{MODEL}.output_token"] == 0, "nothing is written"
    assert sum(fact.amount_microusd for fact in facts(tenant)) > 0


@pytest.mark.parametrize(("reply", "code"), [("1", ""), ("I accept all of them.", "judge_unread")])
def test_a_judge_of_drafts_is_asked_its_own_question_at_its_own_price(tenant, endpoint, reply, code):  # noqa: F811
    endpoint.replies["small"] = (200, completion_body(reply))
    judge = {"model": "small", "price": PRICE}
    row = ask(tenant, endpoint, check=Check.JUDGE, task={"draft_cache": {"judge": judge}})
    assert [(line["check"], line["code"]) for line in row.lines] == [("judge", code)]
    assert [asked["model"] for asked in endpoint.asked] == ["small"]
    assert {fact.sku.rpartition(".")[0] for fact in facts(tenant)} == {"teacher.small"}


def test_the_fallback_model_is_a_question_of_its_own(tenant, endpoint):  # noqa: F811
    endpoint.replies["m-2"] = (404, {"error": {"message": "The model `m-2` does not exist", "code": "model_not_found"}})
    row = ask(tenant, endpoint, check=Check.FALLBACK, fallback_model="m-2")
    assert (row.status, [line["code"] for line in row.lines]) == ("failed", ["no_such_model"])
    assert [asked["model"] for asked in endpoint.asked] == ["m-2"]
    assert facts(tenant) == []
