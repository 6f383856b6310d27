"""instructor: classes out of answers, in its modes."""

import asyncio
from typing import Any, Literal

from tests.clients.trying import ORDER, ORDER_TEXT, equal, prepare, refused, report

WORK = prepare()

import instructor  # noqa: E402
from openai import AsyncOpenAI, OpenAI  # noqa: E402
from pydantic import BaseModel  # noqa: E402


class Order(BaseModel):
    item: str
    city: str
    urgency: Literal["soon", "someday"]


class Mail(BaseModel):
    topic: str


class Weather(BaseModel):
    place: str


ASKED: dict[str, Any] = {"model": "orders", "messages": [{"role": "user", "content": ORDER_TEXT}], "max_retries": 0}
MAIL: dict[str, Any] = {
    "model": WORK["mails_model"],
    "messages": [{"role": "user", "content": WORK["mail"]}],
    "max_retries": 0,
}


def client(mode: str = "", *, place: str = "orders") -> Any:
    made = OpenAI(base_url=WORK[place], api_key="none", max_retries=0)
    return instructor.from_openai(made, mode=instructor.Mode[mode]) if mode else instructor.from_openai(made)


def of_mode(mode: str) -> None:
    equal(client(mode).create(**ASKED, response_model=Order).model_dump(), ORDER)


def partial() -> None:
    parts = list(client().create_partial(**ASKED, response_model=Order))
    equal(parts[-1].model_dump(), ORDER)


def in_async() -> None:
    made = instructor.from_openai(AsyncOpenAI(base_url=WORK["orders"], api_key="none", max_retries=0))
    equal(asyncio.run(made.create(**ASKED, response_model=Order)).model_dump(), ORDER)


def label() -> None:
    for mode in ("", "JSON_SCHEMA"):
        equal(client(mode, place="mails").create(**MAIL, response_model=Mail).topic, WORK["label"])


report(
    "instructor",
    {
        "the default mode (TOOLS)": lambda: of_mode(""),
        "Mode.TOOLS_STRICT": lambda: of_mode("TOOLS_STRICT"),
        "Mode.JSON": lambda: of_mode("JSON"),
        "Mode.JSON_SCHEMA": lambda: of_mode("JSON_SCHEMA"),
        "Mode.MD_JSON": lambda: of_mode("MD_JSON"),
        "create_partial": partial,
        "AsyncOpenAI": in_async,
        "a label as a class of one field": label,
        "a class of another task is refused": lambda: refused(
            lambda: client().create(**ASKED, response_model=Weather), "do not all fit the parameters"
        ),
        "Mode.RESPONSES_TOOLS is refused": lambda: refused(
            lambda: client("RESPONSES_TOOLS").create(**ASKED, response_model=Order), "called at /v1/chat/completions"
        ),
    },
)
