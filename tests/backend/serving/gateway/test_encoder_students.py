"""A real span student behind the gateway: the grant, the answer, the bill and the drift watch, end to end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings as django_settings

from backend.artifacts.models import Artifact
from backend.blobs import put_blob
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.serving.wire import grant_key
from backend.serving.gateway import shadowing
from backend.serving.models import DeploymentHour
from backend.tenants.isolation import tenant_scope
from backend.usage.invariants import violations
from backend.valkey import pause
from tests.backend.serving.worlds import World, chat, make_world, runner, say_hello, served
from tests.factories import bearer
from tests.gpu_runners.serving.test_students import Server
from tests.gpu_runners.small_orders import SCHEMA, order_pairs, spans_kolm
from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from workers.tasks import compare

TEXT, ANSWER = order_pairs(1, start=53)[0]


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    sent: list[dict[str, str]] = []
    pause.note_answer()
    monkeypatch.setattr(shadowing, "enqueue", lambda name, **ids: sent.append(ids) or True)
    return sent


@pytest.fixture
def orders(settings: Any, web: str) -> Iterator[tuple[World, bytes]]:
    """A tenant whose artifact is a span student, and its bytes; the teacher differs in one of three fields."""
    reply = json.dumps(ANSWER | {"city": "Bern"})
    with HostileTeacher(answer(200, json.dumps(completion_body(*[reply] * 5)).encode())) as teacher:
        settings.KOLM_ALLOW_PRIVATE_TEACHERS = (teacher.base_url.removesuffix("/v1"),)
        price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
        at = {"provider": "openai_compatible", "base_url": teacher.base_url, "model": "m", "price": price}
        gold = [{"input": text, "output": value} for text, value in order_pairs(28)]
        world = make_world(
            spec={
                "output": {"type": "json", "schema": SCHEMA},
                "slices": [{"name": "all", "share": 1}],
                "teacher": at,
                "examples": {"inline": gold},
            }
        )
        data = spans_kolm(tenant=world.tenant.id.hex)
        with tenant_scope(world.tenant.id):
            sha256 = put_blob(world.tenant.id, data)
            Artifact.objects.filter(id=world.artifact.id).update(sha256=sha256, manifest=read_kolm(data).manifest)
        world.artifact.sha256 = sha256
        yield world, data


def test_a_deployed_span_student_answers_is_billed_for_what_it_read_and_compared_with_its_teacher(
    orders: tuple[World, bytes], hints: list[dict[str, str]], web: str, tmp_path: Path
) -> None:
    world, data = orders
    world.deploy(shadow={"share": 1, "usd_per_day": 5})
    students = Server(tmp_path)
    students.context.key = grant_key(django_settings.KOLM_RUNNER_TOKEN)
    students.kolms[world.artifact.sha256] = data
    base = read_kolm(data).manifest["base"] | {"students": ["label", "spans"]}
    messages = [{"role": "user", "content": TEXT}]
    with served(students.app) as url:
        server = say_hello(url, bases=[base], engine={"name": "encoder"}).json()["server"]
        whole = chat(world, messages=messages)
        streamed = chat(world, messages=messages, stream=True)
        tools = [{"type": "function", "function": {"name": "Order", "parameters": SCHEMA}}]
        called = chat(world, messages=messages, tools=tools, tool_choice="required")
        response = world.call("POST", "/v1/responses", {"model": "router", "input": TEXT})
        asked = {"model": "router", "input": TEXT, "stream": True}
        events = httpx.post(f"{web}/v1/responses", json=asked, headers=bearer(world.secret), timeout=30)
        stored = world.call("POST", "/v1/responses", {"model": "router", "input": TEXT, "store": True})
    body = whole.json()
    assert json.loads(body["choices"][0]["message"]["content"]) == ANSWER
    assert [one["path"] for one in body["kolm"]["fields"]] == ["/item", "/city", "/urgency"]
    assert streamed.text.endswith("data: [DONE]\n\n")
    (call,) = called.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == ANSWER
    assert json.loads(response.json()["output"][0]["content"][0]["text"]) == ANSWER
    assert response.headers["X-Kolm-Artifact"] == whole.headers["X-Kolm-Artifact"]
    assert "event: response.completed" in events.text
    assert (stored.status_code, stored.json()["error"]["param"]) == (400, "store")
    rows = [row.to_json() for row in students.rows()]
    assert runner("usage", {"server": server, "rows": rows}).json() == {"booked": 5, "known": 0, "refused": []}
    for ids in hints:
        compare(ids["tenant_id"], ids["answer_id"])
    with tenant_scope(world.tenant.id):
        (hour,) = DeploymentHour.objects.all()
        assert list(violations(world.tenant.id)) == []
    n_read = body["usage"]["prompt_tokens"]
    assert (hour.n_requests, hour.prompt_tokens, hour.completion_tokens) == (5, 5 * n_read, 0)
    assert hour.ran == [{"server": "s1", "name": "encoder"}]
    agreement = round(hour.shadow_agreement_ppm / hour.n_shadow, -3)
    assert (hour.n_shadow, agreement) == (4, 667_000), "a call of a tool has no text to compare"
