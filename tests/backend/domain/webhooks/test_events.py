"""The catalogue, and that the page and the OpenAPI document say the same."""

import json
import re
from pathlib import Path

import pytest

from backend.domain.lifecycle import TERMINAL, CompileStatus
from backend.domain.webhooks.events import (
    CATALOGUE,
    MAX_BODY,
    EventEntry,
    EventType,
    frozen_body,
    known_patterns,
    matches,
)
from backend.webhooks.openapi import describe_webhooks

PAGE = (Path(__file__).parents[4] / "docs" / "webhooks.md").read_text()


def test_every_type_has_one_entry() -> None:
    assert [entry.type for entry in CATALOGUE] == list(EventType)


def test_the_page_lists_the_catalogue_word_for_word() -> None:
    table = PAGE.partition("| type | what happened |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| `{entry.type.value}` | {entry.says} |" for entry in CATALOGUE]


def test_openapi_has_a_webhook_of_each_type_with_its_example() -> None:
    document = describe_webhooks({})["webhooks"]
    assert list(document) == [type.value for type in EventType]
    for entry in CATALOGUE:
        body = document[entry.type.value]["post"]["requestBody"]["content"]["application/json"]
        assert body["example"] == entry.body()
        assert body["schema"]["properties"]["type"]["const"] == entry.type.value


def test_the_example_on_the_page_is_the_catalogues() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = json.loads(text)
    whole = next(entry.body() for entry in CATALOGUE if entry.type == shown["type"])
    assert shown["timestamp"] == whole["timestamp"]
    assert shown["data"]["object"].items() <= whole["data"]["object"].items()


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.type.value)
def test_an_example_is_a_body_below_the_limit(entry: EventEntry) -> None:
    body = entry.body()
    data = frozen_body(entry.type, body["timestamp"], body["data"])
    assert json.loads(data) == body
    assert len(data) < MAX_BODY
    assert body["data"]["object"]["object"]


def test_an_object_that_is_too_large_comes_thin_with_its_address() -> None:
    whole = {"id": "cmp_1", "object": "compile", "status": "failed", "url": "https://kolm.example/x"}
    whole["gate"] = "x" * 30_000
    data = frozen_body("compile.failed", "2026-11-22T10:00:00.000Z", {"object": whole})
    assert len(data) < MAX_BODY
    thin = {name: whole[name] for name in ("id", "object", "status", "url")}
    assert json.loads(data)["data"]["object"] == thin | {"truncated": True}


def test_every_end_of_a_compile_has_an_event() -> None:
    from backend.compiles.notices import EVENT_OF

    assert set(EVENT_OF) == set(CompileStatus)
    assert all(EVENT_OF[status] for status in TERMINAL)


def test_patterns_match_types_nouns_and_everything() -> None:
    assert all(matches(["*"], type) for type in EventType)
    assert [type.value for type in EventType if matches(["artifact.*"], type)] == [
        "artifact.published",
        "artifact.revoked",
    ]
    assert [type.value for type in EventType if matches(["budget.reached"], type)] == ["budget.reached"]
    assert {"*", "compile.*", "webhook_endpoint.disabled"} <= set(known_patterns())
