"""Reads the JSON of a chat or text completion as hostile input: strict UTF-8, strict shapes, counts that can be true.

Everything raises BadAnswer with a sentence that quotes nothing of the answer, so that no part of it reaches a log by
way of an error.
"""

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

from workers.teachers.protocol import Choice, CompletionRequest, Score, Usage

MAX_CHARS_PER_TOKEN = 64
LEAST_LOGPROB = -10_000.0  # some servers say -9999 for "never"; below, sums and float16 overflow
BYTES_PER_TOKEN = 4  # the estimate for teachers that report no usage


class BadAnswer(Exception):
    """The body is not what the protocol promises."""


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
    logprobs = _token_logprobs(row.get("logprobs"))
    finish = row.get("finish_reason")
    return Choice(
        text=text,
        logprob=math.fsum(logprobs) if logprobs else None,
        token_logprobs=logprobs or None,
        n_tokens=len(logprobs) if logprobs else estimate_tokens(text),
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


def _token_logprobs(value: object) -> tuple[float, ...]:
    """() where the teacher gives none. A log-probability is a finite number, and not above zero but for rounding."""
    if value is None:
        return ()
    rows = value.get("content") if isinstance(value, dict) else None
    if rows is None:
        return ()
    if not isinstance(rows, list):
        raise BadAnswer("the log-probabilities are not a list")
    return tuple(_logprob(row.get("logprob") if isinstance(row, dict) else None) for row in rows)


def _logprob(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # by comparison, which takes an integer of any size: math.isfinite does not
    if not is_number or not -sys.float_info.max <= value <= 1e-3:  # type: ignore[operator]
        raise BadAnswer("a log-probability is not a finite number at or below zero")
    return max(LEAST_LOGPROB, min(0.0, float(value)))  # type: ignore[arg-type]


def estimate_tokens(text: str) -> int:
    return max(1, math.ceil(len(text.encode("utf-8")) / BYTES_PER_TOKEN)) if text else 0


def most_input_tokens(request: CompletionRequest) -> int:
    """No tokenizer makes more tokens than bytes; 16 a message allow for the chat template. What is reserved before a
    call (workers.teacher_calls.worst_cost) is the same sum, so no report can cost more than was reserved."""
    return sum(len(m.content.encode("utf-8")) + 16 for m in request.messages)


def read_usage(value: object, request: CompletionRequest, choices: tuple[Choice, ...]) -> Usage:
    """What to bill. A missing, malformed or negative count is estimated from bytes; one beyond what this request could
    cost at most (`n` times `max_tokens` out, a token a byte in) is clamped to that. A report that had to be mended is
    `disputed`, so that a person can settle it with the vendor; none at all is `estimated`."""
    likely_in = sum(estimate_tokens(m.content) for m in request.messages)
    likely_out = min(request.n * request.max_tokens, sum(choice.n_tokens for choice in choices))
    if not isinstance(value, dict):
        return Usage(input_tokens=likely_in, output_tokens=likely_out, estimated=True)
    details = value.get("prompt_tokens_details")
    given_cached = details.get("cached_tokens") if isinstance(details, dict) else None
    tokens_in, wrong_in = _count(value.get("prompt_tokens"), most_input_tokens(request), likely_in)
    tokens_out, wrong_out = _count(value.get("completion_tokens"), request.n * request.max_tokens, likely_out)
    cached, wrong_cached = _count(0 if given_cached is None else given_cached, tokens_in, 0)
    if tokens_out == 0 and likely_out > 0:
        tokens_out, wrong_out = likely_out, True
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        disputed=wrong_in or wrong_out or wrong_cached,
    )


def _count(value: object, most: int, likely: int) -> tuple[int, bool]:
    """(the count, whether it had to be mended)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return likely, True
    return min(value, most), value > most


def read_echo_score(body: bytes, prompt: str, text: str, request: CompletionRequest) -> Score:
    """log P(text | prompt) from `/v1/completions` with `echo`: the log-probs of the tokens that start at or after
    the prompt's end."""
    data = parse_json(body)
    try:
        logprobs = data["choices"][0]["logprobs"]
        rows = list(zip(logprobs["text_offset"], logprobs["token_logprobs"], strict=True))
    except (LookupError, TypeError, ValueError) as wrong:
        raise BadAnswer("the answer holds no log-probabilities of the prompt") from wrong
    if not all(isinstance(offset, int) for offset, _ in rows) or len(prompt) not in {offset for offset, _ in rows}:
        raise BadAnswer("no token starts where the text starts")
    tokens = tuple(_logprob(value) for offset, value in rows if offset >= len(prompt))
    usage = read_usage(data.get("usage"), request, (Choice(text=text, n_tokens=1),))
    return Score(logprob=math.fsum(tokens), token_logprobs=tokens, usage=usage)
