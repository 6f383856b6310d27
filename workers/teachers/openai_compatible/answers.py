"""Reads the JSON of a chat or text completion as hostile input: strict UTF-8, strict shapes, counts that can be true.

Everything raises BadAnswer with a sentence that quotes nothing of the answer, so that no part of it reaches a log by
way of an error.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from workers.teachers.openai_compatible.logprobs import BadAnswer, read_chat_rows, read_echo_rows
from workers.teachers.protocol import Choice, CompletionRequest, Message, ScoreRequest, Usage
from workers.teachers.token_estimates import estimate_tokens, likely_input_tokens

MAX_CHARS_PER_TOKEN = 64
# what input that was written to a prompt cache is called; the last one also beside `prompt_tokens`
CACHE_WRITES = ("cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    choices: tuple[Choice, ...]
    usage: Usage
    model: str
    system_fingerprint: str


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; NaN, infinities, lone surrogates, duplicate depth bombs and anything but an object
    are refused."""
    try:
        value = json.loads(body.decode("utf-8", errors="strict"), parse_constant=_no_constant)
    except UnicodeDecodeError as wrong:
        raise BadAnswer("the answer is not valid UTF-8") from wrong
    except (ValueError, RecursionError) as wrong:
        raise BadAnswer("the answer is not valid JSON") from wrong
    if not isinstance(value, dict):
        raise BadAnswer("the answer is not a JSON object")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(name)


def read_chat(body: bytes, request: CompletionRequest) -> Answer:
    """The choices and the usage of a chat completion. More choices than asked for are dropped, fewer are accepted,
    none is BadAnswer."""
    data = parse_json(body)
    rows = data.get("choices")
    if not isinstance(rows, list) or not rows:
        raise BadAnswer("the answer holds no choices")
    choices = tuple(_choice(row, request) for row in rows[: request.n])
    return Answer(
        choices=choices,
        usage=read_usage(data.get("usage"), request, choices),
        model=_short(data.get("model")),
        system_fingerprint=_short(data.get("system_fingerprint")),
    )


def _short(value: object) -> str:
    return value[:200] if isinstance(value, str) and value.isprintable() else ""


def _choice(row: object, request: CompletionRequest) -> Choice:
    if not isinstance(row, dict) or not isinstance(row.get("message"), dict):
        raise BadAnswer("a choice is not an object with a message")
    text = row["message"].get("content")
    if text is None:
        text = ""  # a refusal or a tool call: an empty candidate, dropped downstream
    if not isinstance(text, str):
        raise BadAnswer("a choice's content is not text")
    text = _clean(text, request)
    rows = read_chat_rows(row.get("logprobs"), request.top_logprobs)
    finish = row.get("finish_reason")
    return Choice(
        text=text,
        logprob=math.fsum(rows.logprobs) if rows.logprobs else None,
        token_logprobs=rows.logprobs or None,
        tokens=rows.tokens or None,
        top_logprobs=rows.top or None,
        n_tokens=len(rows.logprobs) if rows.logprobs else estimate_tokens(text),
        finish_reason=finish if finish in ("stop", "length", "content_filter", "tool_calls") else "stop",
    )


def _clean(text: str, request: CompletionRequest) -> str:
    if len(text) > max(1024, request.max_tokens * MAX_CHARS_PER_TOKEN):
        raise BadAnswer("a choice is longer than max_tokens can explain")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise BadAnswer("a choice holds half a character (a lone surrogate)") from wrong
    if "\x00" in text:
        raise BadAnswer("a choice holds a NUL character")
    return text


def most_input_tokens(request: CompletionRequest) -> int:
    """No tokenizer makes more tokens than bytes; 16 a message allow for the chat template. What is reserved before a
    call (workers.step.teacher_calls.worst_cost) is the same sum, so no report can cost more than was reserved."""
    begun = len(request.prefix.encode("utf-8")) + 16 if request.prefix else 0
    return sum(len(m.content.encode("utf-8")) + 16 for m in request.messages) + begun


def read_usage(value: object, request: CompletionRequest, choices: tuple[Choice, ...]) -> Usage:
    """The usage to bill. A missing, malformed or negative count is estimated from bytes; one beyond what this request
    could cost at most (`n` times `max_tokens` out, a token a byte in) is clamped to that. A report that had to be
    mended is `disputed`, so that a person can settle it with the vendor; none at all is `estimated`. Input that was
    read from the vendor's prompt cache and input that was written to it are parts of the input, never more than it
    together."""
    likely_in = likely_input_tokens(request)
    likely_out = min(request.n * request.max_tokens, sum(choice.n_tokens for choice in choices))
    if not isinstance(value, dict):
        return Usage(input_tokens=likely_in, output_tokens=likely_out, estimated=True)
    details = value.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    reported_cached = details.get("cached_tokens")
    reported_written = next((details[name] for name in CACHE_WRITES if name in details), value.get(CACHE_WRITES[-1]))
    tokens_in, wrong_in = _count(value.get("prompt_tokens"), most_input_tokens(request), likely_in)
    tokens_out, wrong_out = _count(value.get("completion_tokens"), request.n * request.max_tokens, likely_out)
    cached, wrong_cached = _count(0 if reported_cached is None else reported_cached, tokens_in, 0)
    written, wrong_written = _count(0 if reported_written is None else reported_written, tokens_in - cached, 0)
    if tokens_out == 0 and likely_out > 0:
        tokens_out, wrong_out = likely_out, True
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        cache_write_tokens=written,
        disputed=wrong_in or wrong_out or wrong_cached or wrong_written,
    )


def _count(value: object, most: int, likely: int) -> tuple[int, bool]:
    """(the count, whether it had to be mended)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return likely, True
    return min(value, most), value > most


def read_echo_score(body: bytes, request: ScoreRequest, prompt: str) -> Answer:
    """log P(text | prompt) from `/v1/completions` with `echo`, as one choice: the rows of the tokens that start at or
    after the prompt's end."""
    data = parse_json(body)
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadAnswer("the answer holds no choices")
    rows = read_echo_rows(choices[0].get("logprobs"), len(prompt), request.top_logprobs)
    choice = Choice(
        text=request.text,
        logprob=math.fsum(rows.logprobs),
        token_logprobs=rows.logprobs,
        tokens=rows.tokens,
        top_logprobs=rows.top,
        n_tokens=len(rows.logprobs),
    )
    return Answer(
        choices=(choice,),
        usage=read_usage(data.get("usage"), as_completion(request), ()),
        model=_short(data.get("model")),
        system_fingerprint=_short(data.get("system_fingerprint")),
    )


def as_completion(request: ScoreRequest) -> CompletionRequest:
    """The completion that costs what a score may cost at most: its text is input, and one token is out."""
    return CompletionRequest(
        messages=(*request.messages, Message(role="assistant", content=request.text)), max_tokens=1
    )
