"""The parts of the OpenAPI document that no view states: which addresses are public, and how errors look."""

from typing import Any

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "An error (RFC 9457). `code` is stable; `errors` names the places.",
    "required": [
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "code",
        "errors",
        "request_id",
        "retryable",
        "doc_url",
    ],
    "properties": {
        "type": {"type": "string", "format": "uri", "description": "urn:kolm:error: and the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "RFC 6901; empty for the whole body."},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
        "request_id": {"type": ["string", "null"]},
        "retryable": {"type": "boolean"},
        "doc_url": {"type": "string", "format": "uri", "description": "What the code means and what to do."},
    },
}


def public_endpoints(endpoints: list[tuple[str, str, str, Any]], **_: Any) -> list[tuple[str, str, str, Any]]:
    """The runners' addresses are between our own processes and change with them."""
    return [endpoint for endpoint in endpoints if not endpoint[0].startswith("/internal/")]


def describe_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Any operation may answer any problem: which codes there are is in docs/errors.md, their shape is here."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = _PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path in result["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"]["default"] = {"description": "A problem.", "content": content}
    return result
