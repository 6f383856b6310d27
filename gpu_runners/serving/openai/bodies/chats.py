"""The bodies of /v1/chat/completions and /v1/completions, read strictly: a parameter that this server does not honour
is an error, never ignored."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.strict_json import BadJson
from backend.domain.strict_json import read_json as read_strictly
from gpu_runners.models.protocol import Constraint
from gpu_runners.serving.openai.bodies.answer_formats import response_format
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.bodies.fields import Fields
from gpu_runners.serving.openai.bodies.tool_choices import Function, read_tools

MAX_CHOICES = 8
MAX_PROMPTS = 64
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_MESSAGES = 1_000
MAX_TOP_LOGPROBS = 20
MOST_TOKENS = 1 << 20
_MAX_CONTAINERS = 50_000  # lists and objects of a body: a million empty lists hold the interpreter for a second
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key")  # they name the caller, not the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """`temperature` and `max_tokens` None: what the served model has as its own."""

    max_tokens: int | None
    temperature: float | None
    top_p: float
    top_k: int
    seed: int | None
    stop: tuple[str, ...]
    frequency_penalty: float
    presence_penalty: float
    top_logprobs: int | None
    n: int
    stream: bool
    include_usage: bool
    format: str | None  # text | json_object | json_schema
    constraint: Constraint | None
    schema: Mapping[str, Any] | None = None  # as it was sent, vetted


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """`forced`: the functions of `tools` of which one must be called."""

    model: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[Any, ...]
    sampling: Sampling
    forced: tuple[Function, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall:
    """`prompts` are texts or token ids."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    sampling: Sampling


def read_json(data: bytes) -> dict[str, Any]:
    """Raises BadRequest. Linear in the body's length, whatever it holds."""
    if _is_crowded(data):
        raise BadRequest(f"The body has more than {_MAX_CONTAINERS:,} lists and objects.", code="invalid_json")
    try:
        body = read_strictly(data)
    except BadJson as error:
        raise BadRequest(str(error), code="invalid_json") from error
    if not isinstance(body, dict):
        raise BadRequest("The body is not a JSON object.", code="invalid_json")
    return body


def _is_crowded(data: bytes) -> bool:
    """Say whether there are too many brackets. Strings do not count, and are looked at only where they matter."""
    if data.count(b"[") + data.count(b"{") <= _MAX_CONTAINERS:
        return False
    bare = _STRING.sub(b"", data)
    return bare.count(b"[") + bare.count(b"{") > _MAX_CONTAINERS


def chat_call(body: Mapping[str, Any]) -> ChatCall:
    """Raises BadRequest."""
    fields = Fields(body)
    model = read_model(fields)
    messages = _messages(fields)
    tools, forced = read_tools(fields)
    wants_logprobs = fields.flag("logprobs")
    top = fields.whole("top_logprobs", low=0, high=MAX_TOP_LOGPROBS)
    if top is not None and not wants_logprobs:
        raise fields.bad("top_logprobs", "needs logprobs true")
    most = fields.whole("max_completion_tokens", low=1, high=MOST_TOKENS)
    sampling = _sampling(fields, top_logprobs=(top or 0) if wants_logprobs else None, most=most)
    if tools and sampling.constraint is not None:
        raise fields.bad("response_format", "cannot be used together with tools", code="unsupported_parameter")
    fields.end()
    return ChatCall(model=model, messages=messages, tools=tools, forced=forced, sampling=sampling)


def completion_call(body: Mapping[str, Any]) -> CompletionCall:
    """Raises BadRequest."""
    fields = Fields(body)
    model = read_model(fields)
    prompts = _prompts(fields)
    fields.take_fixed("echo", False)
    fields.take_fixed("best_of", 1)
    top = fields.whole("logprobs", low=0, high=MAX_TOP_LOGPROBS)
    sampling = _sampling(fields, top_logprobs=top, most=None)
    fields.end()
    return CompletionCall(model=model, prompts=prompts, sampling=sampling)


def read_model(fields: Fields) -> str:
    """Raises BadRequest."""
    model = fields.text("model")
    if not model or len(model) > 200:
        raise fields.bad("model", "is missing: name a deployment or an artifact", code="missing_model")
    return model


def _sampling(fields: Fields, *, top_logprobs: int | None, most: int | None) -> Sampling:
    for name in IGNORED:
        fields.take(name)
    fields.take_fixed("store", False)
    fields.take_fixed("service_tier", "auto", "default")
    fields.take_fixed("logit_bias", {})
    fields.take_fixed("modalities", ["text"])
    max_tokens = fields.whole("max_tokens", low=1, high=MOST_TOKENS)
    stream = fields.flag("stream")
    asked = response_format(fields)
    return Sampling(
        max_tokens=most if most is not None else max_tokens,
        temperature=fields.number("temperature", low=0, high=2),
        top_p=_or(fields.number("top_p", low=0, high=1), 1.0),
        top_k=max(0, fields.whole("top_k", low=-1, high=1 << 20) or 0),
        seed=_seed(fields),
        stop=_stop(fields),
        frequency_penalty=fields.number("frequency_penalty", low=-2, high=2) or 0.0,
        presence_penalty=fields.number("presence_penalty", low=-2, high=2) or 0.0,
        top_logprobs=top_logprobs,
        n=fields.whole("n", low=1, high=MAX_CHOICES) or 1,
        stream=stream,
        include_usage=_include_usage(fields, stream=stream),
        format=asked.kind,
        constraint=asked.constraint,
        schema=asked.schema,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _seed(fields: Fields) -> int | None:
    seed = fields.whole("seed", low=-(1 << 63), high=(1 << 63) - 1)
    return None if seed is None else seed % (1 << 64)


def _stop(fields: Fields) -> tuple[str, ...]:
    value = fields.take("stop")
    stops = [] if value is None else [value] if isinstance(value, str) else value
    fits = isinstance(stops, list) and len(stops) <= MAX_STOPS
    if not fits or not all(isinstance(stop, str) and 0 < len(stop) <= MAX_STOP_CHARS for stop in stops):
        raise fields.bad("stop", f"is a text of 1 to {MAX_STOP_CHARS} characters, or up to {MAX_STOPS} of them")
    return tuple(stops)


def _include_usage(fields: Fields, *, stream: bool) -> bool:
    options = fields.take("stream_options")
    if options is None:
        return False
    if not stream or not isinstance(options, dict):
        raise fields.bad("stream_options", "is an object, and only for stream true")
    inner = Fields(options, inside="stream_options.")
    include = inner.flag("include_usage")
    inner.end()
    return include


def _prompts(fields: Fields) -> tuple[str | tuple[int, ...], ...]:
    value = fields.take("prompt")
    many: Sequence[Any]
    if isinstance(value, str) or (isinstance(value, list) and value and all(type(i) is int for i in value)):
        many = [value]
    else:
        many = value if isinstance(value, list) else []
    prompts: list[str | tuple[int, ...]] = []
    for one in many:
        if isinstance(one, str) and one:
            prompts.append(one)
        elif isinstance(one, list) and one and all(type(i) is int for i in one):
            prompts.append(tuple(one))
        else:
            prompts = []
            break
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise fields.bad("prompt", f"is a text or a list of token ids, or 1 to {MAX_PROMPTS} of either")
    return tuple(prompts)


def _messages(fields: Fields) -> tuple[dict[str, Any], ...]:
    value = fields.take("messages")
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise fields.bad("messages", f"is a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(one, i) for i, one in enumerate(value))


def _message(value: Any, i: int) -> dict[str, Any]:
    inside = f"messages[{i}]."
    if not isinstance(value, dict):
        raise BadRequest(f"`messages[{i}]` is an object.", param=f"messages[{i}]", code="invalid_value")
    fields = Fields(value, inside=inside)
    role = fields.text("role")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        raise fields.bad("role", "is system, developer, user, assistant or tool")
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    content = fields.take("content")
    calls = fields.take("tool_calls") if role == "assistant" else None
    if calls is not None:
        message["tool_calls"] = _calls(calls, fields)
    if content is not None or calls is None:
        message["content"] = _content(content, fields)
    else:
        message["content"] = ""
    if role == "tool":
        message["tool_call_id"] = fields.text("tool_call_id") or ""
    fields.take_fixed("refusal")
    if name := fields.text("name"):
        message["name"] = name
    fields.end()
    return message


def _content(content: Any, fields: Fields) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise fields.bad("content", "is a text, or a list of text parts")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise fields.bad("content", "has parts of the type text alone here", code="unsupported_content")
        texts.append(part["text"])
    return "".join(texts)


def _calls(calls: Any, fields: Fields) -> list[dict[str, Any]]:
    """The calls as chat templates take them: arguments as an object, not as its JSON text."""
    out = []
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise fields.bad("tool_calls", "has entries with a function and its name")
        name, arguments = function["name"], _arguments(function.get("arguments") or "{}", fields)
        out.append({"type": "function", "function": {"name": name, "arguments": arguments}})
    return out


def _arguments(text: Any, fields: Fields) -> Any:
    if not isinstance(text, str):
        raise fields.bad("tool_calls", "has arguments that are no JSON text")
    data = text.encode()
    if _is_crowded(data):
        raise fields.bad("tool_calls", f"has arguments with more than {_MAX_CONTAINERS:,} lists and objects")
    try:
        return read_strictly(data)
    except BadJson as error:
        raise fields.bad(
            "tool_calls", "has arguments that are no JSON text, or one that readers disagree on"
        ) from error
