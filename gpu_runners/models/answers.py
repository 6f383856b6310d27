"""The constraint on an answer of a task: the form that jobs and prompt.json give, as a constraint."""

import json
from collections.abc import Mapping
from typing import Any

from backend.domain.answers.json_schemas import decoding_schema
from gpu_runners.errors import JobFailed
from gpu_runners.models.protocol import Constraint, ConstraintKind


def constraint_of(answer: Mapping[str, Any]) -> Constraint | None:
    """None: free text. Raises JobFailed(invalid_artifact) for a form that nobody writes."""
    match answer:
        case {"type": "text"}:
            return None
        case {"type": "json", "schema": dict(schema)}:
            return schema_constraint(schema)
        case {"type": "label", "labels": [str(), *_] as labels}:
            return Constraint(kind=ConstraintKind.CHOICES, value=json.dumps(labels, ensure_ascii=False))
    raise JobFailed(f"An answer of the type {str(answer.get('type'))[:40]!r} is not known.", code="invalid_artifact")


def schema_constraint(schema: Mapping[str, Any]) -> Constraint:
    """The constraint of a vetted schema. Fields come in the order that training wrote them in."""
    value = json.dumps(decoding_schema(schema), ensure_ascii=False)
    return Constraint(kind=ConstraintKind.JSON_SCHEMA, value=value)
