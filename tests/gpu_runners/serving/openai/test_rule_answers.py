"""Which chats the artifact's rules may answer, and how such an answer looks."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from backend.domain.rules.reading import read_rules
from gpu_runners.artifacts.rules_first import RuleAnswer, RulesFirst
from gpu_runners.models.protocol import Counts, Delta, DraftKind, FinishReason, GenerationRequest, SourceCount
from gpu_runners.serving.openai.answer_forms import asked_form
from gpu_runners.serving.openai.app import make_app
from gpu_runners.serving.openai.bodies.chats import chat_call
from gpu_runners.serving.openai.responder import Refusal, Served
from gpu_runners.serving.openai.rule_answers import rule_answer
from tests.gpu_runners.serving.small_adapters import ScriptedEngine
from tests.gpu_runners.small_base import TEMPLATE
from tests.gpu_runners.small_generative import ANSWERS
from tests.gpu_runners.small_packs import RULED, json_rules

PROMPT = {"system": "of tea", "answer": ANSWERS["json"], "max_new_tokens": 40}
ASKED = [{"role": "user", "content": "three teas"}]
OWN = {"role": "system", "content": "of tea"}
TOOL = {"type": "function", "function": {"name": "order"}}
SCHEMA_FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}


class Words:
    """A tokenizer of one token a character, with a template."""

    chat_template = TEMPLATE
    all_special_tokens: tuple[str, ...] = ()
    special_tokens_map: Mapping[str, str] = {}

    def get_chat_template(self, **_: Any) -> str:
        return "{% for message in messages %}{{ message['content'] }}{% endfor %}"

    def __call__(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[1] * max(1, len(text)) for text in texts]}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [1] * max(1, len(text))


class CountingEngine(ScriptedEngine):
    """Two tokens, one of them drafted by a pack."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        by_source = (SourceCount(kind=DraftKind.PACK, drafted=3, accepted=1),)
        counts = Counts(completion_tokens=2, drafted_tokens=3, accepted_tokens=1, steps=1, by_source=by_source)
        yield Delta(text="model", finish_reason=FinishReason.STOP, counts=counts)


class OneModel:
    def __init__(self, served: Served) -> None:
        self.served = served

    async def admit(self, headers: Any) -> str:
        return ""

    async def resolve(self, model: str, headers: Any) -> Served:
        return replace(self.served, model=model)

    async def models(self, headers: Any) -> list[dict[str, Any]]:
        return []


@pytest.fixture
def noted() -> list[RuleAnswer]:
    return []


@pytest.fixture
def served(noted: list[RuleAnswer]) -> Served:
    from tests.gpu_runners.serving.small_adapters import paper_base

    base = paper_base()
    object.__setattr__(base, "tokenizer", Words())
    return Served(
        engine=CountingEngine(),
        base=base,
        adapter=None,
        prompt=PROMPT,
        model="orders",
        rules=RulesFirst(read_rules(json_rules("three")), labels=None),
        note_rule=noted.append,
    )


@pytest.fixture
def app(served: Served) -> Starlette:
    return make_app(OneModel(served))


def answered(served: Served, **changed: Any) -> RuleAnswer | None:
    call = chat_call({"model": "orders", "messages": ASKED} | changed)
    return rule_answer(call, served, asked_form(call, served.prompt["answer"]))


def send(app: Starlette, **changed: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here") as client:
            body = {"model": "orders", "messages": ASKED} | changed
            return await client.post("/v1/chat/completions", json=body)

    return asyncio.run(go())


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"messages": [OWN, *ASKED]},
        {"temperature": 0},
        {"response_format": {"type": "json_object"}},
        {"max_tokens": 40},
        {"max_tokens": len(RULED) + 1},
        {"seed": 7, "n": 3, "user": "u"},
    ],
)
def test_what_the_rules_were_made_for_they_answer(served: Served, changed: dict[str, Any]) -> None:
    answer = answered(served, **changed)
    assert answer is not None
    assert answer.text == RULED


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": [{"role": "user", "content": "two teas"}]},
        {"messages": [{"role": "system", "content": "of coffee"}, *ASKED]},
        {"messages": [*ASKED, {"role": "assistant", "content": "{}"}, *ASKED]},
        {"messages": [OWN, OWN, *ASKED]},
        {"temperature": 0.7},
        {"logprobs": True},
        {"stop": ["}"]},
        {"frequency_penalty": 0.5},
        {"presence_penalty": -0.5},
        {"response_format": {"type": "text"}},
        {"response_format": SCHEMA_FORM},
        {"max_tokens": len(RULED)},
        {"tools": [TOOL]},
    ],
)
def test_what_asks_the_model_for_something_else_the_model_answers(served: Served, changed: dict[str, Any]) -> None:
    assert answered(served, **changed) is None


def test_an_artifact_without_rules_asks_its_model(served: Served) -> None:
    assert answered(replace(served, rules=None)) is None


BESIDE = {
    "rule": 0,
    "confidence": 0.96,
    "fields": [{"path": f"/{name}", "start": None, "end": None, "confidence_ppm": 960_000} for name in ("size", "n")],
}


def test_a_rules_answer_says_so_and_uses_no_token(app: Starlette, served: Served, noted: list[RuleAnswer]) -> None:
    whole = send(app, n=2).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == [RULED, RULED]
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"stop"}
    assert whole["kolm"] == BESIDE
    assert whole["usage"]["total_tokens"] == 0
    assert len(noted) == 2, "each choice is metered"
    assert served.engine.requests == []  # type: ignore[attr-defined]


def test_a_stream_of_a_rules_answer_is_one_chunk(app: Starlette) -> None:
    text = send(app, stream=True, stream_options={"include_usage": True}).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunk, usage = map(json.loads, events[:-1])
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": RULED}
    assert (chunk["kolm"], usage["usage"]["total_tokens"]) == (BESIDE, 0)


def test_a_rules_answer_that_cannot_be_metered_is_not_given(app: Starlette, served: Served) -> None:
    def full(_: RuleAnswer) -> None:
        raise Refusal(503, "cannot_meter", "This server cannot note what is used.", retry_after_s=10.0)

    full_app = make_app(OneModel(replace(served, note_rule=full)))
    for stream in (False, True):
        assert send(full_app, stream=stream).status_code == 503


def test_usage_tells_what_was_drafted_and_by_whom(app: Starlette) -> None:
    whole = send(app, messages=[{"role": "user", "content": "two teas"}], n=2).json()
    assert "kolm" not in whole
    assert whole["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": 2,
        "rejected_prediction_tokens": 4,
    }
    assert whole["usage"]["kolm"] == {"steps": 2, "drafts": {"pack": {"drafted": 6, "accepted": 2}}}
