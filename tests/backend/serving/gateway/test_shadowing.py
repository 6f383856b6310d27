"""The shadow: a live answer beside its teacher's (a teacher on loopback), and what follows when they part."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from backend.domain.ids import Prefix, decode_id
from backend.queue import TaskName
from backend.serving.gateway import shadowing
from backend.serving.gateway.shadowing import answer_text, forget_shadow, single_input
from backend.serving.models import Deployment, DeploymentHour, ShadowAnswer
from backend.tenants.isolation import tenant_scope
from backend.usage.invariants import violations
from backend.usage.models import UsageFact
from backend.valkey import pause
from backend.webhooks.models import WebhookEvent
from tests.backend.serving.worlds import MESSAGES, World, chat, chunk, make_world
from tests.compile_factories import public_id
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from workers.live.shadow import json_agreement
from workers.tasks import compare

SHADOW = {"shadow": {"share": 1, "usd_per_day": 5}}
MESSAGE = [{"content": [{"text": "a"}]}]


def response_event(kind: str, **response: Any) -> bytes:
    return f"event: response.{kind}\ndata: {json.dumps({'response': response})}\n\n".encode()


@pytest.fixture(autouse=True)
def hints(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What the workers were told; a test gives them their turn."""
    sent: list[dict[str, str]] = []
    pause.note_answer()
    monkeypatch.setattr(shadowing, "enqueue", lambda name, **ids: sent.append({"name": name} | ids) or True)
    return sent


@pytest.fixture
def teacher(settings: Any) -> Iterator[HostileTeacher]:
    """It always says `refund`."""
    with HostileTeacher(answer(200, json.dumps(completion_body(*["refund"] * 5)).encode())) as server:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (server.base_url.removesuffix("/v1"),)
        yield server


@pytest.fixture
def taught(teacher: HostileTeacher, web: str) -> World:
    spec = {
        "teacher": {
            "provider": "openai_compatible",
            "model": "m",
            "base_url": teacher.base_url,
            "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2},
        }
    }
    return make_world(spec=spec, task_type="label", accuracy_ppm=950_000)


def work_off(hints: list[dict[str, str]]) -> int:
    n = len(hints)
    while hints:
        told = hints.pop(0)
        assert told["name"] == TaskName.SHADOW_COMPARE
        compare(told["tenant_id"], told["answer_id"])
    return n


def say(far: Any, text: str) -> None:
    far.pieces = (chunk(text), b"data: [DONE]\n\n")


def hours(world: World) -> list[DeploymentHour]:
    with tenant_scope(world.tenant.id):
        return list(DeploymentHour.objects.all())


def waiting(world: World) -> list[ShadowAnswer]:
    with tenant_scope(world.tenant.id):
        return list(ShadowAnswer.objects.all())


def test_a_live_answer_is_compared_once_paid_for_and_forgotten(taught, far, hints):
    made = taught.deploy(**SHADOW)
    say(far, "refund")
    assert chat(taught, stream=True).status_code == 200
    (row,) = waiting(taught)
    assert b"parcel" not in bytes(row.sealed)
    hints *= 2  # doubled on its way
    assert work_off(hints) == 2
    assert waiting(taught) == []
    (hour,) = hours(taught)
    assert (hour.n_shadow, hour.shadow_agreement_ppm) == (1, 1_000_000)
    with tenant_scope(taught.tenant.id):
        facts = list(UsageFact.objects.filter(step="shadow"))
        assert hour.shadow_microusd == sum(fact.amount_microusd for fact in facts) > 0
        assert list(violations(taught.tenant.id)) == []
    drift = taught.call("GET", f"/v1/deployments/{made['id']}").json()["drift"]
    assert (drift["n_compared"], drift["agreement_ppm"], drift["regression"]) == (1, 1_000_000, False)


def test_another_label_is_no_agreement_and_an_answer_that_is_no_label_neither(taught, far, hints):
    taught.deploy(**SHADOW)
    for text in ("other", "give me money"):
        say(far, text)
        chat(taught, stream=True)
    work_off(hints)
    (hour,) = hours(taught)
    assert (hour.n_shadow, hour.shadow_agreement_ppm) == (2, 0)


def test_without_a_share_or_money_nothing_is_kept(taught, far, hints):
    taught.deploy("a")
    taught.deploy("b", shadow={"share": 1})
    taught.deploy("c", shadow={"share": 0, "usd_per_day": 5})
    for name in "abc":
        chat(taught, name)
    chat(taught, public_id(taught.artifact))
    assert (hints, waiting(taught)) == ([], [])


def test_the_days_money_ends_the_days_comparisons(taught, far, hints, teacher):
    made = taught.deploy(shadow={"share": 1, "usd_per_day": "0.01"})
    say(far, "refund")
    with tenant_scope(taught.tenant.id):
        Deployment.objects.filter(id=decode_id(Prefix.DEPLOYMENT, made["id"])).update(shadow_microusd_per_day=1)
    for _ in range(3):
        chat(taught, stream=True)
    work_off(hints)
    assert teacher.requests == []
    assert waiting(taught) == []


def test_a_teacher_that_does_not_answer_costs_nothing_and_the_text_goes(taught, far, hints, settings):
    taught.deploy(**SHADOW)
    chat(taught, stream=True)
    settings.KOLM_ALLOW_PRIVATE_TEACHERS = ()  # out of reach
    work_off(hints)
    assert (waiting(taught), hours(taught)) == ([], [])


def agree(world: World, n: int, of: int) -> None:
    """As if so many comparisons had agreed."""
    (hour,) = hours(world)
    with tenant_scope(world.tenant.id):
        DeploymentHour.objects.filter(id=hour.id).update(n_shadow=of, shadow_agreement_ppm=n * 1_000_000)


def regressions(world: World) -> list[dict[str, Any]]:
    with tenant_scope(world.tenant.id):
        rows = WebhookEvent.objects.filter(type="deployment.regression")
        return [json.loads(bytes(row.body))["data"]["object"] for row in rows]


@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_regression_is_told_once_a_version_and_rolls_back_where_that_is_wanted(taught, far, hints, rolls_back):
    second = taught.another(task_type="label")
    made = taught.deploy(**SHADOW, drift={"rollback": rolls_back})
    taught.call("POST", f"/v1/deployments/{made['id']}/promote", {"artifact": public_id(second)})
    say(far, "other")
    chat(taught, stream=True)
    work_off(hints)
    assert regressions(taught) == []
    agree(taught, 20, of=60)
    for _ in range(2):
        chat(taught, stream=True)
        work_off(hints)
    (told,) = regressions(taught)
    assert told["regression"] | {"n_compared": 0} == {
        "artifact": public_id(second),
        "n_compared": 0,
        "agreement_ppm": round(20_000_000 / 61),
        "floor_ppm": 900_000,
        "rolled_back": rolls_back,
    }
    now = taught.call("GET", f"/v1/deployments/{made['id']}").json()
    assert now["artifact"] == public_id(taught.artifact if rolls_back else second)
    if rolls_back:
        assert (now["history"][0]["action"], now["history"][0]["data"]["why"]) == ("rolled_back", "regression")
        assert now["history"][0]["actor"]["kind"] == "system"


def test_as_long_as_the_answers_agree_nothing_is_told(taught, far, hints):
    taught.deploy(**SHADOW)
    say(far, "refund")
    chat(taught, stream=True)
    work_off(hints)
    agree(taught, 190, of=200)
    chat(taught, stream=True)
    work_off(hints)
    assert regressions(taught) == []


def test_what_nobody_compared_is_swept(taught, far):
    taught.deploy(**SHADOW)
    chat(taught, stream=True)
    (row,) = waiting(taught)
    assert forget_shadow() == 0
    with tenant_scope(taught.tenant.id), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE serving_shadowanswer SET created_at = now() - interval '61 minutes' WHERE id = %s", [row.id]
        )
    assert forget_shadow() >= 1
    assert waiting(taught) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "where is my parcel?"),
        ({"messages": [{"role": "system", "content": "be brief"}, *MESSAGES]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, None),
        ({"n": 2}, None),
        ({"tools": [{"type": "function"}]}, None),
        ({"messages": "x"}, None),
    ],
)
def test_only_what_the_artifact_was_trained_for_is_compared(changes, text):
    assert single_input("/v1/chat/completions", {"messages": MESSAGES} | changes) == text


def test_of_a_response_a_text_alone_is_compared():
    assert single_input("/v1/responses", {"input": "where is it?"}) == "where is it?"
    for more in ({"instructions": "be brief"}, {"input": [{"role": "user", "content": "x"}]}, {"tools": [{}]}):
        assert single_input("/v1/responses", {"input": "where is it?"} | more) is None


def test_a_label_that_is_asked_for_in_a_callers_json_is_not_compared(taught, far, hints):
    taught.deploy(**SHADOW)
    schema = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "l", "schema": schema}}
    assert chat(taught, response_format=wanted).status_code == 200
    assert hints == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"choices": [{"message": {"content": "a"}}]}', "a"),
        (b'{"choices": [{"text": "a"}]}', "a"),
        (chunk("a") + chunk("b") + b"data: [DONE]\n\n", "ab"),
        (json.dumps({"object": "response", "output": MESSAGE}).encode(), "a"),
        (response_event("created", output=[]) + response_event("completed", output=MESSAGE), "a"),
        (response_event("created", output=[]) + b'event: error\ndata: {"message": "x"}\n\n', None),
        (chunk("a"), None),
        (b"data: {broken\n\ndata: [DONE]\n\n", None),
        (b"", None),
        (b'{"choices": []}', None),
    ],
)
def test_an_answer_is_read_whole_or_not_at_all(data, text):
    assert answer_text(data) == text


def test_json_answers_agree_by_their_fields_or_as_a_whole():
    assert json_agreement("no json", '{"a": 1}', is_exact_wanted=False) == 0
    assert json_agreement('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', is_exact_wanted=True) == 1_000_000
    assert json_agreement('{"a": 1, "b": 3}', '{"b": 2, "a": 1}', is_exact_wanted=True) == 0
