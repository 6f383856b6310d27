"""`kolm serve` of students on encoders behind OpenAI's interface: a span student's json, a label student's label."""

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gpu_runners.artifacts.encoder_student import EncoderModel
from tests.gpu_runners.serving.served_students import serving
from tests.gpu_runners.small_orders import SCHEMA, order_pairs, spans_kolm
from tests.gpu_runners.small_packs import label_rules
from tests.gpu_runners.small_task import LABELS, Trained, kolm_of, task_rows

TEXT, ANSWER = order_pairs(1, start=53)[0]


@pytest.fixture(scope="module")
def orders() -> Iterator[tuple[httpx.Client, EncoderModel]]:
    with serving(spans_kolm()) as served:
        yield served


@pytest.fixture(scope="module")
def mails(trained: Trained) -> Iterator[tuple[httpx.Client, EncoderModel]]:
    with serving(kolm_of(trained)) as served:
        yield served


def chat(client: httpx.Client, text: str = TEXT, *, model: str = "orders", **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}]} | more
    return client.post("/v1/chat/completions", json=body)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "order", "schema": schema, "strict": True}}


def test_a_span_student_answers_a_chat_with_its_json_and_says_where_each_field_stands(
    orders: tuple[httpx.Client, EncoderModel],
) -> None:
    client, model = orders
    body = chat(client).json()
    (choice,) = body["choices"]
    assert json.loads(choice["message"]["content"]) == ANSWER
    assert (choice["finish_reason"], body["model"], body["object"]) == ("stop", "orders", "chat.completion")
    fields = {field["path"]: field for field in body["kolm"]["fields"]}
    assert {path: TEXT[one["start"] : one["end"]] for path, one in fields.items() if one["start"] is not None} == {
        "/item": ANSWER["item"],
        "/city": ANSWER["city"],
    }
    assert 0 < body["kolm"]["confidence"] <= 1
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (model.n_tokens(TEXT), 0)


def test_the_last_user_message_is_the_input_and_parts_of_it_are_joined(
    orders: tuple[httpx.Client, EncoderModel],
) -> None:
    client, _ = orders
    parts = [{"type": "text", "text": TEXT[:9]}, {"type": "text", "text": TEXT[9:]}]
    messages = [
        {"role": "system", "content": "Extract the order."},
        {"role": "user", "content": "a sofa for Oslo, there is no hurry"},
        {"role": "assistant", "content": "{}"},
        {"role": "user", "content": parts},
    ]
    body = client.post("/v1/chat/completions", json={"model": "orders", "messages": messages}).json()
    assert body["kolm"]["unread_messages"] == 3
    assert json.loads(body["choices"][0]["message"]["content"]) == ANSWER


def test_a_stream_is_one_chunk_with_the_whole_answer_and_usage_where_it_is_wanted(
    orders: tuple[httpx.Client, EncoderModel],
) -> None:
    client, model = orders
    response = chat(client, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    chunk, usage = events(response)
    assert json.loads(chunk["choices"][0]["delta"]["content"]) == ANSWER
    assert (chunk["choices"][0]["finish_reason"], usage["usage"]["prompt_tokens"]) == ("stop", model.n_tokens(TEXT))
    assert chunk["kolm"]["fields"]
    (only,) = events(chat(client, stream=True))
    assert "usage" not in only


def test_the_tasks_own_schema_may_be_asked_for_in_other_words_and_no_other(
    orders: tuple[httpx.Client, EncoderModel],
) -> None:
    client, _ = orders
    titled = SCHEMA | {"title": "Order", "additionalProperties": False, "required": ["urgency", "item", "city"]}
    wider = SCHEMA | {"required": ["item", "city"]}
    for own in (schema_format(titled), schema_format(wider), {"type": "json_object"}, {"type": "text"}):
        assert chat(client, response_format=own).status_code == 200
    narrower = SCHEMA | {"properties": SCHEMA["properties"] | {"city": {"type": "string", "maxLength": 3}}}
    renamed = SCHEMA | {"properties": SCHEMA["properties"] | {"urgency": {"enum": ["soon", "never"]}}}
    for other in (narrower, renamed):
        refused = chat(client, response_format=schema_format(other))
        assert refused.status_code == 400
        assert "leave response_format out" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": "x"}, "stop"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"messages": [{"role": "system", "content": "hello"}]}, "messages"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_a_student_without_tokens_cannot_do_is_refused_by_its_name(
    orders: tuple[httpx.Client, EncoderModel], more: dict[str, Any], param: str
) -> None:
    refused = chat(orders[0], **more)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_what_only_steers_the_drawing_of_tokens_changes_nothing(orders: tuple[httpx.Client, EncoderModel]) -> None:
    body = chat(orders[0], temperature=1.5, top_p=0.1, seed=3, max_tokens=1, user="u").json()
    assert json.loads(body["choices"][0]["message"]["content"]) == ANSWER


def test_other_models_other_addresses_and_bodies_that_are_none_have_openais_errors(
    orders: tuple[httpx.Client, EncoderModel],
) -> None:
    client, _ = orders
    assert client.get("/v1/models").json()["data"][0]["id"] == "orders"
    assert chat(client, model="gpt").json()["error"]["code"] == "model_not_found"
    completion = client.post("/v1/completions", json={"model": "orders", "prompt": TEXT})
    assert (completion.status_code, completion.json()["error"]["code"]) == (400, "unsupported")
    assert client.post("/v1/chat/completions", content=b"{").json()["error"]["code"] == "invalid_json"
    too_long = client.post("/v1/chat/completions", content=b" " * 1_000_001)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "payload_too_large")
    assert chat(client, "x" * 100_001).json()["error"]["code"] == "context_length_exceeded"
    assert client.get("/healthz").status_code == 200


def test_a_label_student_answers_a_chat_with_its_label(mails: tuple[httpx.Client, EncoderModel]) -> None:
    client, model = mails
    name = client.get("/v1/models").json()["data"][0]["id"]
    row = task_rows(1, start=11)[1]
    body = chat(client, row["input"], model=name).json()
    assert body["choices"][0]["message"]["content"] == row["label"] in LABELS
    assert set(body["kolm"]) == {"confidence"}
    assert body["usage"]["prompt_tokens"] == model.n_tokens(row["input"])
    assert body["choices"][0]["logprobs"] is None
    assert chat(client, "x", model=name, response_format={"type": "json_object"}).status_code == 400


def test_the_odds_of_a_label_are_its_log_probs(mails: tuple[httpx.Client, EncoderModel]) -> None:
    client, _ = mails
    name = client.get("/v1/models").json()["data"][0]["id"]
    text = task_rows(1, start=11)[1]["input"]
    body = chat(client, text, model=name, logprobs=True, top_logprobs=20).json()
    (token,) = body["choices"][0]["logprobs"]["content"]
    assert token["token"] == body["choices"][0]["message"]["content"] == token["top_logprobs"][0]["token"]
    assert math.exp(token["logprob"]) == pytest.approx(body["kolm"]["confidence"], abs=1e-5)
    assert sorted(one["token"] for one in token["top_logprobs"]) == sorted(LABELS)
    assert sum(math.exp(one["logprob"]) for one in token["top_logprobs"]) == pytest.approx(1, abs=1e-5)
    (chunk,) = events(chat(client, text, model=name, logprobs=True, stream=True))
    assert chunk["choices"][0]["logprobs"]["content"] == [token | {"top_logprobs": []}]


def test_a_rules_answer_says_so_and_has_no_tokens(trained: Trained) -> None:
    with serving(kolm_of(trained, rules=label_rules(("parcel", "delivery")))) as (client, _):
        name = client.get("/v1/models").json()["data"][0]["id"]
        body = chat(client, "where is my parcel 1 number 2", model=name).json()
    assert (body["choices"][0]["message"]["content"], body["kolm"]["rule"]) == ("delivery", 1)
    assert body["usage"]["total_tokens"] == 0


def test_v1_run_takes_both_bodies_and_answers_as_a_deployment_does(orders: tuple[httpx.Client, EncoderModel]) -> None:
    client, _ = orders
    for body in ({"inputs": [TEXT]}, {"input": TEXT}, {"input": [TEXT]}):
        answer = client.post("/v1/run", json=body).json()
        assert set(answer) == {"object", "artifact", "outputs", "load_ms", "cost_microusd"}
        assert json.loads(answer["outputs"][0]["output"]) == ANSWER
    for bad in ({"inputs": TEXT}, {"inputs": [TEXT], "input": TEXT}, {"inputs": []}, {"inputs": [3]}, {"text": TEXT}):
        assert client.post("/v1/run", json=bad).status_code == 422


def test_one_model_is_described_by_its_name(orders: tuple[httpx.Client, EncoderModel]) -> None:
    client, _ = orders
    assert client.get("/v1/models/orders").json()["object"] == "model"
    missing = client.get("/v1/models/other%20one")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


def test_v1_run_says_of_each_field_where_it_stands(orders: tuple[httpx.Client, EncoderModel]) -> None:
    (output,) = orders[0].post("/v1/run", json={"input": TEXT}).json()["outputs"]
    assert json.loads(output["output"]) == ANSWER
    assert {"path", "start", "end", "confidence_ppm"} == set(output["fields"][0])
