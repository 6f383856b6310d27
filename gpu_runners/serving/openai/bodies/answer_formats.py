"""The form of an answer that a body asks for: `response_format` of a chat or completion, `text.format` of a
response."""

from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_schemas import check_schema
from gpu_runners.models.answers import schema_constraint
from gpu_runners.models.protocol import Constraint, ConstraintKind
from gpu_runners.serving.openai.bodies.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFormat:
    """`kind` is text, json_object or json_schema, None where nothing was asked; `schema` is vetted, as it was sent."""

    kind: str | None = None
    constraint: Constraint | None = None
    schema: dict[str, Any] | None = None


def response_format(fields: Fields) -> AskedFormat:
    """Raises BadRequest."""
    value = fields.take("response_format")
    if value is None:
        return AskedFormat()
    if not isinstance(value, dict):
        raise fields.bad("response_format", "is an object")
    inner = Fields(value, inside="response_format.")
    kind = _kind(inner)
    described = inner.take("json_schema") if kind == "json_schema" else None
    inner.end()
    if kind != "json_schema":
        return _schemaless(kind)
    if not isinstance(described, dict):
        raise inner.bad("json_schema", 'is {"name": ..., "schema": {...}}')
    return _schema_format(Fields(described, inside="response_format.json_schema."))


def text_format(fields: Fields) -> AskedFormat:
    """`text` of a response. Raises BadRequest."""
    value = fields.take("text")
    if value is None:
        return AskedFormat()
    if not isinstance(value, dict):
        raise fields.bad("text", 'is an object such as {"format": {"type": "text"}}')
    around = Fields(value, inside="text.")
    format = around.take("format")
    around.take_fixed("verbosity", "medium")
    around.end()
    if format is None:
        return AskedFormat()
    if not isinstance(format, dict):
        raise around.bad("format", "is an object")
    inner = Fields(format, inside="text.format.")
    kind = _kind(inner)
    if kind == "json_schema":
        return _schema_format(inner)
    inner.end()
    return _schemaless(kind)


def _kind(fields: Fields) -> str:
    kind = fields.text("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise fields.bad("type", "is text, json_object or json_schema")
    return kind


def _schemaless(kind: str) -> AskedFormat:
    constraint = Constraint(kind=ConstraintKind.JSON_OBJECT) if kind == "json_object" else None
    return AskedFormat(kind=kind, constraint=constraint)


def _schema_format(fields: Fields) -> AskedFormat:
    """A schema with its name and description, which say nothing to a model here."""
    fields.text("name")
    fields.text("description")
    fields.flag("strict")
    schema = fields.take("schema")
    fields.end()
    problems = check_schema(schema)
    if problems:
        where = f" at {problems[0].pointer}" if problems[0].pointer else ""
        raise fields.bad("schema", f"cannot be decoded to{where}: {problems[0].message[:300]}", code="bad_schema")
    assert isinstance(schema, dict)
    return AskedFormat(kind="json_schema", constraint=schema_constraint(schema), schema=schema)
