"""Tools that must be called, and schemas that are asked for: an artifact's own answer in the caller's form, or a
refusal before anything runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import jsonschema
import pytest

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.encoder_student import EncoderModel
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.serving.openai.single import app_of
from tests.gpu_runners import small_base
from tests.gpu_runners.serving.openai.test_app import Caller, events
from tests.gpu_runners.serving.served_students import serving
from tests.gpu_runners.small_generative import SCHEMA as OWN
from tests.gpu_runners.small_generative import generative_kolm
from tests.gpu_runners.small_orders import SCHEMA, order_pairs, spans_kolm
from tests.gpu_runners.small_packs import json_rules
from tests.gpu_runners.small_task import LABELS, Trained, kolm_of, task_rows

TEXT, ANSWER = order_pairs(1, start=53)[0]
# as pydantic writes a class of which one field has a default, with a wider type
PYDANTIC = {
    "title": "Order",
    "type": "object",
    "properties": {
        "city": {"title": "City", "type": "string"},
        "item": {"title": "Item", "type": "string", "description": "what is ordered"},
        "urgency": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Urgency"},
    },
    "required": ["city", "item"],
}


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | ({"parameters": parameters} if parameters else {})}


def field(name: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: part}, "required": [name]}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.fixture(scope="module")
def orders() -> Iterator[httpx.Client]:
    with serving(spans_kolm()) as (client, _):
        yield client


@pytest.fixture(scope="module")
def mails(trained: Trained) -> Iterator[tuple[httpx.Client, EncoderModel]]:
    with serving(kolm_of(trained)) as served:
        yield served


@pytest.fixture(scope="module")
def tool_base(tmp_path_factory: pytest.TempPathFactory) -> CausalBase:
    """Its template shows the tools before the messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_base, "TEMPLATE", "{% if tools %}{{ tools | tojson }}{% endif %}" + small_base.TEMPLATE)
        return small_base.make_base(tmp_path_factory.mktemp("bases") / "small-llama")


@contextmanager
def causal(base: CausalBase, task_type: str, **beside: bytes) -> Iterator[Caller]:
    kolm = read_kolm(generative_kolm(base, task_type, beside=beside))
    model = GenerativeModel.merge_members(kolm.members, base=base, max_running=2)
    try:
        yield Caller(app_of(kolm, model))
    finally:
        model.engine.stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def json_caller(tool_base: CausalBase) -> Iterator[Caller]:
    with causal(tool_base, "json") as caller:
        yield caller


def ask(client: httpx.Client, text: str = TEXT, *, model: str = "orders", **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}]} | more
    return client.post("/v1/chat/completions", json=body)


def the_call(response: httpx.Response) -> tuple[str, Any]:
    """The name and the arguments of the one call."""
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    (call,) = choice["message"]["tool_calls"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def refused(response: httpx.Response, param: str) -> str:
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
    return str(response.json()["error"]["message"])


@pytest.mark.parametrize("choice", ["required", named("Order")])
@pytest.mark.parametrize("parameters", [SCHEMA, PYDANTIC])
def test_a_span_student_calls_the_function_that_it_must(
    orders: httpx.Client, choice: Any, parameters: dict[str, Any]
) -> None:
    asked = {"tools": [tool("Order", parameters)], "tool_choice": choice, "parallel_tool_calls": False}
    name, arguments = the_call(ask(orders, **asked))
    assert (name, arguments) == ("Order", ANSWER)
    jsonschema.validate(arguments, parameters)


def test_a_stream_has_the_whole_call_in_its_one_chunk(orders: httpx.Client) -> None:
    (chunk,) = events(ask(orders, tools=[tool("Order", PYDANTIC)], tool_choice="required", stream=True))
    (choice,) = chunk["choices"]
    (call,) = choice["delta"]["tool_calls"]
    assert (call["index"], call["type"], choice["finish_reason"]) == (0, "function", "tool_calls")
    assert json.loads(call["function"]["arguments"]) == ANSWER


def test_of_several_functions_the_one_that_the_answers_fit_is_called(orders: httpx.Client) -> None:
    weather = tool("weather", field("place", {"type": "string"}))
    assert the_call(ask(orders, tools=[weather, tool("Order", PYDANTIC)], tool_choice="required"))[0] == "Order"
    twice = [tool("one", PYDANTIC), tool("other", SCHEMA)]
    assert "name one" in refused(ask(orders, tools=twice, tool_choice="required"), "tool_choice")
    assert the_call(ask(orders, tools=twice, tool_choice=named("other")))[0] == "other"


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        (field("place", {"type": "string"}), "/place"),
        (SCHEMA | {"properties": SCHEMA["properties"] | {"urgency": {"enum": ["soon"]}}}, "/urgency"),
        (SCHEMA | {"properties": SCHEMA["properties"] | {"n": {"type": "integer"}}, "required": ["n"]}, "/n"),
        (None, "/item"),
    ],
)
def test_parameters_that_not_every_answer_fits_are_refused_with_the_field(
    orders: httpx.Client, parameters: dict[str, Any] | None, place: str
) -> None:
    message = refused(ask(orders, tools=[tool("f", parameters)], tool_choice="required"), "tools")
    assert place in message


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tools": [tool("f", SCHEMA)], "tool_choice": named("g")}, "tool_choice", "invalid_value"),
        ({"tools": [tool("f", SCHEMA)], "tool_choice": {"type": "custom"}}, "tool_choice", "unsupported_parameter"),
        ({"tools": [tool("f", SCHEMA)], "tool_choice": "auto"}, "tools", "unsupported_parameter"),
        ({"tools": [tool("f", {"type": "robot"})], "tool_choice": "required"}, "tools", "bad_schema"),
        ({"tools": [tool("f", SCHEMA)], "tool_choice": "required", "logprobs": True}, "logprobs", None),
        ({"tools": [tool("f", SCHEMA)], "parallel_tool_calls": 1}, "parallel_tool_calls", "invalid_value"),
    ],
)
def test_a_choice_that_cannot_be_honoured_is_refused_by_its_name(
    orders: httpx.Client, more: dict[str, Any], param: str, code: str | None
) -> None:
    response = ask(orders, **more)
    refused(response, param)
    assert code in (None, response.json()["error"]["code"])


def test_tool_choice_none_answers_in_text(orders: httpx.Client) -> None:
    body = ask(orders, tools=[tool("f")], tool_choice="none").json()
    assert json.loads(body["choices"][0]["message"]["content"]) == ANSWER


@pytest.mark.parametrize("part", [{"type": "string"}, {"type": "string", "enum": [*LABELS, "other"]}])
def test_a_label_is_the_one_field_that_was_asked_for(
    mails: tuple[httpx.Client, EncoderModel], part: dict[str, Any]
) -> None:
    client, _ = mails
    row = task_rows(1, start=11)[1]
    name = client.get("/v1/models").json()["data"][0]["id"]
    asked = {"tools": [tool("Route", field("topic", part))], "tool_choice": named("Route")}
    assert the_call(ask(client, row["input"], model=name, **asked)) == ("Route", {"topic": row["label"]})
    format = {"type": "json_schema", "json_schema": {"name": "Route", "schema": field("topic", part)}}
    content = ask(client, row["input"], model=name, response_format=format).json()["choices"][0]["message"]["content"]
    assert json.loads(content) == {"topic": row["label"]}


@pytest.mark.parametrize(
    "parameters",
    [
        field("topic", {"enum": LABELS[:1]}),
        field("topic", {"type": "integer"}),
        {"type": "object", "properties": {"topic": {"type": "string"}, "why": {"type": "string"}}},
        None,
    ],
)
def test_a_field_that_does_not_take_each_label_is_refused(
    mails: tuple[httpx.Client, EncoderModel], parameters: dict[str, Any] | None
) -> None:
    client, _ = mails
    name = client.get("/v1/models").json()["data"][0]["id"]
    asked = {"tools": [tool("Route", parameters)], "tool_choice": "required"}
    assert "labels" in refused(ask(client, "x", model=name, **asked), "tools")
    if parameters is not None:
        format = {"type": "json_schema", "json_schema": {"name": "Route", "schema": parameters}}
        assert "labels" in refused(ask(client, "x", model=name, response_format=format), "response_format")


def test_a_causal_json_artifact_answers_in_its_own_form_where_that_fits(json_caller: Caller) -> None:
    own = json.loads(json_caller.chat().json()["choices"][0]["message"]["content"])
    wider = OWN | {"properties": OWN["properties"] | {"n": {"type": "integer"}}, "required": ["n"]}
    asked = {"tools": [tool("order", wider)], "tool_choice": "required"}
    assert the_call(json_caller.chat(**asked)) == ("order", own)
    (chunk, *more) = events(json_caller.chat(**asked, stream=True))
    calls = [call for one in (chunk, *more) for call in one["choices"][0]["delta"].get("tool_calls", [])]
    assert json.loads(calls[0]["function"]["arguments"]) == own


def test_a_causal_json_artifact_is_held_to_parameters_of_another_kind(json_caller: Caller) -> None:
    other = {"type": "object", "properties": {"fast": {"type": "boolean"}}, "required": ["fast"]}
    name, arguments = the_call(json_caller.chat(tools=[tool("go", other)], tool_choice="required"))
    jsonschema.validate(arguments, other)
    assert name == "go"
    assert refused(json_caller.chat(tools=[tool("go", other)]), "tools")


def test_a_causal_label_artifact_writes_its_label_into_the_field(tool_base: CausalBase) -> None:
    asked = {"tools": [tool("drink", field("kind", {"enum": ["tea", "coffee"]}))], "tool_choice": "required"}
    with causal(tool_base, "label") as caller:
        label = caller.chat().json()["choices"][0]["message"]["content"]
        assert the_call(caller.chat(**asked)) == ("drink", {"kind": label})
        assert refused(caller.chat(**asked, logprobs=True), "logprobs")


def test_a_text_artifact_chooses_among_the_functions(tool_base: CausalBase) -> None:
    tools = [tool("tea", field("n", {"type": "integer", "minimum": 1, "maximum": 9})), tool("nothing")]
    with causal(tool_base, "text") as caller:
        name, arguments = the_call(caller.chat(tools=tools, tool_choice="required", max_tokens=200))
        assert name in ("tea", "nothing")
        assert (set(arguments) == {"n"}) == (name == "tea")
        assert the_call(caller.chat(tools=tools, tool_choice=named("nothing"))) == ("nothing", {})


def test_rules_answer_a_forced_call_too(tool_base: CausalBase) -> None:
    with causal(tool_base, "json", **{"rules.json": json_rules("coffee")}) as caller:
        body = caller.chat(tools=[tool("order", OWN)], tool_choice="required").json()
    assert (body["kolm"]["rule"], body["usage"]["total_tokens"]) == (0, 0)
    jsonschema.validate(json.loads(body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]), OWN)
