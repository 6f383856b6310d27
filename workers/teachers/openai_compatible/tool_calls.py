"""Reads the call whose arguments are an answer, as hostile input: the first call counts, where it is of the tool that
was asked for."""

import json
from typing import Any

from backend.domain.dialects.tools import ANSWER_TOOL
from workers.teachers.openai_compatible.logprobs import BadAnswer


def read_call(message: dict[str, Any], *, is_cut: bool) -> str | None:
    """The arguments of a message's call, as JSON text; None where it has no call of ours, and its content is the
    answer. Raises BadAnswer for arguments that are neither text nor an object.

    Vendors parse a call and write it anew, so that arguments that were cut may be closed JSON without their end. Of a
    call that is cut the last brace goes: half an answer is none.
    """
    calls = message.get("tool_calls")
    first = calls[0] if isinstance(calls, list) and calls else None
    function = first.get("function") if isinstance(first, dict) else None
    if not isinstance(function, dict) or function.get("name") != ANSWER_TOOL:
        return None
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = _dump(arguments)
    if not isinstance(arguments, str):
        raise BadAnswer("a call's arguments are neither text nor an object")
    if not arguments.strip():
        return None
    return arguments.rstrip().removesuffix("}") if is_cut else arguments


def _dump(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except RecursionError as deep:
        raise BadAnswer("a call's arguments are nested too deep") from deep
