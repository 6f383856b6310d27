"""The OpenAI-compatible addresses: who may ask, which artifact answers, and that bytes pass as they come."""

import json
import threading
import time
from typing import Any

import httpx
import pytest

from backend.artifacts.revoking import revoke
from backend.serving.runners import servers
from backend.tenants.actors import SYSTEM
from backend.tenants.api_keys import issuing
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.usage.invariants import violations
from backend.usage.models import Allowance
from tests.acceptance.deployment import eventually
from tests.backend.serving.worlds import (
    BASE,
    MESSAGES,
    FarSide,
    World,
    chat,
    chunk,
    make_world,
    say_hello,
    served,
    tell_usage,
)
from tests.compile_factories import public_id
from tests.factories import bearer, make_api_key


def promised(world: World) -> int:
    with tenant_scope(world.tenant.id):
        return sum(Allowance.objects.filter(is_open=True).values_list("promised_microusd", flat=True))


def test_a_deployment_answers_by_its_name_its_id_and_its_artifacts_id(world, far):
    made = world.deploy()
    for model in ("router", made["id"], public_id(world.artifact)):
        answer = chat(world, model, temperature=0)
        assert answer.status_code == 200, answer.content
        assert answer.json()["choices"][0]["message"]["content"] == '{"label": "refund"}'
        assert answer.headers["X-Kolm-Artifact"] == public_id(world.artifact)
    assert [body["model"] for body in far.bodies] == [public_id(world.artifact)] * 3
    assert far.bodies[0] == {"model": public_id(world.artifact), "messages": MESSAGES, "temperature": 0}
    grant = far.grants[0]
    assert (grant.tenant, grant.sha256, grant.deployment) == (world.tenant.id.hex, world.artifact.sha256, made["id"])
    assert grant.cache_salt != make_world().tenant.id.hex
    assert len({grant.request for grant in far.grants}) == 3


def test_tenants_have_different_cache_salts_and_one_tenant_always_the_same(world, far):
    other = make_world()
    for asker in (world, world, other):
        assert chat(asker, public_id(asker.artifact)).status_code == 200
    first, second, third = (grant.cache_salt for grant in far.grants)
    assert first == second != third


def test_errors_are_problems_that_openais_clients_can_read(world):
    world.deploy()
    for secret, code, status in ((None, "missing_api_key", 401), ("sk_live_x", "invalid_api_key", 401)):
        from django.test import Client

        headers = bearer(secret) if secret else {}
        body = json.dumps({"model": "router", "messages": MESSAGES})
        answer = Client().post("/v1/chat/completions", body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["code"], answer.json()["error"]["code"]) == (status, code, code)
    refused = chat(world, "nothing-like-it")
    assert refused.status_code == 404
    assert refused.json()["error"] | {"message": ""} == {
        "message": "",
        "type": "not_found_error",
        "param": None,
        "code": "model_not_found",
    }
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["request_id"] == refused.headers["X-Request-Id"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"model": 3},
        {"model": ""},
        {"model": "router", "max_tokens": 0},
        {"model": "router", "max_output_tokens": "9"},
        {"model": "router", "n": 99},
    ],
    ids=str,
)
def test_a_body_that_makes_no_sense_is_refused_and_promises_nothing(world, body):
    assert world.call("POST", "/v1/completions", body).status_code == 400
    assert promised(world) == 0


def test_no_server_is_said_with_what_to_do_and_nothing_stays_promised(world):
    world.deploy()
    answer = chat(world, "router")
    assert (answer.status_code, answer.json()["code"]) == (503, "no_server")
    assert "gpu_runners.serving" in answer.json()["detail"]
    assert promised(world) == 0
    with tenant_scope(world.tenant.id):
        assert list(violations(world.tenant.id)) == []


def test_a_server_of_another_base_is_not_asked(world, far):
    other = make_world(base={"id": "other", "sha256": "c" * 64})
    assert chat(other, public_id(other.artifact)).json()["code"] == "no_server"
    assert far.bodies == []


def test_another_tenants_deployment_is_not_there(world, far):
    made = make_world().deploy("theirs")
    for model in ("theirs", made["id"], made["artifact"]):
        assert chat(world, model).status_code == 404
    assert far.bodies == []


def test_a_revoked_artifact_is_refused_at_the_next_request(world, far):
    world.deploy()
    assert chat(world, "router").status_code == 200
    revoke(world.tenant.id, world.artifact.id, reason="wrong labels", actor=SYSTEM)
    answer = chat(world, "router")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "artifact_revoked")
    assert len(far.bodies) == 1


def test_a_revoked_key_is_refused_at_the_next_request(world, far):
    world.deploy()
    assert chat(world, "router").status_code == 200
    with tenant_scope(world.tenant.id):
        issuing.revoke(world.tenant.id, ApiKey.objects.get().id)
    assert chat(world, "router").json()["error"]["code"] == "api_key_revoked"


def test_running_needs_its_scope(world, far):
    world.deploy()
    secret = make_api_key(world.tenant, scopes=["artifacts:read", "deployments:write"])
    body = {"model": "router", "messages": MESSAGES}
    assert world.call("POST", "/v1/chat/completions", body, secret=secret).status_code == 403


def test_a_drained_deployment_takes_no_requests_until_it_is_started(world, far):
    made = world.deploy()
    path = f"/v1/deployments/{made['id']}"
    assert world.call("POST", f"{path}/drain").json()["state"] == "draining"
    assert chat(world, "router").json()["code"] == "deployment_drained"
    assert world.call("POST", f"{path}/start").json()["state"] == "active"
    assert chat(world, "router").status_code == 200


def test_the_canary_gets_its_share_and_a_user_always_the_same_artifact(world, far):
    canary = world.another()
    world.deploy(canary={"artifact": public_id(canary), "share": "0.5"})
    seen: dict[str, set[str]] = {}
    for _ in range(2):
        for user in range(12):
            answer = chat(world, "router", user=f"u{user}")
            seen.setdefault(f"u{user}", set()).add(answer.headers["X-Kolm-Artifact"])
    assert all(len(artifacts) == 1 for artifacts in seen.values())
    assert set.union(*seen.values()) == {public_id(world.artifact), public_id(canary)}


def test_a_full_server_is_told_on_with_its_retry_after(world, far):
    world.deploy()
    far.status, far.retry_after = 429, "7"
    answer = chat(world, "router")
    assert (answer.status_code, answer.headers["Retry-After"], answer.json()["error"]["code"]) == (
        429,
        "7",
        "overloaded",
    )
    assert answer.json()["retryable"] is True
    assert promised(world) == 0


def test_what_the_server_says_of_the_request_reaches_the_caller(world, far):
    world.deploy()
    far.status = 400
    answer = chat(world, "router")
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "no room")


def test_a_server_that_is_full_or_dead_is_passed_over_once(world, far):
    world.deploy()
    full = FarSide(status=503)
    with served(full) as url:
        say_hello(url, name="full")
        say_hello("http://127.0.0.1:9", name="dead")  # nobody listens there
        servers._looked_at = float("-inf")
        assert sum(chat(world, "router").status_code == 200 for _ in range(3)) >= 1
    assert promised(world) >= 0


def test_a_draining_server_is_not_asked(world, far):
    world.deploy()
    say_hello("http://127.0.0.1:9", name="s1", draining=True)
    servers._looked_at = float("-inf")
    assert chat(world, "router").json()["code"] == "no_server"


def test_models_are_the_tenants_deployments_and_artifacts(world):
    made = world.deploy()
    body = world.call("GET", "/v1/models").json()
    assert [row["id"] for row in body["data"]] == ["router", public_id(world.artifact)]
    for name in ("router", made["id"]):
        one = world.call("GET", f"/v1/models/{name}").json()
        about = {"artifact": public_id(world.artifact), "task_type": "json", "student": "causal"}
        assert (one["id"], one["object"], one["kolm"]) == ("router", "model", {"deployment": made["id"]} | about)
        assert make_world().call("GET", f"/v1/models/{name}").status_code == 404


def test_models_that_would_be_refused_are_not_listed(world):
    made, old = world.deploy(), world.another()
    world.deploy("drained")
    world.deploy("older", artifact=public_id(old))
    drained = world.call("GET", "/v1/models/drained").json()["kolm"]["deployment"]
    assert world.call("POST", f"/v1/deployments/{drained}/drain").status_code == 200
    revoke(world.tenant.id, old.id, reason="wrong labels", actor=SYSTEM)
    listed = [row["id"] for row in world.call("GET", "/v1/models").json()["data"]]
    assert listed == ["router", public_id(world.artifact)]
    assert world.call("GET", "/v1/models/drained").json()["error"]["code"] == "model_not_found"
    secret = make_api_key(world.tenant, scopes=["artifacts:read"])
    assert world.call("GET", f"/v1/models/{made['id']}", secret=secret).status_code == 403


# --- on a socket ---------------------------------------------------------------------------------------------


def stream(web: str, world: World, **more: Any) -> Any:
    body = {"model": "router", "messages": MESSAGES, "stream": True} | more
    return httpx.stream("POST", f"{web}/v1/chat/completions", json=body, headers=bearer(world.secret), timeout=20)


def test_the_first_bytes_pass_before_the_server_has_the_next(web, world, far):
    world.deploy()
    far.gate = threading.Event()
    with stream(web, world) as response:
        pieces = response.iter_raw()
        assert next(pieces) == chunk("it is ")
        assert not far.gate.is_set()
        far.gate.set()
        assert b"".join(pieces) == chunk("here") + b"data: [DONE]\n\n"
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-kolm-deployment"].startswith("dep_")
    assert response.headers["x-request-id"].startswith("req_")


def test_a_caller_who_hangs_up_stops_the_server(web, world, far):
    world.deploy()
    far.gate = threading.Event()
    with stream(web, world) as response:
        next(response.iter_raw())
    assert far.disconnected.wait(10)
    eventually(lambda: not servers._under_way, within_s=10, what="our side has heard of it too")


def test_a_server_that_dies_after_the_first_byte_ends_the_stream_with_an_error(web, world, far):
    world.deploy()
    far.dies_after = 1
    with stream(web, world) as response:
        text = b"".join(response.iter_raw()).decode()
    assert text.startswith(chunk("it is ").decode())
    assert json.loads(text.rpartition("data: ")[2])["error"]["code"] == "server_lost"
    assert "[DONE]" not in text


def test_a_server_that_dies_before_the_first_byte_is_replaced(web, world, far):
    world.deploy()
    dying = FarSide(dies_after=0)
    with served(dying) as url:
        say_hello(url, name="dying")
        servers._looked_at = float("-inf")
        for _ in range(6):
            with stream(web, world) as response:
                assert b"[DONE]" in b"".join(response.iter_raw())
            servers._unhealthy_until.clear()


def test_streams_hold_no_database_connection(web, world, far, settings):
    """More open streams than the pool has connections, and the database answers all the same."""
    world.deploy()
    far.gate = threading.Event()
    n = 24
    with httpx.Client(timeout=20, limits=httpx.Limits(max_connections=n + 2)) as client:
        body = {"model": "router", "messages": MESSAGES, "stream": True}
        request = {"json": body, "headers": bearer(world.secret)}
        streams = [client.stream("POST", f"{web}/v1/chat/completions", **request) for _ in range(n)]
        opened = [each.__enter__() for each in streams]
        firsts = [next(response.iter_raw()) for response in opened]
        assert firsts == [chunk("it is ")] * n
        began = time.monotonic()
        assert client.get(f"{web}/v1/models", headers=bearer(world.secret)).status_code == 200
        assert time.monotonic() - began < 2
        far.gate.set()
        for each in streams:
            each.__exit__(None, None, None)


def test_usage_of_a_stream_is_booked_under_its_key(web, world, far):
    world.deploy()
    with stream(web, world) as response:
        response.read()
    assert tell_usage(far.usage()) == {"booked": 1, "known": 0, "refused": []}
    assert promised(world) == 0


def test_a_student_on_an_encoder_goes_to_servers_that_know_its_kind_alone(web, committed_db):
    world, old, new = make_world(member="extraction.json"), FarSide(), FarSide()
    world.deploy()
    with served(old) as old_url, served(new) as new_url:
        assert say_hello(old_url, name="old").status_code == 200
        assert chat(world).json()["code"] == "no_server"
        encoder = BASE | {"students": ["label", "spans"]}
        assert say_hello(new_url, name="new", bases=[encoder]).status_code == 200
        servers.live_servers(anew=True)
        for _ in range(8):
            assert chat(world).status_code == 200
        assert (len(old.grants), len(new.grants)) == (0, 8)
        say_hello(new_url, name="new", bases=[BASE | {"students": ["label"]}])
        servers.live_servers(anew=True)
        assert chat(world).json()["code"] == "no_server"


def test_what_a_student_without_tokens_may_cost_has_no_answer_in_it(web, committed_db):
    promises = []
    for member in ("extraction.json", "prompt.json"):
        world, side = make_world(member=member), FarSide()
        with served(side) as url:
            say_hello(url, bases=[BASE | {"students": ["causal", "spans"]}])
            servers.live_servers(anew=True)
            assert chat(world, public_id(world.artifact), max_tokens=1_000).status_code == 200
        promises.append(int(side.grants[0].request.split(":")[2]))
    assert promises[0] < 40 < 200 <= promises[1]


def test_a_registration_with_students_that_are_none_is_refused(committed_db):
    for students in ("spans", [1], ["x"] * 21):
        assert say_hello("http://s", bases=[BASE | {"students": students}]).status_code == 400
