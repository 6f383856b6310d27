"""OpenAI's addresses in the OpenAPI document: plain async views, which the generator cannot see. Their bodies are
OpenAI's; the properties named here are those that this installation itself reads."""

from typing import Any

_SHARED: dict[str, Any] = {
    "model": {"type": "string", "description": "A deployment's name or id, or an artifact's id."},
    "stream": {
        "type": "boolean",
        "description": "Server-sent events, ended by `data: [DONE]`; of a response by `response.completed`.",
    },
    "user": {"type": "string", "description": "Who asks: the same user always meets the same side of a canary."},
}
_BOUND: dict[str, Any] = {"max_tokens": {"type": "integer", "minimum": 1}}
_RESPONSE: dict[str, Any] = {
    "input": {
        "description": "A text, or a list of messages. Nothing is stored: the whole conversation is sent each time.",
        "oneOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        ],
    },
    "instructions": {"type": "string"},
    "max_output_tokens": {"type": "integer", "minimum": 1},
}
_STICKY = {
    "in": "header",
    "name": "X-Kolm-Sticky",
    "schema": {"type": "string"},
    "description": "As `user`, and before it: a session, say.",
}
_MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string", "const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "kolm": {
            "type": "object",
            "required": ["artifact", "task_type", "student"],
            "properties": {
                "deployment": {"type": "string", "description": "Of a deployment: its id."},
                "artifact": {"type": "string", "description": "What answers."},
                "task_type": {"type": "string", "enum": ["label", "json", "text"]},
                "student": {"type": "string", "enum": ["causal", "label", "spans", ""]},
            },
        },
    },
}
_MODELS = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {
        "object": {"type": "string", "const": "list"},
        "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    },
}


def describe_gateway(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """drf-spectacular's post-processing hook."""
    result.setdefault("components", {}).setdefault("schemas", {})["Model"] = _MODEL
    _require_inputs(result)
    chat = _BOUND | {"messages": {"type": "array", "items": {"type": "object", "additionalProperties": True}}}
    paths = result["paths"]
    paths["/v1/chat/completions"] = {"post": _asking("chat_completions", chat, ["model", "messages"])}
    prompt = _BOUND | {"prompt": {"type": "string"}}
    paths["/v1/completions"] = {"post": _asking("completions", prompt, ["model", "prompt"])}
    paths["/v1/responses"] = {"post": _asking("responses", _RESPONSE, ["model", "input"])}
    listed = "What may be named as `model`: the tenant's deployments that answer, then its artifacts."
    paths["/v1/models"] = {"get": _reading("models_list", listed, _MODELS)}
    model = {"in": "path", "name": "model", "schema": {"type": "string"}, "required": True}
    one = _reading("models_get", "One of them.", {"$ref": "#/components/schemas/Model"}, model)
    paths["/v1/models/{model}"] = {"get": one}
    result["paths"] = dict(sorted(paths.items()))
    return result


def _require_inputs(result: dict[str, Any]) -> None:
    """The body of a run has `inputs` or, in its place, `input`: a serializer can only say that neither is required."""
    result["components"]["schemas"]["RunRequestRequest"]["oneOf"] = [{"required": ["inputs"]}, {"required": ["input"]}]
    result["paths"]["/v1/artifacts/{artifact}/run"]["post"]["requestBody"]["required"] = True


def _asking(name: str, own: dict[str, Any], required: list[str]) -> dict[str, Any]:
    body = {"type": "object", "required": required, "properties": {**_SHARED, **own}, "additionalProperties": True}
    answers = {
        "application/json": {"schema": {"type": "object", "additionalProperties": True}},
        "text/event-stream": {"schema": {"type": "string"}},
    }
    return {
        "operationId": name,
        "description": (
            "OpenAI's address of this name, answered by a deployment or an artifact. The body goes to the server as it "
            "is but for `model`, and the answer comes as the server sends it. An error is a problem document with "
            "OpenAI's `error` in it; docs/serving.md has the rest."
        ),
        "parameters": [_STICKY],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "tags": [name.partition("_")[0]],
        "security": [{"api_key": []}],
        "responses": {"200": {"description": "", "content": answers}},
    }


def _reading(name: str, says: str, schema: dict[str, Any], *parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "description": says,
        "parameters": list(parameters),
        "tags": ["models"],
        "security": [{"api_key": []}],
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": schema}}}},
    }
