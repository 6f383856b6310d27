"""The system message and what answers are held to are one and the same wherever a spec was stored."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.spec.parsing import parse_spec
from backend.domain.spec.task_prompt import MAX_SCHEMA_CHARS, answer_form, prompt_json, system_prompt
from tests.backend.domain.answers.json_worlds import shuffled
from tests.backend.domain.spec.test_outputs import json_document, json_output, text_document
from tests.backend.domain.spec.test_parsing import document


def test_a_label_task_names_its_labels() -> None:
    spec = parse_spec(document())
    assert system_prompt(spec).endswith("\nAnswer with one of these labels alone: refund | other")
    assert answer_form(spec) == {"type": "label", "labels": ["refund", "other"]}


def test_a_json_task_shows_its_schema_in_the_order_of_an_answer() -> None:
    spec = parse_spec(json_document())
    task, ask = system_prompt(spec).split("\n")
    assert task == "Extract the order."
    lead, _, text = ask.partition(": ")
    assert lead == "Answer with JSON alone that fits this schema"
    assert list(json.loads(text)["properties"]) == ["order", "lines", "note", "tags", "total"]


def test_a_large_schema_is_told_by_the_names_of_its_fields() -> None:
    inner = {"type": "object", "properties": {"sku": {"type": "string", "description": "x" * 900}}}
    schema = {"type": "object", "properties": {"b": {"type": "array", "items": inner}, "a": inner}}
    prompt = system_prompt(parse_spec(json_document(**json_output(schema=schema), examples=GOLD)))
    assert prompt.endswith("that has these fields: a, a.sku, b, b.sku")
    many = {"type": "object", "properties": {f"field{i:03}" + "x" * 80: {} for i in range(200)}}
    assert (
        len(system_prompt(parse_spec(json_document(**json_output(schema=many), examples=GOLD))))
        < MAX_SCHEMA_CHARS + 200
    )


GOLD: dict[str, Any] = {"inline": [{"input": f"x {i}", "output": {}} for i in range(80)]}


def test_a_text_task_is_the_task_alone() -> None:
    spec = parse_spec(text_document())
    assert prompt_json(spec) == {"system": "Extract the order.", "answer": {"type": "text"}, "max_new_tokens": 512}


@given(st.integers(0, 999))
def test_storage_that_shuffles_keys_changes_no_prompt(seed: int) -> None:
    spec, stored = parse_spec(json_document()), parse_spec(shuffled(json_document(), seed))
    assert system_prompt(stored) == system_prompt(spec)
    assert canonical_json(prompt_json(stored)) == canonical_json(prompt_json(spec))
