"""The `webhooks:` section of the OpenAPI document, made of the catalogue."""

from typing import Any

from backend.domain.webhooks.events import CATALOGUE, EventEntry

_HEADERS = {
    "webhook-id": "The event's id, the same at every attempt: what makes a repeated delivery known.",
    "webhook-timestamp": "Unix seconds of this attempt.",
    "webhook-signature": "Signatures of `id.timestamp.body`, separated by spaces: `v1,...` or `v1a,...`.",
}


def describe_webhooks(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """drf-spectacular's post-processing hook."""
    result["webhooks"] = {entry.type.value: {"post": _operation(entry)} for entry in CATALOGUE}
    return result


def _operation(entry: EventEntry) -> dict[str, Any]:
    kind = entry.object["object"]
    body = {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": {"type": "string", "const": entry.type.value},
            "timestamp": {"type": "string", "format": "date-time"},
            "data": {
                "type": "object",
                "required": ["object"],
                "properties": {
                    "object": {
                        "type": "object",
                        "required": ["object"],
                        "properties": {"object": {"type": "string", "const": kind}},
                    },
                    "test": {"type": "boolean", "description": "Present in test sends alone."},
                },
            },
        },
    }
    return {
        "operationId": f"webhook_{entry.type.value.replace('.', '_')}",
        "description": entry.says,
        "tags": ["webhooks"],
        "parameters": [
            {"in": "header", "name": name, "required": True, "description": says, "schema": {"type": "string"}}
            for name, says in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": body, "example": entry.body()}},
        },
        "responses": {"2XX": {"description": "Received. Anything else is tried again; 410 disables the endpoint."}},
    }
