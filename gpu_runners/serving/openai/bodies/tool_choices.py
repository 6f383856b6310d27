"""The tools of a chat's body: which functions there are, and whether one of them must be called."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.answers.json_schemas import check_schema
from gpu_runners.serving.openai.bodies.fields import Fields

MAX_TOOLS = 128
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that may be called in place of an answer; `parameters` is its vetted schema."""

    name: str
    parameters: Mapping[str, Any]


def read_tools(fields: Fields) -> tuple[tuple[Any, ...], tuple[Function, ...]]:
    """(tools, functions of which one must be called): no tools where `tool_choice` is none, no functions where it
    leaves the choice to the model. Raises BadRequest."""
    tools = fields.take("tools")
    choice = fields.take("tool_choice")
    fields.flag("parallel_tool_calls")  # an answer never has more calls than its model makes: one, where one is forced
    tools = _check_list([] if tools is None else tools, fields)
    wanted = _chosen_name(choice, fields)
    if wanted is None:
        return () if choice == "none" else tuple(tools), ()
    if not tools:
        raise fields.bad("tool_choice", "needs `tools` to choose from")
    chosen = [tool["function"] for tool in tools if wanted in ("", tool["function"]["name"])]
    if not chosen:
        raise fields.bad("tool_choice", f"names the function {wanted[:80]!r}, which is not among `tools`")
    return tuple(tools), tuple(_function(one, fields) for one in chosen)


def _check_list(tools: Any, fields: Fields) -> list[Any]:
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS:
        raise fields.bad("tools", f"is a list of at most {MAX_TOOLS} functions")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise fields.bad("tools", 'has entries like {"type": "function", "function": {"name": ...}}')
    return tools


def _chosen_name(choice: Any, fields: Fields) -> str | None:
    """The name of the function that must be called, "" for any of them; None where none must."""
    if choice in (None, "auto", "none"):
        return None
    if choice == "required":
        return ""
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise fields.bad(
            "tool_choice",
            'is auto, none, required or {"type": "function", "function": {"name": ...}}',
            code="unsupported_parameter",
        )
    return name


def _function(function: Mapping[str, Any], fields: Fields) -> Function:
    """Only a function that must be called has a schema that answers are held to."""
    parameters = function.get("parameters")
    parameters = _NO_PARAMETERS if parameters in (None, {}) else parameters
    problems = check_schema(parameters)
    if problems:
        where = f" at {problems[0].pointer}" if problems[0].pointer else ""
        why = f"has parameters of {function['name'][:80]!r} that cannot be answered{where}: "
        raise fields.bad("tools", why + problems[0].message[:300], code="bad_schema")
    return Function(name=function["name"], parameters=parameters)
