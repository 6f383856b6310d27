"""/v1/deployments: a name, its artifact, its canary, its history."""

import json
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from backend.artifacts.revoking import revoke
from backend.domain.webhooks.events import EventType, entry
from backend.serving.models import DeploymentRevision
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.webhooks.models import WebhookEvent
from tests.backend.serving.worlds import BASE, World, make_world
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
from tests.factories import make_api_key, make_tenant


def events(world: World) -> list[tuple[str, dict[str, Any]]]:
    with tenant_scope(world.tenant.id):
        rows = WebhookEvent.objects.filter(type__startswith="deployment.").order_by("created_at", "id")
        return [(row.type, json.loads(bytes(row.body))["data"]["object"]) for row in rows]


def test_a_deployment_is_made_read_listed_and_deleted(world):
    made = world.deploy(idle_minutes=15, pinned=True, shadow={"share": "0.02", "usd_per_day": "1.50"})
    assert (made["artifact"], made["canary"], made["state"]) == (public_id(world.artifact), None, "active")
    assert made["shadow"] == {"share_ppm": 20_000, "microusd_per_day": 1_500_000}
    assert (made["idle_minutes"], made["pinned"], made["version"]) == (15, True, 1)
    path = f"/v1/deployments/{made['id']}"
    detail = world.call("GET", path).json()
    assert [revision["action"] for revision in detail["history"]] == ["created"]
    assert (detail["last_24h"], detail["ran"]) == ([], [])
    assert [row["id"] for row in world.call("GET", "/v1/deployments").json()["data"]] == [made["id"]]
    assert world.call("DELETE", path).status_code == 204
    assert world.call("GET", path).status_code == 404
    world.deploy()  # the name is free again


def test_a_name_is_the_tenants_and_once(world):
    world.deploy()
    again = world.call("POST", "/v1/deployments", {"name": "router", "artifact": public_id(world.artifact)})
    assert (again.status_code, again.json()["code"]) == (409, "deployment_exists")
    make_world().deploy("router")


def test_the_same_idempotency_key_makes_it_once(world):
    body = {"name": "router", "artifact": public_id(world.artifact)}
    headers = {"Idempotency-Key": "once"}
    first, second = (world.call("POST", "/v1/deployments", body, **headers) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert second["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"name": "Router"}, "/name"),
        ({"name": "art_x"}, "/name"),
        ({"name": "a" * 64}, "/name"),
        ({"canary": {"artifact": "art_x"}}, "/canary/share"),
        ({"canary": {"artifact": "art_x", "share": 1.5}}, "/canary/share"),
        ({"idle_minutes": -1}, "/idle_minutes"),
        ({"shadow": {"share": 2}}, "/shadow/share"),
        ({"drift": {"margin": 0}}, "/drift/margin"),
        ({"idle_minuts": 1}, "/idle_minuts"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(world, changes, pointer):
    body = {"name": "router", "artifact": public_id(world.artifact)} | changes
    answer = world.call("POST", "/v1/deployments", body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_canary_of_another_base_or_task_is_refused_with_a_sentence(world):
    made = world.deploy()
    other_base = world.another(version=2, base={"id": "big", "sha256": "d" * 64})
    other_task = world.another(version=3, task_type="text")
    for artifact, word in ((other_base, "base"), (other_task, "text task")):
        body = {"canary": {"artifact": public_id(artifact), "share": 0.1}}
        answer = world.call("PATCH", f"/v1/deployments/{made['id']}", body)
        assert (answer.status_code, answer.json()["code"]) == (400, "canary_mismatch")
        assert word in answer.json()["detail"]
        promoted = world.call("POST", f"/v1/deployments/{made['id']}/promote", {"artifact": public_id(artifact)})
        assert promoted.json()["code"] == "canary_mismatch"


SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}, "total": {"type": "number"}}}
ENCODER = {"id": "minilm", "sha256": "c" * 64}


def json_world(**fields: Any) -> World:
    gold = [{"input": f"order {n} of 3", "output": {"order": str(n), "total": 3}} for n in range(24)]
    output = {"type": "json", "schema": SCHEMA | {"required": ["order"]}}
    spec = {"output": output, "examples": {"inline": gold, "holdout": 0.5}, "evaluation": {"teacher_rows": 0}}
    return make_world(spec=spec, **fields)


@pytest.mark.parametrize("first", ["prompt.json", "extraction.json"])
def test_a_causal_deployment_takes_a_span_student_of_the_same_schema_as_canary_and_the_other_way_round(first):
    causal, spans = {"member": "prompt.json"}, {"member": "extraction.json", "base": ENCODER}
    own, other = (causal, spans) if first == "prompt.json" else (spans, causal)
    world = json_world(**own)
    second = world.another(**other)
    made = world.deploy(canary={"artifact": public_id(second), "share": 0.5})
    path = f"/v1/deployments/{made['id']}"
    assert made["base"] == own.get("base", BASE)
    promoted = world.call("POST", f"{path}/promote").json()
    assert (promoted["artifact"], promoted["base"]) == (public_id(second), other.get("base", BASE))
    back = world.call("POST", f"{path}/rollback").json()
    assert (back["artifact"], back["base"]) == (public_id(world.artifact), own.get("base", BASE))


def test_a_canary_of_another_student_that_answers_by_another_schema_is_refused():
    world = json_world(member="prompt.json")
    world.spec["output"] = {"type": "json", "schema": SCHEMA | {"required": ["order", "total"]}}
    stricter = world.another(member="extraction.json", base=ENCODER)
    made = world.deploy()
    body = {"canary": {"artifact": public_id(stricter), "share": 0.1}}
    answer = world.call("PATCH", f"/v1/deployments/{made['id']}", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "canary_mismatch")
    assert "another schema" in answer.json()["detail"]


def test_students_on_encoders_are_deployed_like_others_and_what_no_server_knows_is_not(world):
    row = make_compile(world.tenant, name="encoder")
    make_receipts(row)
    label = make_artifact(row)
    spans = world.another(version=2, member="extraction.json")
    for name, artifact, kind in (("x", label, "label"), ("y", spans, "json")):
        answer = world.call("POST", "/v1/deployments", {"name": name, "artifact": public_id(artifact)})
        assert (answer.status_code, answer.json()["task_type"]) == (201, kind)
    unknown = world.another(version=3, task_type="image", member="pixels.json")
    answer = world.call("POST", "/v1/deployments", {"name": "z", "artifact": public_id(unknown)})
    assert (answer.status_code, answer.json()["code"]) == (400, "not_deployable")


def test_promote_and_rollback_and_what_the_history_and_the_events_say(world):
    second = world.another()
    made = world.deploy()
    path = f"/v1/deployments/{made['id']}"
    assert world.call("POST", f"{path}/promote").json()["code"] == "no_canary"
    assert world.call("POST", f"{path}/rollback").json()["code"] == "no_previous"
    world.call("PATCH", path, {"canary": {"artifact": public_id(second), "share": "0.25"}})
    promoted = world.call("POST", f"{path}/promote").json()
    assert (promoted["artifact"], promoted["previous_artifact"]) == (public_id(second), public_id(world.artifact))
    assert promoted["canary"] is None
    assert world.call("POST", f"{path}/promote", {"artifact": public_id(second)}).json()["code"] == "already_primary"
    back = world.call("POST", f"{path}/rollback").json()
    assert (back["artifact"], back["previous_artifact"]) == (public_id(world.artifact), public_id(second))
    history = world.call("GET", path).json()["history"]
    assert [revision["action"] for revision in history] == ["rolled_back", "promoted", "changed", "created"]
    assert history[2]["data"]["canary"] == {"artifact": public_id(second), "share_ppm": 250_000}
    assert history[0]["actor"]["kind"] == "api_key"
    told = events(world)
    assert [type for type, _ in told] == ["deployment.created"] + ["deployment.updated"] * 3
    assert [object["action"] for _, object in told] == ["created", "changed", "promoted", "rolled_back"]


def test_a_canary_is_removed_by_null_and_settings_that_are_left_out_stay(world):
    second = world.another()
    made = world.deploy(canary={"artifact": public_id(second), "share": 0.1}, pinned=True)
    changed = world.call("PATCH", f"/v1/deployments/{made['id']}", {"canary": None, "drift": {"rollback": True}}).json()
    assert (changed["canary"], changed["pinned"]) == (None, True)
    assert changed["drift"] == {"margin_ppm": 50_000, "rollback": True}
    assert changed["version"] == 2


def test_a_revoked_artifact_is_neither_deployed_nor_promoted_nor_rolled_back_to(world):
    second = world.another()
    made = world.deploy()
    path = f"/v1/deployments/{made['id']}"
    world.call("POST", f"{path}/promote", {"artifact": public_id(second)})
    revoke(world.tenant.id, world.artifact.id, reason="", actor=SYSTEM)
    assert world.call("POST", f"{path}/rollback").json()["code"] == "artifact_revoked"
    body = {"name": "x", "artifact": public_id(world.artifact)}
    assert world.call("POST", "/v1/deployments", body).json()["code"] == "artifact_revoked"


def test_changing_needs_the_scope_to_write(world):
    made = world.deploy()
    reader = make_api_key(world.tenant, scopes=["deployments:read"])
    path = f"/v1/deployments/{made['id']}"
    assert world.call("GET", path, secret=reader).status_code == 200
    for method, below in (("PATCH", ""), ("DELETE", ""), ("POST", "/promote"), ("POST", "/drain")):
        assert world.call(method, path + below, secret=reader).status_code == 403


def test_another_tenants_artifact_cannot_be_deployed(world):
    other = make_api_key(make_tenant())
    body = {"name": "x", "artifact": public_id(world.artifact)}
    assert world.call("POST", "/v1/deployments", body, secret=other).status_code == 404


def test_the_history_cannot_be_changed(world):
    world.deploy()
    for sql in ("UPDATE serving_deploymentrevision SET action = 'x'", "DELETE FROM serving_deploymentrevision"):
        with tenant_scope(world.tenant.id), pytest.raises(DatabaseError), transaction.atomic():
            connection.cursor().execute(sql)
    with tenant_scope(world.tenant.id):
        assert DeploymentRevision.objects.count() == 1


def test_the_events_examples_have_the_fields_that_are_sent(world):
    world.deploy()
    (_, object), *_ = events(world)
    assert set(entry(EventType.DEPLOYMENT_CREATED).object) == set(object)
    assert set(entry(EventType.DEPLOYMENT_UPDATED).object) == set(object)
    regression = entry(EventType.DEPLOYMENT_REGRESSION).object
    assert set(regression) == (set(object) - {"action"}) | {"regression"}
