"""The JSON bodies that are sent: of a chat completion, and of a text completion that scores a given text.

OpenAI's options under the names and within the values of the endpoint's dialect, and three of vLLM's where the teacher
is one that knows them: `continue_final_message` with a begun answer, `cache_salt`, and proposals for its engine in
`vllm_xargs`. What a dialect does not take is left out, and so is what would be sent at its default: servers refuse what
they do not know.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Any

from backend.domain.dialects.dialect import Dialect, Option, ResponseFormat
from backend.domain.dialects.tools import answer_tool
from workers.teachers.protocol import CompletionRequest, Message, ScoreRequest, TeacherCaps

GENERATION_CONFIG = "generation_config"  # transformers' own field: a JSON text, filled up from the model's own settings


def chat_body(request: CompletionRequest, model: str, caps: TeacherCaps, dialect: Dialect) -> dict[str, Any]:
    """The body of `/chat/completions`. `top_logprobs` is cut to what the teacher tells; drafts and the salt go only to
    an engine that takes drafts."""
    body: dict[str, Any] = {"model": model, "messages": _messages(request, dialect)}
    if dialect.token_limit:
        asked = request.max_tokens + request.thought_tokens
        body[dialect.token_limit] = asked if dialect.max_tokens is None else min(asked, dialect.max_tokens)
    body |= _sampling(request, caps, dialect)
    if request.prefix:
        body["messages"].append({"role": "assistant", "content": request.prefix})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if request.logprobs and caps.logprobs and Option.LOGPROBS in dialect.takes:
        body["logprobs"] = True
        n_top = min(request.top_logprobs, caps.max_top_logprobs, dialect.max_top_logprobs)
        if n_top and Option.TOP_LOGPROBS in dialect.takes:
            body["top_logprobs"] = n_top
    if request.answer_schema:
        body |= _response_format(request.answer_schema, dialect)
    if request.effort and Option.EFFORT in dialect.takes:
        body |= _effort(request.effort, dialect)
    if request.cache_key and Option.CACHE_KEY in dialect.takes:
        body["prompt_cache_key"] = request.cache_key
    if caps.engine_drafts:
        body |= _engine_fields(request)
    return body


def _messages(request: CompletionRequest, dialect: Dialect) -> list[dict[str, Any]]:
    """The messages; where there is no system role, its text opens the first of the user's. Where the end of what to
    cache is marked, that is the end of what the requests of this kind share."""
    messages = list(request.messages)
    if Option.SYSTEM_ROLE not in dialect.takes and messages[:1] and messages[0].role == "system":
        system, *rest = messages
        first = Message(role="user", content=f"{system.content}\n\n{rest[0].content}") if rest else system
        messages = [first, *rest[1:]]
    return [{"role": m.role, "content": _content(m, has_breakpoints=dialect.has_breakpoints)} for m in messages]


def _content(message: Message, *, has_breakpoints: bool) -> str | list[dict[str, Any]]:
    if not (has_breakpoints and message.n_shared):
        return message.content
    shared, own = message.content[: message.n_shared], message.content[message.n_shared :]
    parts: list[dict[str, Any]] = [{"type": "text", "text": shared, "cache_control": {"type": "ephemeral"}}]
    return [*parts, {"type": "text", "text": own}] if own else parts


def _sampling(request: CompletionRequest, caps: TeacherCaps, dialect: Dialect) -> dict[str, Any]:
    wanted: dict[Option, Any] = {Option.TEMPERATURE: min(request.temperature, dialect.max_temperature)}
    if request.top_p != 1.0:
        wanted[Option.TOP_P] = request.top_p
    # vLLM refuses several greedy answers to one question, which would be the same; who needs more asks again
    n = 1 if caps.engine_drafts and request.temperature == 0 else min(request.n, dialect.max_n)
    if n != 1:
        wanted[Option.N] = n
    if request.top_k is not None:
        wanted[Option.TOP_K] = request.top_k
    names = {option: option.value for option in wanted}
    if request.temperature > 0:
        wanted[Option.DO_SAMPLE], names[Option.DO_SAMPLE] = '{"do_sample": true}', GENERATION_CONFIG
    if request.seed is not None:
        wanted[Option.SEED], names[Option.SEED] = request.seed, dialect.seed
    return {names[option]: value for option, value in wanted.items() if option in dialect.takes}


def _response_format(answer_schema: str, dialect: Dialect) -> dict[str, Any]:
    """Hold the answer to its schema, or to JSON, as far as the dialect can. `strict` stays off: vendors take few of
    JSON Schema's words in a strict schema, and answers are checked here anyway."""
    if Option.RESPONSE_FORMAT not in dialect.takes or dialect.response_format is ResponseFormat.FREE:
        return {}
    if dialect.response_format is ResponseFormat.TOOL:
        return answer_tool(json.loads(answer_schema))
    if dialect.response_format is ResponseFormat.OBJECT:
        return {"response_format": {"type": "json_object"}}
    schema = {"name": "answer", "schema": json.loads(answer_schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _effort(effort: str, dialect: Dialect) -> dict[str, Any]:
    """The effort at the dialect's path, "none" as its own way to switch thoughts off; nothing where the dialect has no
    other value than "none", which was not asked for."""
    if effort == "none" and dialect.off is not None:
        path, value = dialect.off
        return _at_path(path, value)
    nearest = dialect.effort_for(effort)
    return {} if nearest is None else _at_path(dialect.effort, nearest)


def _at_path(path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    return {first: _at_path(rest, value) if rest else value}


def _engine_fields(request: CompletionRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if request.cache_salt is not None:
        fields["cache_salt"] = request.cache_salt
    if request.drafts:
        fields["vllm_xargs"] = {"kolm_drafts": json.dumps(_fitting(request.drafts), ensure_ascii=False)}
    return fields


def _fitting(drafts: Sequence[str]) -> list[str]:
    """The first drafts, as many as the proposer reads: 64, and 65,536 characters of JSON."""
    sizes = itertools.accumulate(len(json.dumps(draft, ensure_ascii=False)) + 2 for draft in drafts[:64])
    return [draft for draft, size in zip(drafts, sizes, strict=False) if size <= 60_000]


def score_prompt(request: ScoreRequest) -> str:
    """The prompt before the text to score: the messages joined by blank lines, which is the grammar server's own chat
    template."""
    return "\n\n".join(m.content for m in request.messages) + "\n\n"


def echo_body(request: ScoreRequest, model: str, caps: TeacherCaps) -> dict[str, Any]:
    """The body of `/completions` with `echo`: one prefill, nothing generated. `logprobs` is the number of alternatives
    at each place."""
    prompt = score_prompt(request)
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt + request.text,
        "echo": True,
        "logprobs": min(request.top_logprobs, caps.max_top_logprobs),
        "max_tokens": 0,
        "temperature": request.temperature,
        "prompt_length": len(prompt),
    }
    if request.top_k is not None:
        body["top_k"] = request.top_k
    return body
