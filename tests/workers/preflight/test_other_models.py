"""A compile's beginning asks the fallback model and the model that gives rewards as it asks the teacher: once, with
their own keys, before a candidate is paid for. The far sides are servers on loopback."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from backend.compiles.models import Compile
from backend.domain.lifecycle import STEPS, CompileStatus
from backend.tenants.isolation import tenant_scope
from deploy.embedded.ports import free_ports
from tests.compile_factories import fresh, make_compile, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import calls, check_money
from tests.workers.preflight.test_compile_start import (  # noqa: F401 (fixtures)
    PAGE,
    PRICE,
    REFUSALS,
    SECRET,
    Endpoint,
    endpoint,
    events,
    line_of,
    running,
    steps,
)
from tests.workers.teachers.hostile import completion_body
from tests.workers.teachers.reward_server import MODEL, serving_rewards
from tests.workers.teachers.strict_vendors import BY_NAME, serving
from tests.workers.test_pipeline import make_due
from workers import pipeline
from workers.preflight import compile_start
from workers.teachers.prompts.candidate_and_label import unfence

pytestmark = pytest.mark.usefixtures("committed_db")
RIGHT = "sk-reward-9876543210"


def allow(settings: Any, *base_urls: str) -> None:
    settings.KOLM_ALLOW_PRIVATE_TEACHERS = tuple(url.removesuffix("/v1") for url in base_urls)


def compile_with(
    teacher: Endpoint, *, reward: Mapping[str, Any] | None = None, key: str = "", **changes: Any
) -> Compile:
    """A compile at the teacher, with a reward whose key is `key` ("" for none)."""
    tenant = make_tenant()
    told = {"provider": "openai_compatible", "base_url": teacher.base_url, "model": "m-1", "price": PRICE, **changes}
    verifiers: list[Any] = [] if reward is None else [{"kind": "reward", **reward}]
    if key:
        with tenant_scope(tenant.id):
            verifiers[0]["api_key"] = public_id(make_teacher_key(tenant, secret=key))
    return make_compile(tenant, teacher=told, verifiers=verifiers)


def numbers_at(base_url: str, **changes: Any) -> dict[str, Any]:
    return {"api": "vllm-classify", "base_url": base_url, "model": MODEL, "price": PRICE, **changes}


def advance(row: Compile, *, times: int = 1) -> Compile:
    for _ in range(times):
        make_due(row)
        pipeline.advance(row.id)
    return fresh(row)


def refused_by(row: Compile, check: str, code: str) -> dict[str, Any]:
    """The failed line; the compile was refused for it, and has asked for no candidate."""
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "preflight_failed"), [
        row.failure_message,
        events(row, "step.retrying"),
    ]
    line = line_of(row, check)
    assert (line["status"], line["code"]) == ("failed", code)
    assert line["what_to_do"] in row.failure_message
    assert {call.key for call in calls(row)} <= {"preflight", "preflight:fallback", "reward:preflight"}
    check_money(row)
    return line


def test_a_reward_model_is_asked_once_with_its_own_key_and_the_compile_goes_on(endpoint, steps, settings):  # noqa: F811
    with serving_rewards(lambda text: 1.5, key=RIGHT) as rewards:
        allow(settings, endpoint.base_url, rewards.base_url)
        row = advance(compile_with(endpoint, reward=numbers_at(rewards.base_url), key=RIGHT))
        asked = rewards.asked
    assert row.status == CompileStatus.SUCCEEDED, row.failure_message
    assert steps == [name.value for name in STEPS]
    line = line_of(row, "reward")
    assert (line["status"], line["code"]) == ("passed", "")
    assert f"{MODEL} at 127.0.0.1" in line["sentence"]
    assert [path for path, _ in asked] == ["/classify"]
    by_key = {call.key: call for call in calls(row)}
    assert by_key.keys() == {"preflight", "reward:preflight"}
    # the teacher is called without a key, so its call is on our bill; the reward's own key pays the other one
    assert row.spent_microusd == by_key["preflight"].cost_microusd > 0
    assert row.provider_microusd == by_key["reward:preflight"].cost_microusd > 0
    check_money(row)


def test_a_wrong_key_of_the_reward_refuses_the_compile_before_synthesis_is_paid(endpoint, steps, settings, caplog):  # noqa: F811
    with serving_rewards(lambda text: 1.5, key=RIGHT) as rewards:
        allow(settings, endpoint.base_url, rewards.base_url)
        row = advance(compile_with(endpoint, reward=numbers_at(rewards.base_url), key=SECRET))
    line = refused_by(row, "reward", "wrong_key")
    assert "verifiers[0].api_key" in line["what_to_do"]
    assert line_of(row, "teacher")["status"] == "passed", "asked, and right"
    assert SECRET not in json.dumps(row.preflight) + row.failure_message + caplog.text


def test_a_reward_model_that_its_server_does_not_know_refuses_the_compile(endpoint, steps, settings):  # noqa: F811
    with serving_rewards(lambda text: 1.5) as rewards:
        allow(settings, endpoint.base_url, rewards.base_url)
        row = advance(compile_with(endpoint, reward=numbers_at(rewards.base_url, model="other/model")))
    assert "verifiers[0].model" in refused_by(row, "reward", "no_such_model")["what_to_do"]


@pytest.mark.parametrize(("body", "code"), [(PAGE, "html"), ({"status": "ok"}, "not_openai")])
def test_a_reward_server_that_is_something_else_refuses_the_compile(endpoint, steps, settings, body, code):  # noqa: F811
    with running() as other:
        other.reply = (200, body)
        allow(settings, endpoint.base_url, other.base_url)
        row = advance(compile_with(endpoint, reward=numbers_at(other.base_url)))
    line = refused_by(row, "reward", code)
    assert "log in" not in json.dumps(line)


@pytest.mark.nightly
def test_a_reward_server_that_is_not_there_is_met_three_times_and_then_refuses(endpoint, steps, settings):  # noqa: F811
    (port,) = free_ports(1)
    nowhere = f"http://127.0.0.1:{port}/v1"
    allow(settings, endpoint.base_url, nowhere)
    row = compile_with(endpoint, reward=numbers_at(nowhere))
    assert advance(row).status == CompileStatus.RUNNING, "it may be there in a moment"
    # the teacher's answer was progress: what follows is counted from there
    refused_by(advance(row, times=compile_start.PATIENT_ATTEMPTS), "reward", "teacher_unreachable")
    assert len(endpoint.asked) == 1, "the teacher's answer is kept meanwhile"


def test_an_address_that_nobody_may_call_is_refused_without_a_call(endpoint, steps, settings):  # noqa: F811
    with serving_rewards(lambda text: 1.5) as rewards:
        allow(settings, endpoint.base_url, rewards.base_url)
        row = compile_with(endpoint, reward=numbers_at(rewards.base_url))
        allow(settings, endpoint.base_url)  # the operator has changed it since
        advance(row)
        assert rewards.asked == []
    line = refused_by(row, "teacher_settings", "address_not_allowed")
    assert "/verifiers/0/base_url" in line["what_to_do"]
    assert endpoint.asked == [], "a line failed before"


def judge(answer: Any) -> Any:
    """A chat model that rates as `answer` says of {id: text}."""

    def write(asked: Sequence[Mapping[str, Any]], n: int) -> list[str]:
        (shown,) = unfence(asked[-1]["content"])
        return [answer(dict(json.loads(shown)))] * n

    return write


def rates(shown: Mapping[str, str]) -> str:
    return json.dumps({id_: 3 if text.endswith(".") else 0 for id_, text in shown.items()})


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (rates, "passed", "answered in"),
        (lambda shown: "What a lovely collection of messages!", "warning", "no number that can be read"),
        (lambda shown: json.dumps(dict.fromkeys(shown, 9)), "warning", "random letters"),
    ],
    ids=["rates", "chats", "praises"],
)
def test_a_judge_is_shown_one_text_and_what_it_is_worth_is_told(endpoint, steps, settings, answer, status, says):  # noqa: F811
    vendor = BY_NAME["openai"]
    with serving(vendor, judge(answer)) as far:
        allow(settings, endpoint.base_url, far.base_url)
        reward = {"base_url": far.base_url, "model": vendor.model, "price": PRICE, "dialect": "openai"}
        row = advance(compile_with(endpoint, reward=reward))
        assert len(far.answered) == 1
    assert row.status == CompileStatus.SUCCEEDED, "what is unread falls to the verifiers, in a compile too"
    line = line_of(row, "reward")
    assert (line["status"], line["code"]) == (status, "" if status == "passed" else "reward_unread")
    assert says in line["sentence"]


def test_a_judge_of_an_unknown_dialect_teaches_what_it_refuses_before_anything_is_paid(endpoint, steps, settings):  # noqa: F811
    vendor = BY_NAME["mistral"]  # refuses seed, logprobs and top_logprobs by name
    with serving(vendor, judge(rates)) as far:
        allow(settings, endpoint.base_url, far.base_url)
        row = advance(compile_with(endpoint, reward={"base_url": far.base_url, "model": vendor.model, "price": PRICE}))
        assert len(far.answered) == 1
        assert far.refused != []
    assert line_of(row, "reward")["status"] == "passed"
    assert ", without " in line_of(row, "reward")["sentence"]


@pytest.mark.parametrize(("status", "body", "code"), REFUSALS[2:4], ids=["no_access", "no_such_model"])
def test_a_fallback_model_that_the_key_does_not_have_refuses_the_compile(endpoint, steps, status, body, code):  # noqa: F811
    endpoint.replies["m-2"] = (status, body)
    row = advance(compile_with(endpoint, fallback_model="m-2"))
    line = refused_by(row, "fallback", code)
    assert "The fallback model m-2 at 127.0.0.1" in line["sentence"]
    assert "teacher.model" not in line["what_to_do"]
    assert [asked["model"] for asked in endpoint.asked[:1]] == ["m-1"]


def test_a_fallback_model_that_answers_is_asked_for_one_candidate_and_the_next_compile_asks_nobody(endpoint, steps):  # noqa: F811
    endpoint.replies["m-2"] = (200, completion_body("My parcel is late."))
    row = advance(compile_with(endpoint, fallback_model="m-2"))
    assert row.status == CompileStatus.SUCCEEDED, row.failure_message
    assert line_of(row, "fallback")["status"] == "passed"
    first, second = endpoint.asked
    assert (first["model"], second["model"]) == ("m-1", "m-2")
    assert "Slice: " in second["messages"][-1]["content"]
    assert {call.model: call.key for call in calls(row)} == {"m-1": "preflight", "m-2": "preflight:fallback"}
    check_money(row)
