"""The event stream in the OpenAPI document: a plain async view, which the generator cannot see."""

from typing import Any

from rest_framework import serializers as s

from backend.compiles.shapes import EventShape
from backend.rest.shapes import AnyField, Time

_PATH = "/v1/compiles/{compile}/events"
_TYPES: dict[type[AnyField], dict[str, Any]] = {
    s.IntegerField: {"type": "integer"},
    s.DictField: {"type": "object", "additionalProperties": True},
    Time: {"type": "string", "format": "date-time"},
}


def describe_events(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """drf-spectacular's post-processing hook."""
    properties = {name: _schema(field) for name, field in EventShape().fields.items()}
    properties["type"]["examples"] = ["step.progress"]
    event = {"type": "object", "required": list(properties), "properties": properties}
    page = {
        "type": "object",
        "required": ["object", "data", "has_more", "next_cursor"],
        "properties": {
            "object": {"type": "string", "enum": ["list"]},
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/CompileEvent"}},
            "has_more": {"type": "boolean"},
            "next_cursor": {"type": ["string", "null"], "description": "Send it as `after`."},
        },
    }
    result.setdefault("components", {}).setdefault("schemas", {})["CompileEvent"] = event
    result["paths"][_PATH] = {"get": _operation(page)}
    result["paths"] = dict(sorted(result["paths"].items()))
    return result


def _schema(field: AnyField) -> dict[str, Any]:
    enum = {"enum": list(field.choices)} if isinstance(field, s.ChoiceField) else {}
    description = {"description": field.help_text} if field.help_text else {}
    return _TYPES.get(type(field), {"type": "string"}) | enum | description


def _operation(page: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": "compiles_events",
        "description": (
            "The compile's events. As a JSON list, or with `Accept: text/event-stream` live: `id` is the event's "
            "number, and a reader that comes back with `Last-Event-ID` misses nothing and gets nothing twice. The "
            "stream ends after the compile does, or with `event: reconnect` after ten minutes. The types and their "
            "fields are at /docs/events."
        ),
        "parameters": [
            {"in": "path", "name": "compile", "schema": {"type": "string"}, "required": True},
            {
                "in": "query",
                "name": "after",
                "schema": {"type": "integer"},
                "description": "The number of the last event seen.",
            },
            {"in": "header", "name": "Last-Event-ID", "schema": {"type": "integer"}, "description": "As `after`."},
        ],
        "tags": ["compiles"],
        "security": [{"api_key": []}],
        "responses": {
            "200": {
                "description": "",
                "content": {"application/json": {"schema": page}, "text/event-stream": {"schema": {"type": "string"}}},
            }
        },
    }
