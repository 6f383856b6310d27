"""OpenAI's own Python client against `kolm serve`: chats, parsed classes, tools, responses and models."""

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import BadRequestError, NotFoundError, OpenAI, pydantic_function_tool
from pydantic import BaseModel

from backend.domain.artifact.kolm_verify import read_kolm
from gpu_runners.artifacts.generative_model import GenerativeModel
from gpu_runners.serving.openai.single import app_of
from tests.gpu_runners.serving.served_students import serving, serving_app
from tests.gpu_runners.small_base import make_base
from tests.gpu_runners.small_generative import generative_kolm
from tests.gpu_runners.small_orders import order_pairs, spans_kolm
from tests.gpu_runners.small_task import Trained, kolm_of, task_rows

TEXT, ANSWER = order_pairs(1, start=53)[0]


class Order(BaseModel):
    item: str
    city: str
    urgency: Literal["soon", "someday"]


class Topic(BaseModel):
    topic: str


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="not needed here", max_retries=0)


@pytest.fixture(scope="module")
def orders() -> Iterator[OpenAI]:
    with serving(spans_kolm()) as (client, _), client_of(str(client.base_url).rstrip("/")) as made:
        yield made


@pytest.fixture(scope="module")
def mails(trained: Trained) -> Iterator[OpenAI]:
    with serving(kolm_of(trained)) as (client, _), client_of(str(client.base_url).rstrip("/")) as made:
        yield made


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A causal json artifact: it writes tokens, and a stream has as many chunks."""
    small = make_base(tmp_path_factory.mktemp("bases") / "small-llama")
    kolm = read_kolm(generative_kolm(small))
    model = GenerativeModel.merge_members(kolm.members, base=small, max_running=2)
    with serving_app(app_of(kolm, model)) as url, client_of(url) as client:
        yield client
    model.engine.stop()  # type: ignore[attr-defined]


def asked(text: str = TEXT, model: str = "orders") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def test_models_are_listed_and_described(orders: OpenAI) -> None:
    (model,) = orders.models.list()
    assert orders.models.retrieve(model.id).id == model.id == "orders"
    with pytest.raises(NotFoundError, match="Here is one model"):
        orders.models.retrieve("gpt-5")


def test_a_class_is_parsed_out_of_a_span_students_answer(orders: OpenAI) -> None:
    parsed = orders.chat.completions.parse(**asked(), response_format=Order)
    assert parsed.choices[0].message.parsed == Order(**ANSWER)
    assert parsed.usage is not None
    assert (parsed.usage.completion_tokens, parsed.usage.prompt_tokens > 0) == (0, True)


def test_a_forced_tool_is_parsed_into_its_class(orders: OpenAI) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "Order"}}):
        parsed = orders.chat.completions.parse(
            **asked(), tools=[pydantic_function_tool(Order)], tool_choice=choice, parallel_tool_calls=False
        )
        (call,) = parsed.choices[0].message.tool_calls or ()
        assert call.function.parsed_arguments == Order(**ANSWER)


def test_a_stream_is_assembled_by_the_client(orders: OpenAI) -> None:
    with orders.chat.completions.stream(**asked(), stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    assert json.loads(final.choices[0].message.content or "") == ANSWER
    assert final.usage is not None


def test_a_label_its_odds_and_its_class(mails: OpenAI) -> None:
    (model,) = mails.models.list()
    row = task_rows(1, start=11)[1]
    answer = mails.chat.completions.create(**asked(row["input"], model.id), logprobs=True, top_logprobs=2, max_tokens=1)
    assert answer.choices[0].message.content == row["label"]
    odds = answer.choices[0].logprobs
    assert odds is not None
    assert odds.content is not None
    assert 0 < math.exp(odds.content[0].logprob) <= 1
    assert len(odds.content[0].top_logprobs) == 2
    parsed = mails.chat.completions.parse(**asked(row["input"], model.id), response_format=Topic)
    assert parsed.choices[0].message.parsed == Topic(topic=row["label"])


@pytest.mark.parametrize("client", ["orders", "tiny"])
def test_a_response_is_a_text_in_and_a_text_out(client: str, request: pytest.FixtureRequest) -> None:
    openai_client: OpenAI = request.getfixturevalue(client)
    response = openai_client.responses.create(
        model="orders", input=TEXT, instructions="Extract the order.", store=False
    )
    assert set(json.loads(response.output_text)) in ({"item", "city", "urgency"}, {"size", "n"})
    assert (response.status, response.error, response.instructions) == ("completed", None, "Extract the order.")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    earlier = [
        {"role": "user", "content": [{"type": "input_text", "text": "a sofa for Oslo"}]},
        *[item.model_dump() for item in response.output],
        {"role": "user", "content": TEXT},
    ]
    again = openai_client.responses.create(model="orders", input=earlier)  # type: ignore[arg-type]
    assert again.output_text


@pytest.mark.parametrize("client", ["orders", "tiny"])
def test_a_streamed_response_has_the_standard_events(client: str, request: pytest.FixtureRequest) -> None:
    openai_client: OpenAI = request.getfixturevalue(client)
    whole = openai_client.responses.create(model="orders", input=TEXT)
    events = list(openai_client.responses.create(model="orders", input=TEXT, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(getattr(event, "delta", "") for event in events) == whole.output_text
    with openai_client.responses.stream(model="orders", input=TEXT) as stream:
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens  # type: ignore[union-attr]


def test_a_class_is_parsed_out_of_a_response(orders: OpenAI) -> None:
    assert orders.responses.parse(model="orders", input=TEXT, text_format=Order).output_parsed == Order(**ANSWER)


def test_a_response_that_is_cut_says_so(tiny: OpenAI) -> None:
    text = {"format": {"type": "text"}}
    cut = tiny.responses.create(model="orders", input=TEXT, max_output_tokens=2, text=text)  # type: ignore[call-overload]
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    (*_, last) = tiny.responses.create(  # type: ignore[call-overload]
        model="orders", input=TEXT, max_output_tokens=2, text=text, stream=True
    )
    assert last.type == "response.incomplete"


@pytest.mark.parametrize("client", ["orders", "tiny"])
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "robot"}}}}, "text.format.schema"),
        ({"extra_body": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_what_a_response_cannot_honour_is_refused_by_its_name(
    client: str, more: dict[str, Any], param: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(BadRequestError) as refused:
        request.getfixturevalue(client).responses.create(**{"model": "orders", "input": TEXT} | more)
    assert refused.value.param == param


def test_a_schema_that_a_student_does_not_answer_by_is_named_as_this_address_names_it(orders: OpenAI) -> None:
    class Weather(BaseModel):
        place: str

    with pytest.raises(BadRequestError, match=r"text\.format") as refused:
        orders.responses.parse(model="orders", input=TEXT, text_format=Weather)
    assert refused.value.param == "text.format"
    with pytest.raises(BadRequestError) as silent:
        orders.responses.create(model="orders", input=[{"role": "system", "content": "hello"}])
    assert silent.value.param == "input"


def test_the_client_is_a_current_one() -> None:
    assert int(openai.__version__.split(".")[0]) >= 3
