"""A compiled json task answers under a name: through the gateway, on the serving runner, metered and billed."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import parse_answer
from backend.domain.serving.deployments import CACHED_SKU, COMPLETION_SKU, PROMPT_SKU
from gpu_runners import kolm
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import small_orders
from tests.acceptance.serving_books import SKUS, ledger_is_whole, n_answers, promised, served_facts, tokens_of

pytestmark = pytest.mark.timeout(600)
SCHEMA = small_orders("orders")["output"]["schema"]
MAIL = "Please cancel my order AB-20417, I ordered the desk lamp twice by mistake."
CHAT = "/v1/chat/completions"


def body(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": MAIL}], **more}


@pytest.fixture(scope="module")
def deployed(customer: Customer, orders: Row) -> Row:
    made = customer.api.post("/v1/deployments", json={"name": "orders", "artifact": orders["artifact"]})
    assert made.status_code == 201, made.text
    found: Row = made.json()
    return found


@pytest.fixture(scope="module")
def answered(customer: Customer, deployed: Row) -> list[Row]:
    """The first request, which loads base and adapter, and a second one."""
    out = []
    for _ in range(2):
        said = customer.api.post(CHAT, json=body("orders"), timeout=120)
        assert said.status_code == 200, said.text
        assert said.headers["x-kolm-deployment"] == deployed["id"]
        assert said.headers["x-kolm-artifact"] == deployed["artifact"]
        out.append(said.json())
    return out


def streamed(customer: Customer, asked: Row) -> Iterator[tuple[float, Row]]:
    with customer.api.stream("POST", CHAT, json=asked | {"stream": True}, timeout=60) as said:
        assert said.status_code == 200
        assert said.headers["content-type"].startswith("text/event-stream")
        for line in said.iter_lines():
            if line.startswith("data:") and line[5:].strip() != "[DONE]":
                yield time.monotonic(), json.loads(line[5:])


def test_the_answer_fits_the_schema_and_is_counted(answered: list[Row]) -> None:
    for said in answered:
        choice = said["choices"][0]
        assert validator(SCHEMA)(parse_answer(choice["message"]["content"])) == []
        assert choice["finish_reason"] == "stop"
        usage = said["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert min(usage["prompt_tokens"], usage["completion_tokens"]) > 10
    assert answered[0]["choices"][0]["message"] == answered[1]["choices"][0]["message"]  # greedy


COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens")


def test_a_stream_brings_the_same_text_as_it_is_written(customer: Customer, answered: list[Row]) -> None:
    chunks = list(streamed(customer, body("orders", stream_options={"include_usage": True})))
    text = "".join(c["choices"][0]["delta"].get("content") or "" for _, c in chunks if c["choices"])
    assert text == answered[0]["choices"][0]["message"]["content"]
    assert len({at for at, _ in chunks}) > 3
    usage = chunks[-1][1]["usage"]  # what was drafted differs: it is measured what pays
    assert [usage[name] for name in COUNTED] == [answered[0]["usage"][name] for name in COUNTED]


def test_the_client_streams_the_same_answer(deployment: Deployment, customer: Customer, answered: list[Row]) -> None:
    with kolm.Client(customer.key, deployment.url) as client:
        assert client.chats.text("orders", MAIL) == answered[0]["choices"][0]["message"]["content"]
        chunks = list(client.chats.stream("orders", MAIL))
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == answered[0]["choices"][0]["message"]["content"]


def test_what_was_answered_is_billed_to_the_token(
    deployment: Deployment, customer: Customer, deployed: Row, answered: list[Row]
) -> None:
    last = customer.api.post(CHAT, json=body(deployed["id"]), timeout=60).json()
    eventually(lambda: promised(deployment, customer) == 0, within_s=60, what="the usage is told")
    one = customer.get(f"/v1/deployments/{deployed['id']}")
    (figures,) = [row for row in one["last_24h"] if row["artifact"] == deployed["artifact"]]
    assert figures["n_requests"] > len(answered)
    per_request = last["usage"]
    assert figures["completion_tokens"] == figures["n_requests"] * per_request["completion_tokens"]
    assert figures["prompt_tokens"] == figures["n_requests"] * per_request["prompt_tokens"]
    assert figures["amount_microusd"] > 0
    facts = served_facts(deployment, customer)
    told = tokens_of(facts)
    assert n_answers(facts) == figures["n_requests"]
    assert told[COMPLETION_SKU] == figures["completion_tokens"]
    assert told[PROMPT_SKU] + told[CACHED_SKU] == figures["prompt_tokens"]
    usage = {row["key"]: row["charged_microusd"] for row in customer.get("/v1/usage", group_by="sku")["data"]}
    assert sum(usage.get(sku, 0) for sku in SKUS) == figures["amount_microusd"]
    assert one["ran"]
    assert all(about["device"] for about in one["ran"])


def test_several_answers_of_one_request_are_booked_each_for_itself(
    deployment: Deployment, customer: Customer, deployed: Row
) -> None:
    before = served_facts(deployment, customer)
    usage = customer.api.post(CHAT, json=body("orders", n=3), timeout=60).json()["usage"]
    eventually(lambda: promised(deployment, customer) == 0, within_s=30, what="the usage is told")
    after = served_facts(deployment, customer)
    assert n_answers(after) == n_answers(before) + 3
    told = tokens_of(after) - tokens_of(before)
    assert told[COMPLETION_SKU] == usage["completion_tokens"]
    assert told[PROMPT_SKU] + told[CACHED_SKU] == usage["prompt_tokens"]
    assert ledger_is_whole(deployment)


def test_a_bad_request_is_answered_in_openais_shape(customer: Customer, deployed: Row) -> None:
    for asked, status in (
        (body("nobody"), 404),
        (body("orders", temperature="hot"), 400),
        (body("orders", temperature="hot", stream=True), 400),
        (body("orders") | {"messages": [{"role": "user", "content": MAIL * 100}]}, 400),
        ({"model": "orders", "messages": []}, 400),
        (body("orders", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": 7}}), 400),
    ):
        said = customer.api.post(CHAT, json=asked, timeout=60)
        assert said.status_code == status, said.text
        assert set(said.json()["error"]) >= {"message", "type", "code"}


def test_a_stranger_reaches_neither_the_name_nor_the_artifact(
    stranger: Customer, customer: Customer, deployed: Row
) -> None:
    for model in ("orders", deployed["id"], deployed["artifact"]):
        assert stranger.api.post(CHAT, json=body(model), timeout=60).status_code == 404
    assert [row["id"] for row in stranger.get("/v1/models")["data"]] == []
    assert "orders" in [row["id"] for row in customer.get("/v1/models")["data"]]
    without = httpx.post(f"{customer.api.base_url}{CHAT}", json=body("orders"))
    assert without.status_code == 401


def test_a_drained_name_takes_nothing_and_a_started_one_does(customer: Customer, deployed: Row) -> None:
    path = f"/v1/deployments/{deployed['id']}"
    assert customer.api.post(f"{path}/drain", json={}).status_code == 200
    refused = eventually(
        lambda: None if (said := customer.api.post(CHAT, json=body("orders"))).status_code == 200 else said,
        within_s=10,
    )
    assert refused.status_code in (409, 503)
    assert customer.api.post(f"{path}/start", json={}).status_code == 200
    eventually(lambda: customer.api.post(CHAT, json=body("orders"), timeout=60).status_code == 200, within_s=10)


def test_a_revoked_artifact_answers_nobody_any_more(customer: Customer, orders: Row, deployed: Row) -> None:
    """The last test: it takes the artifact away."""
    gone = customer.api.post(f"/v1/artifacts/{orders['artifact']}/revoke", json={"reason": "a test"})
    assert gone.status_code == 200, gone.text
    refused = eventually(
        lambda: None if (said := customer.api.post(CHAT, json=body("orders"))).status_code == 200 else said,
        within_s=10,
    )
    assert refused.status_code in (409, 410)
    assert "revoked" in refused.json()["error"]["message"]
