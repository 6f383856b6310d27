"""OpenAI's client, in the version that the other clients are locked with."""

import json
import math
from typing import Any, Literal

from tests.clients.trying import ORDER, ORDER_TEXT, equal, prepare, refused, report

WORK = prepare()

from openai import OpenAI, pydantic_function_tool  # noqa: E402
from pydantic import BaseModel  # noqa: E402


class Order(BaseModel):
    item: str
    city: str
    urgency: Literal["soon", "someday"]


class Mail(BaseModel):
    topic: str


ORDERS = OpenAI(base_url=WORK["orders"], api_key="none", max_retries=0)
MAILS = OpenAI(base_url=WORK["mails"], api_key="none", max_retries=0)
ASKED: dict[str, Any] = {"model": "orders", "messages": [{"role": "user", "content": ORDER_TEXT}]}
MAIL: dict[str, Any] = {"model": WORK["mails_model"], "messages": [{"role": "user", "content": WORK["mail"]}]}


def chat() -> None:
    equal(json.loads(ORDERS.chat.completions.create(**ASKED).choices[0].message.content or ""), ORDER)


def stream() -> None:
    chunks = ORDERS.chat.completions.create(**ASKED, stream=True)
    equal(json.loads("".join(one.choices[0].delta.content or "" for one in chunks)), ORDER)


def parse() -> None:
    answer = ORDERS.chat.completions.parse(**ASKED, response_format=Order)
    equal(answer.choices[0].message.parsed, Order(**ORDER))


def tool() -> None:
    tools = [pydantic_function_tool(Order)]
    answer = ORDERS.chat.completions.parse(**ASKED, tools=tools, tool_choice="required", parallel_tool_calls=False)
    equal((answer.choices[0].message.tool_calls or [])[0].function.parsed_arguments, Order(**ORDER))


def label() -> None:
    answer = MAILS.chat.completions.create(**MAIL, logprobs=True, top_logprobs=2, max_tokens=1).choices[0]
    equal(answer.message.content, WORK["label"])
    assert answer.logprobs is not None
    assert answer.logprobs.content
    assert 0 < math.exp(answer.logprobs.content[0].logprob) <= 1
    equal(len(answer.logprobs.content[0].top_logprobs), 2)


def label_class() -> None:
    answer = MAILS.chat.completions.parse(**MAIL, response_format=Mail)
    equal(answer.choices[0].message.parsed, Mail(topic=WORK["label"]))


def response() -> None:
    equal(json.loads(ORDERS.responses.create(model="orders", input=ORDER_TEXT).output_text), ORDER)
    equal(ORDERS.responses.parse(model="orders", input=ORDER_TEXT, text_format=Order).output_parsed, Order(**ORDER))


def response_stream() -> None:
    with ORDERS.responses.stream(model="orders", input=ORDER_TEXT) as events:
        equal(json.loads(events.get_final_response().output_text), ORDER)


def models() -> None:
    equal([ORDERS.models.retrieve(one.id).id for one in ORDERS.models.list()], ["orders"])


report(
    "openai",
    {
        "chat.completions.create": chat,
        "chat.completions.create(stream=True)": stream,
        "chat.completions.parse(response_format=...)": parse,
        'chat.completions.parse(tools=..., tool_choice="required")': tool,
        "a label with logprobs": label,
        "a label parsed into a class of one field": label_class,
        "responses.create and responses.parse": response,
        "responses.stream": response_stream,
        "models.list and models.retrieve": models,
        "responses.create(store=True) is refused": lambda: refused(
            lambda: ORDERS.responses.create(model="orders", input=ORDER_TEXT, store=True), "stores no responses"
        ),
    },
)
