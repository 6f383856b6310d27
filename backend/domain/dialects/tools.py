"""The tool whose arguments are the answer: the form of an endpoint that ignores `response_format` and calls tools.

A tool's arguments are an object, so that a schema of anything else goes out in the next form. An object around it would
be a second shape of the same answer, and of each lesson about its schema.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

ANSWER_TOOL = "answer"
# What a vendor adds to the prompt where a tool is forced: 315 to 804 tokens, by Anthropic's model
# (https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview, a stored copy, read on 2026-11-26).
VENDOR_TOKENS = 804
BYTES_PER_TOKEN = 4
_DESCRIPTION = "Give the answer. Call this once, with all of the answer as its arguments."


def answer_tool(schema: object) -> dict[str, Any]:
    """The fields of a request that force one call, whose arguments follow `schema`; none where no object does.

    >>> answer_tool({"type": "object"})["tool_choice"]
    {'type': 'function', 'function': {'name': 'answer'}}
    >>> answer_tool({"type": "array"})
    {}
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return {}
    function = {"name": ANSWER_TOOL, "description": _DESCRIPTION, "parameters": schema}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": ANSWER_TOOL}},
    }


def schema_of_tool(body: Mapping[str, Any]) -> object:
    """The schema that a request's tool has, None without one."""
    tools = body.get("tools")
    return tools[0]["function"]["parameters"] if tools else None


def likely_tool_tokens(answer_schema: str) -> int:
    """Estimate what the tool of a schema, which is JSON text, adds to a prompt; 0 where it has none."""
    size = _definition_bytes(answer_schema)
    return VENDOR_TOKENS + math.ceil(size / BYTES_PER_TOKEN) if size else 0


def most_tool_tokens(answer_schema: str) -> int:
    """Bound the same: no tokenizer makes more tokens than bytes."""
    size = _definition_bytes(answer_schema)
    return VENDOR_TOKENS + size if size else 0


def _definition_bytes(answer_schema: str) -> int:
    tool = answer_tool(json.loads(answer_schema)) if answer_schema else {}
    return len(json.dumps(tool, ensure_ascii=False).encode()) if tool else 0
