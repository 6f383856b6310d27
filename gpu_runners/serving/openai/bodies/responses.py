"""The body of /v1/responses, read strictly, as the chat that it stands for.

What would need a memory is refused: nothing is stored, so nothing can be continued by its id.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu_runners.serving.openai.bodies.answer_formats import text_format
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.chats import IGNORED, MAX_MESSAGES, MOST_TOKENS, ChatCall, Sampling, read_model
from gpu_runners.serving.openai.bodies.fields import Fields

_NAMES = {"messages": "input", "response_format": "text.format"}  # of a chat's parameters here
_PARTS = ("input_text", "output_text", "text")
_ROLES = ("user", "assistant", "system", "developer")
_STATELESS = "this server stores no responses; send the whole conversation as `input`"
_REFUSED = {
    "previous_response_id": _STATELESS,
    "conversation": _STATELESS,
    "prompt": "this server has no stored prompts; send `instructions` and `input`",
    "reasoning": "these models do not reason; leave it out",
    "max_tool_calls": "tools are called at /v1/chat/completions",
    "context_management": "send the whole conversation as `input`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCall:
    """`chat` is what is answered; `shown` are the parameters that the object tells back."""

    chat: ChatCall
    shown: Mapping[str, Any]


def response_call(body: Mapping[str, Any]) -> ResponseCall:
    """Raises BadRequest."""
    fields = Fields(body)
    shown = {name: body.get(name) for name in ("instructions", "temperature", "top_p", "max_output_tokens", "user")}
    shown |= {"metadata": body.get("metadata") or {}, "text": _shown_text(body)}
    _refuse(fields)
    model = read_model(fields)
    messages = _messages(fields)
    asked = text_format(fields)
    sampling = Sampling(
        max_tokens=fields.whole("max_output_tokens", low=1, high=MOST_TOKENS),
        temperature=fields.number("temperature", low=0, high=2),
        top_p=_one_of_none(fields.number("top_p", low=0, high=1)),
        top_k=0,
        seed=None,
        stop=(),
        frequency_penalty=0.0,
        presence_penalty=0.0,
        top_logprobs=None,
        n=1,
        stream=fields.flag("stream"),
        include_usage=False,
        format=asked.kind,
        constraint=asked.constraint,
        schema=asked.schema,
    )
    fields.end()
    return ResponseCall(chat=ChatCall(model=model, messages=messages, tools=(), sampling=sampling), shown=shown)


@contextmanager
def own_names() -> Iterator[None]:
    """Refuse by the names of this address what is refused of the chat."""
    try:
        yield
    except BadRequest as refusal:
        message = refusal.message.replace("response_format", _NAMES["response_format"])
        param = _NAMES.get(refusal.param or "", refusal.param)
        raise BadRequest(message, param=param, code=refusal.code, status=refusal.status) from refusal


def _one_of_none(top_p: float | None) -> float:
    return 1.0 if top_p is None else top_p


def _shown_text(body: Mapping[str, Any]) -> Any:
    text = body.get("text")
    return text if isinstance(text, dict) and text.get("format") else {"format": {"type": "text"}}


def _refuse(fields: Fields) -> None:
    """Take what changes nothing; refuse what cannot be honoured by its name."""
    for name, why in _REFUSED.items():
        if fields.take(name) not in (None, {}):
            raise fields.bad(name, f"is not supported: {why}", code="unsupported_parameter")
    for name, why in (("store", _STATELESS), ("background", "answers come at once")):
        if fields.flag(name):
            raise fields.bad(name, f"is false here: {why}", code="unsupported_parameter")
    if fields.take("tools"):
        raise fields.bad("tools", "are called at /v1/chat/completions here", code="unsupported_parameter")
    for name in (*IGNORED, "prompt_cache_retention"):
        fields.take(name)
    fields.flag("parallel_tool_calls")
    fields.take_fixed("tool_choice", "auto", "none")
    fields.take_fixed("include", [])
    fields.take_fixed("truncation", "disabled")
    fields.take_fixed("service_tier", "auto", "default")
    fields.take_fixed("top_logprobs", 0)
    _stream_options(fields)


def _stream_options(fields: Fields) -> None:
    options = fields.take("stream_options")
    if options is None:
        return
    if not isinstance(options, dict):
        raise fields.bad("stream_options", "is an object")
    inner = Fields(options, inside="stream_options.")
    inner.flag("include_obfuscation")  # padding against who counts bytes; there is none
    inner.end()


def _messages(fields: Fields) -> tuple[dict[str, Any], ...]:
    """The chat's messages: `instructions` as its system message, then the input."""
    instructions = fields.text("instructions")
    value = fields.take("input")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_MESSAGES:
        raise fields.bad("input", f"is a text, or a list of 1 to {MAX_MESSAGES} messages")
    messages = [_message(item, f"input[{i}]") for i, item in enumerate(items)]
    return ({"role": "system", "content": instructions}, *messages) if instructions else tuple(messages)


def _message(item: Any, place: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise BadRequest(f"`{place}` is an object.", param=place, code="invalid_value")
    fields = Fields(item, inside=f"{place}.")
    kind = fields.text("type")
    if kind not in (None, "message"):
        why = "is message here: tool calls, files and references are not taken"
        raise fields.bad("type", why, code="unsupported_content")
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.bad("role", f"is one of {', '.join(_ROLES)}")
    content = _content(fields.take("content"), fields)
    for name in ("id", "status", "phase"):  # of an earlier answer that is sent back
        fields.take(name)
    fields.end()
    return {"role": "system" if role == "developer" else role, "content": content}


def _content(content: Any, fields: Fields) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise fields.bad("content", "is a text, or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _PARTS or not isinstance(part.get("text"), str):
            raise fields.bad("content", "has parts of the type input_text alone here", code="unsupported_content")
        texts.append(part["text"])
    return "".join(texts)
