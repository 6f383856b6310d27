"""The system message that opens every chat of a generative task, and what its answers are held to: one text for the
training, the evaluation and every later call, so that they cannot differ.
"""

import json
from typing import Any

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.spec.defaults import answer_max_tokens, label_names
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput

MAX_SCHEMA_CHARS = 1_500  # a longer schema would crowd out the input; its fields' names stand for it


def system_prompt(spec: Spec) -> str:
    """The task in the customer's words and, for labels and json, what an answer looks like."""
    if isinstance(spec.output, LabelOutput):
        return f"{spec.task}\nAnswer with one of these labels alone: {' | '.join(label_names(spec))}"
    if isinstance(spec.output, JsonOutput):
        return f"{spec.task}\n{_schema_words(spec.output)}"
    return spec.task


def _schema_words(output: JsonOutput) -> str:
    schema = normal_schema(output.answer_schema)
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= MAX_SCHEMA_CHARS:
        return f"Answer with JSON alone that fits this schema: {text}"
    return f"Answer with JSON alone that has these fields: {', '.join(_names(schema))[:MAX_SCHEMA_CHARS]}"


def _names(part: Any, path: str = "") -> list[str]:
    """Every field's dotted name, in the order of the answer."""
    if not isinstance(part, dict):
        return []
    names: list[str] = []
    for name, field in part.get("properties", {}).items():
        names += [f"{path}{name}", *_names(field, f"{path}{name}.")]
    for inner in (part.get("items"), *part.get("anyOf", ()), *part.get("oneOf", ())):
        names += [name for name in _names(inner, path) if name not in names]
    return names


def answer_form(spec: Spec) -> dict[str, Any]:
    """Return what an answer is, as `EvaluateCausalJob.answer` and the artifact's prompt.json say it. The engine makes
    the constraint of a schema by `json_schemas.decoding_schema`, because the order of keys does not survive storage."""
    if isinstance(spec.output, JsonOutput):
        return {"type": "json", "schema": spec.output.answer_schema}
    if isinstance(spec.output, LabelOutput):
        return {"type": "label", "labels": label_names(spec)}
    return {"type": "text"}


def prompt_json(spec: Spec) -> dict[str, Any]:
    """The member prompt.json of a generative artifact."""
    return {
        "system": system_prompt(spec),
        "answer": answer_form(spec),
        "max_new_tokens": answer_max_tokens(spec),
    }
