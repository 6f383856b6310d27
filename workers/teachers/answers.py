"""Reads the JSON of a chat or text completion as hostile input: strict UTF-8, strict shapes, counts that can be true.

Everything raises BadAnswer with a sentence that quotes nothing of the answer, so that no part of it reaches a log by
way of an error.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from workers.teachers.protocol import Choice, CompletionRequest, Score, Usage

MAX_CHARS_PER_TOKEN = 64
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value > 1e-3:
        raise BadAnswer("a log-probability is not a finite number at or below zero")
    return min(0.0, float(value))


def estimate_tokens(text: str) -> int:
    return max(1, math.ceil(len(text.encode("utf-8")) / BYTES_PER_TOKEN)) if text else 0


def most_input_tokens(request: CompletionRequest) -> int:
    """No tokenizer makes more tokens than bytes; 32 a message allow for the chat template."""
    return sum(len(m.content.encode("utf-8")) + 32 for m in request.messages)


def read_usage(value: object, request: CompletionRequest, choices: tuple[Choice, ...]) -> Usage:
    """What to bill. Missing or malformed counts are estimated from bytes; impossible ones are clamped to what this
    request could cost at most (`n` times `max_tokens` out, a token a byte in), and the usage is marked so that a
    person can settle it with the vendor."""
    most_in, most_out = most_input_tokens(request), request.n * request.max_tokens
    if not isinstance(value, dict):
        return Usage(
            input_tokens=min(most_in, sum(estimate_tokens(m.content) for m in request.messages)),
            output_tokens=min(most_out, sum(choice.n_tokens for choice in choices)),
            estimated=True,
        )
    given_in, given_out = value.get("prompt_tokens"), value.get("completion_tokens")
    details = value.get("prompt_tokens_details")
    given_cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    tokens_in, wrong_in = _count(given_in, most_in)
    # some servers bill the prompt once a choice
    if wrong_in and isinstance(given_in, int) and 0 < given_in <= most_in * request.n:
        tokens_in, wrong_in = given_in, False
    tokens_out, wrong_out = _count(given_out, most_out)
    cached, wrong_cached = _count(given_cached if given_cached is not None else 0, tokens_in)
    if tokens_out == 0 and any(choice.text for choice in choices):
        tokens_out, wrong_out = min(most_out, sum(choice.n_tokens for choice in choices)), True
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        disputed=wrong_in or wrong_out or wrong_cached,
    )


def _count(value: object, most: int) -> tuple[int, bool]:
    """(the count clamped into 0..most, whether it had to be)."""
    if isinstance(value, bool) or not isinstance(value, int):
        return most, True
    return min(max(value, 0), most), not 0 <= value <= most


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
