"""Chats, stored completions and traces as rows of `input` and `output`: fine-tuning files and stored completions of
OpenAI, exports of Langfuse and LangSmith, ShareGPT. What is looked at is how a value is built.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.source_data.records import Record, RowProblem

INPUT, OUTPUT, SYSTEM = "input", "output", "system"
_ROLES = {"human": "user", "ai": "assistant", "gpt": "assistant", "developer": "system", "bot": "assistant"}
_LOOKED_AT = 50
_TRACE_KEYS = frozenset(
    {
        "traceId",
        "trace_id",
        "observationId",
        "sessionId",
        "session_id",
        "totalCost",
        "latency",
        "bookmarked",
        "htmlPath",
    }
)
_OUTPUT_KEYS = ("output", "answer", "content", "text", "result", "response", "completion", "label", "prediction")
_INPUT_KEYS = ("input", "question", "query", "prompt", "text", "content", "message")


class RecordShape(StrEnum):
    TABLE = "table"
    CHATS = "chats"
    COMPLETIONS = "stored completions"
    TRACES = "Langfuse traces"
    RUNS = "LangSmith runs or examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    role: str
    text: str


def find_shape(records: tuple[Record, ...]) -> RecordShape:
    """The shape of most of the first rows."""
    shapes = Counter(_shape_of(record.values) for record in records[:_LOOKED_AT])
    return shapes.most_common(1)[0][0] if shapes else RecordShape.TABLE


def _shape_of(row: Mapping[str, Any]) -> RecordShape:
    if "choices" in row or row.get("object") == "chat.completion" or _body(row) is not None:
        return RecordShape.COMPLETIONS
    if _turns(row.get("messages")) or _turns(row.get("conversations")):
        return RecordShape.CHATS
    if "inputs" in row and "outputs" in row:
        return RecordShape.RUNS
    if INPUT in row and OUTPUT in row and (_TRACE_KEYS & row.keys() or _is_built(row[INPUT])):
        return RecordShape.TRACES
    return RecordShape.TABLE


def _is_built(value: Any) -> bool:
    decoded = _decode(value)
    return isinstance(decoded, dict | list) and bool(_turns(decoded) or _turns(_messages_in(decoded)))


def as_rows(records: tuple[Record, ...], shape: RecordShape) -> Iterator[Record | RowProblem]:
    """Each record as a row of the columns `input`, `output` and `system`, with its other texts beside them."""
    for record in records:
        pair = _pair_of(record.values, shape)
        if pair is None or not pair[INPUT]:
            reason = "has no message of a user"
            if shape is RecordShape.COMPLETIONS:
                reason = "has no messages: export stored completions with what was asked, not the answers alone"
            yield RowProblem(number=record.number, reason=reason, excerpt=str(dict(record.values))[:120])
        else:
            beside = {
                name: value
                for name, value in record.values.items()
                if name not in pair and isinstance(value, str | int | float)
            }
            yield Record(number=record.number, values=pair | beside)


def _pair_of(row: Mapping[str, Any], shape: RecordShape) -> dict[str, str] | None:
    match shape:
        case RecordShape.CHATS:
            return _of_turns(_turns(row.get("messages")) or _turns(row.get("conversations")))
        case RecordShape.COMPLETIONS:
            body = _body(row) or row
            asked = next((row[key] for key in ("messages", "input", "request", "prompt") if row.get(key)), None)
            return _of_sides(asked, {"choices": body.get("choices")})
        case RecordShape.TRACES:
            return _of_sides(row.get("input"), row.get("output"))
        case RecordShape.RUNS:
            return _of_sides(row.get("inputs"), row.get("outputs"))
        case RecordShape.TABLE:
            return None


def _body(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The answer inside a line of OpenAI's batch output."""
    response = row.get("response")
    body = response.get("body") if isinstance(response, dict) else None
    return body if isinstance(body, dict) and "choices" in body else None


def _of_turns(turns: list[Turn]) -> dict[str, str] | None:
    """The last answer, and what led to it."""
    last = max((n for n, turn in enumerate(turns) if turn.role == "assistant" and turn.text), default=None)
    before = turns if last is None else turns[:last]
    return _row(before, "" if last is None else turns[last].text)


def _row(before: list[Turn], answer: str) -> dict[str, str]:
    """The one message of a user; of several turns all of them, each with its role."""
    spoken = [turn for turn in before if turn.role != "system" and turn.text]
    users = [turn for turn in spoken if turn.role == "user"]
    text = (
        users[0].text if len(spoken) == len(users) == 1 else "\n".join(f"{turn.role}: {turn.text}" for turn in spoken)
    )
    system = "\n".join(turn.text for turn in before if turn.role == "system")
    return {INPUT: text if users else "", OUTPUT: answer, SYSTEM: system}


def _of_sides(asked: Any, answered: Any) -> dict[str, str]:
    asked, answered = _decode(asked), _decode(answered)
    turns = _turns(asked) or _turns(_messages_in(asked))
    answer = _answer(answered)
    if turns:
        return _row(turns, answer)
    return {INPUT: _plain(asked, _INPUT_KEYS), OUTPUT: answer, SYSTEM: ""}


def _messages_in(value: Any) -> Any:
    """The messages inside an object, also where they lie in a list of their own, as LangChain batches them."""
    if isinstance(value, dict):
        value = value.get("messages", value.get("input"))
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value


def _answer(value: Any) -> str:
    if isinstance(value, dict):
        if isinstance(choices := value.get("choices"), list) and choices and isinstance(choices[0], dict):
            turn = _turn(choices[0].get("message"))
            return turn.text if turn else str(choices[0].get("text") or "")
        if isinstance(generations := value.get("generations"), list):
            return _first_generation(generations)
        if turns := _turns(value.get("messages")):
            return turns[-1].text
        if (turn := _turn(value)) is not None:
            return turn.text
    if turns := _turns(value):
        return turns[-1].text
    return _plain(value, _OUTPUT_KEYS)


def _first_generation(generations: Any) -> str:
    while isinstance(generations, list) and generations:
        generations = generations[0]
    return str(generations.get("text") or "") if isinstance(generations, dict) else ""


def _plain(value: Any, keys: tuple[str, ...]) -> str:
    """A text; of an object with one value, or with one under a key that says so, that value; otherwise JSON."""
    if value is None:
        return ""
    if isinstance(value, dict):
        known = [key for key in keys if key in value]
        if len(value) == 1 or (len(known) == 1 and not isinstance(value[known[0]], dict)):
            return _plain(value[known[0]] if known else next(iter(value.values())), keys)
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _decode(value: Any) -> Any:
    """A cell of a CSV export holds JSON as text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _turns(value: Any) -> list[Turn]:
    value = _decode(value)
    if not isinstance(value, list):
        return []
    turns = [_turn(message) for message in value]
    return [] if any(turn is None for turn in turns) else [turn for turn in turns if turn is not None]


def _turn(message: Any) -> Turn | None:
    """One message: OpenAI's, ShareGPT's (from, value), or LangChain's (kwargs, or type and data)."""
    if not isinstance(message, dict):
        return None
    if isinstance(kwargs := message.get("kwargs"), dict) and isinstance(message.get("id"), list):
        kind = str(message["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return Turn(role=_ROLES.get(kind, kind), text=_content(kwargs))
    role = message.get("role", message.get("from", message.get("type")))
    if not isinstance(role, str):
        return None
    data = message.get("data")
    members: Mapping[str, Any] = data if isinstance(data, dict) else message
    if not members.keys() & {"content", "value", "tool_calls", "function_call"}:
        return None
    return Turn(role=_ROLES.get(role, role), text=_content(members))


def _content(message: Mapping[str, Any]) -> str:
    """The text of a message; where it calls a tool instead, the call's arguments."""
    content: Any = message.get("content", message.get("value"))
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = "\n".join(part for part in parts if isinstance(part, str))
    if isinstance(content, str) and content.strip():
        return content
    calls: Any = message.get("tool_calls")
    call: Any = calls[0] if isinstance(calls, list) and calls else {"function": message.get("function_call")}
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
