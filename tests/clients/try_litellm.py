"""LiteLLM: its `openai/` provider with an `api_base`."""

import asyncio
import json
from typing import Any, Literal

from tests.clients.trying import ORDER, ORDER_TEXT, equal, prepare, refused, report

WORK = prepare()

import litellm  # noqa: E402
from pydantic import BaseModel  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True


class Order(BaseModel):
    item: str
    city: str
    urgency: Literal["soon", "someday"]


TOOL = {"type": "function", "function": {"name": "Order", "parameters": Order.model_json_schema()}}
AT: dict[str, Any] = {"model": "openai/orders", "api_base": WORK["orders"], "api_key": "none", "max_retries": 0}
ASKED: dict[str, Any] = AT | {"messages": [{"role": "user", "content": ORDER_TEXT}]}


def completion() -> None:
    answer = litellm.completion(**ASKED)
    equal(json.loads(answer.choices[0].message.content), ORDER)
    assert answer.usage.prompt_tokens > 0


def stream() -> None:
    chunks = litellm.completion(**ASKED, stream=True)
    equal(json.loads("".join(one.choices[0].delta.content or "" for one in chunks)), ORDER)


def in_async() -> None:
    answer = asyncio.run(litellm.acompletion(**ASKED))
    equal(json.loads(answer.choices[0].message.content), ORDER)


def schema() -> None:
    equal(json.loads(litellm.completion(**ASKED, response_format=Order).choices[0].message.content), ORDER)


def tool(choice: Any) -> None:
    (call,) = litellm.completion(**ASKED, tools=[TOOL], tool_choice=choice).choices[0].message.tool_calls
    equal((call.function.name, json.loads(call.function.arguments)), ("Order", ORDER))


def label() -> None:
    messages = [{"role": "user", "content": WORK["mail"]}]
    at = AT | {"model": f"openai/{WORK['mails_model']}", "api_base": WORK["mails"]}
    answer = litellm.completion(**at, messages=messages, logprobs=True, top_logprobs=2).choices[0]
    equal(answer.message.content, WORK["label"])
    equal(len(answer.logprobs.content[0].top_logprobs), 2)


def responses() -> None:
    equal(json.loads(litellm.responses(**AT, input=ORDER_TEXT).output_text), ORDER)


report(
    "litellm",
    {
        "completion": completion,
        "completion(stream=True)": stream,
        "acompletion": in_async,
        "completion(response_format=a class)": schema,
        'completion(tools=..., tool_choice="required")': lambda: tool("required"),
        "completion(tools=..., tool_choice=a function)": lambda: tool(
            {"type": "function", "function": {"name": "Order"}}
        ),
        "a label with logprobs": label,
        "responses": responses,
        "completion(n=2) is refused": lambda: refused(lambda: litellm.completion(**ASKED, n=2), "one answer"),
    },
)
