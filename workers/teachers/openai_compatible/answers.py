"""Reads the JSON of a chat or text completion as hostile input: strict UTF-8, strict shapes, counts that can be true.

Everything raises BadAnswer with a sentence that quotes nothing of the answer, so that no part of it reaches a log by
way of an error.
"""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from backend.domain.dialects.tools import most_tool_tokens
from workers.teachers.openai_compatible.finish_reasons import finish_reason_of
from workers.teachers.openai_compatible.logprobs import BadAnswer, TokenRows, read_answer_rows, read_echo_rows
from workers.teachers.openai_compatible.thoughts import read_content
from workers.teachers.openai_compatible.tool_calls import read_call
from workers.teachers.openai_compatible.usage_counts import read_counts
from workers.teachers.protocol import Choice, CompletionRequest, Message, ScoreRequest, Usage
from workers.teachers.token_estimates import estimate_tokens, likely_input_tokens

MAX_CHARS_PER_TOKEN = 64


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


def is_no_completion(body: bytes) -> bool:
    """Tell whether this is something else altogether, a page, a text or JSON without choices: no completion that is
    broken or cut."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body.lstrip()[:1] != b"{"
    choices = value.get("choices") if isinstance(value, dict) else None
    return not isinstance(choices, list) or (not choices and bool(value.get("error")))


def error_of_choices(body: bytes) -> tuple[bytes, object] | None:
    """The error that a completion has in the place of every choice (OpenRouter), as a body of its own beside the usage;
    None where one choice is none. What else is in the body are a model's words."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rows = value.get("choices") if isinstance(value, dict) else None
    errors = [isinstance(row, dict) and row.get("error") for row in rows] if isinstance(rows, list) else []
    return (json.dumps({"error": errors[0]}).encode(), value.get("usage")) if errors and all(errors) else None


def _no_constant(name: str) -> float:
    raise ValueError(name)


def read_chat(body: bytes, request: CompletionRequest) -> Answer:
    """The choices and the usage of a chat completion. More choices than asked for are dropped, fewer are accepted,
    none is BadAnswer."""
    data = parse_json(body)
    rows = data.get("choices")
    if not rows and (refused := _refused_prompt(data, request)) is not None:
        return refused
    if not isinstance(rows, list) or not rows:
        raise BadAnswer("the answer holds no choices")
    if error_of_choices(body) is not None:
        raise BadAnswer("every choice is an error")
    choices = tuple(_choice(row, request) for row in rows[: request.n])
    return Answer(
        choices=choices,
        usage=read_usage(data.get("usage"), request, choices),
        model=_short(data.get("model")),
        system_fingerprint=_short(data.get("system_fingerprint")),
    )


def _refused_prompt(data: dict[str, Any], request: CompletionRequest) -> Answer | None:
    """The answer to a text that a filter refused as Gemini does: no choices, no error, and a usage that counts what was
    asked and no output. It costs what the usage says. None where it is something else."""
    usage = data.get("usage")
    if data.get("error") or not isinstance(usage, dict):
        return None
    read = read_usage(usage, request, ())
    if read.disputed or read.output_tokens or not read.input_tokens:
        return None
    return replace(no_answer(request), usage=read, model=_short(data.get("model")))


def _short(value: object) -> str:
    return value[:200] if isinstance(value, str) and value.isprintable() else ""


def _choice(row: object, request: CompletionRequest) -> Choice:
    message = row.get("message") if isinstance(row, dict) else None
    if isinstance(row, dict) and message is None and finish_reason_of(row) in ("content_filter", "length", "error"):
        message = {}  # Gemini has none where a filter or its own thoughts left no word
    if not isinstance(row, dict) or not isinstance(message, dict):
        raise BadAnswer("a choice is not an object with a message")
    ended = finish_reason_of(row)
    if request.answer_schema and ended != "error":
        arguments = read_call(message, is_cut=ended == "length")
        if arguments is not None:
            return _choice_of_call(arguments, ended, request)
    content = read_content(message)  # of a refusal or another tool's call it is empty, and dropped downstream
    text = _clean(content.text, request)
    # with thoughts in the same text the rows are theirs too: no log-prob of the answer is left
    rows = TokenRows() if content.has_thoughts else read_answer_rows(row.get("logprobs"), text, request)
    if content.is_cut_thought and row.get("finish_reason") is None:
        ended = "length"
    if ended == "error":  # a label of it would be no vote either: cut anywhere, "refund_late" reads as "refund"
        return Choice(text="", n_tokens=estimate_tokens(text), finish_reason=ended)
    return Choice(
        text=text,
        logprob=math.fsum(rows.logprobs) if rows.logprobs else None,
        token_logprobs=rows.logprobs or None,
        tokens=rows.tokens or None,
        top_logprobs=rows.top or None,
        label_logprobs=rows.labels,
        n_tokens=len(rows.logprobs) if rows.logprobs else estimate_tokens(text),
        finish_reason=ended,
    )


def _choice_of_call(arguments: str, ended: str, request: CompletionRequest) -> Choice:
    """The choice that a call is. Its log-probs are of more than the arguments: none is left."""
    text = _clean(arguments, request)
    finish = ended if ended in ("length", "content_filter") else "stop"
    return Choice(text=text, n_tokens=estimate_tokens(text), finish_reason=finish)


def no_answer(request: CompletionRequest) -> Answer:
    """Nothing, as often as a request asks for something, and billed as nothing: its text was refused by a filter."""
    choice = Choice(text="", finish_reason="content_filter")
    return Answer(choices=(choice,) * max(1, request.n), usage=Usage(), model="", system_fingerprint="")


def _clean(text: str, request: CompletionRequest) -> str:
    if len(text) > max(1024, (request.max_tokens + request.thought_tokens) * MAX_CHARS_PER_TOKEN):
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
    tool = most_tool_tokens(request.answer_schema) if request.as_tool else 0
    return sum(len(m.content.encode("utf-8")) + 16 for m in request.messages) + begun + tool


def read_usage(value: object, request: CompletionRequest, choices: tuple[Choice, ...]) -> Usage:
    """The usage to bill. A missing, malformed or negative count is estimated from bytes; one beyond what this request
    could cost at most (`most_output_tokens` out, a token a byte in) is clamped to that, and output of fewer tokens than
    the choices show one by one is raised to these (llama-server counts the first of several). A report that was mended
    is `disputed`, so that a person can settle it with the vendor; none at all is `estimated`. Input that was read from
    the vendor's prompt cache and input that was written to it are parts of the input, never more than it together; what
    was thought is a part of the output, to which it is added where only the total holds it (`usage_counts`).
    """
    most_out = request.most_output_tokens
    likely_in = likely_input_tokens(request)
    likely_out = min(most_out, sum(choice.n_tokens for choice in choices))
    if not isinstance(value, dict):
        return Usage(input_tokens=likely_in, output_tokens=likely_out, estimated=True)
    counts = read_counts(value)
    beside = counts.beside
    tokens_in, wrong_in = _count(counts.tokens_in, most_input_tokens(request), likely_in)
    tokens_out, wrong_out = _count(counts.tokens_out, most_out, likely_out)
    cached, wrong_cached = _part(counts.cached, tokens_in)
    written, wrong_written = _part(counts.written, tokens_in - cached)
    thought, wrong_thought = _part(counts.thoughts, most_out)
    wrong_out = wrong_out or tokens_out + beside > most_out
    tokens_out = min(most_out, tokens_out + beside)
    if tokens_out == 0 and likely_out > 0:
        tokens_out, wrong_out = likely_out, True
    n_shown = sum(len(choice.token_logprobs or ()) for choice in choices)
    if tokens_out + len(choices) < n_shown:  # an end of text a choice may be shown and not counted
        tokens_out, wrong_out = min(most_out, n_shown), True
    return Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=cached,
        cache_write_tokens=written,
        thought_tokens=min(thought, tokens_out),
        disputed=wrong_in or wrong_out or wrong_cached or wrong_written or wrong_thought,
    )


def _part(value: object, most: int) -> tuple[int, bool]:
    """A count that may be missing, which is 0."""
    return (0, False) if value is None else _count(value, most, 0)


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
