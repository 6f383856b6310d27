"""langchain-openai: ChatOpenAI by both of OpenAI's addresses."""

import asyncio
import json
from typing import Any, Literal

from tests.clients.trying import ORDER, ORDER_TEXT, equal, prepare, refused, report

WORK = prepare()

from langchain_openai import ChatOpenAI  # noqa: E402
from pydantic import BaseModel, SecretStr  # noqa: E402


class Order(BaseModel):
    """An order."""

    item: str
    city: str
    urgency: Literal["soon", "someday"]


class Mail(BaseModel):
    """A mail."""

    topic: str


def chat_model(place: str = "orders", **more: Any) -> ChatOpenAI:
    name = "orders" if place == "orders" else WORK["mails_model"]
    return ChatOpenAI(base_url=WORK[place], api_key=SecretStr("none"), model=name, max_retries=0, **more)


def invoke() -> None:
    answer = chat_model().invoke(ORDER_TEXT)
    equal(json.loads(str(answer.content)), ORDER)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] > 0


def stream() -> None:
    equal(json.loads("".join(str(one.content) for one in chat_model().stream(ORDER_TEXT))), ORDER)


def batch() -> None:
    equal([json.loads(str(one.content)) for one in chat_model().batch([ORDER_TEXT] * 3)], [ORDER] * 3)


def in_async() -> None:
    equal(json.loads(str(asyncio.run(chat_model().ainvoke(ORDER_TEXT)).content)), ORDER)


def structured(method: str) -> None:
    equal(chat_model().with_structured_output(Order, method=method).invoke(ORDER_TEXT), Order(**ORDER))  # type: ignore[arg-type]


def any_tool() -> None:
    answer = chat_model().bind_tools([Order], tool_choice="any").invoke(ORDER_TEXT)
    equal([(call["name"], call["args"]) for call in answer.tool_calls], [("Order", ORDER)])


def label() -> None:
    equal(chat_model("mails").invoke(WORK["mail"]).content, WORK["label"])
    for method in ("function_calling", "json_schema"):
        answer = chat_model("mails").with_structured_output(Mail, method=method).invoke(WORK["mail"])  # type: ignore[arg-type]
        equal(answer, Mail(topic=WORK["label"]))


def responses() -> None:
    model = chat_model(use_responses_api=True)
    equal(json.loads(model.invoke(ORDER_TEXT).text), ORDER)
    equal(json.loads("".join(one.text for one in model.stream(ORDER_TEXT))), ORDER)
    equal(model.with_structured_output(Order).invoke(ORDER_TEXT), Order(**ORDER))


report(
    "langchain-openai",
    {
        "invoke": invoke,
        "stream": stream,
        "batch": batch,
        "ainvoke": in_async,
        'with_structured_output(method="function_calling")': lambda: structured("function_calling"),
        'with_structured_output(method="json_schema")': lambda: structured("json_schema"),
        'with_structured_output(method="json_mode")': lambda: structured("json_mode"),
        'bind_tools(tool_choice="any")': any_tool,
        "a label, as text and as a class of one field": label,
        "use_responses_api=True: invoke, stream, structured": responses,
        "bind_tools without tool_choice is refused": lambda: refused(
            lambda: chat_model().bind_tools([Order]).invoke(ORDER_TEXT), "does not choose between text and tools"
        ),
    },
)
