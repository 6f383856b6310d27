"""OpenAI's answer objects of chats and completions: whole ones, and the chunks of a stream."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from gpu_runners.models.protocol import Counts, Delta, TokenLogprob
from gpu_runners.serving.openai.answer_forms import AnswerForm, FormWriter
from gpu_runners.serving.openai.faults import Fault
from gpu_runners.serving.openai.tools import ToolReader

DONE = b"data: [DONE]\n\n"
_LOWEST = -9999.0  # JSON has no minus infinity


class AnswerObject(Protocol):
    """One call's answer as it grows, in the shape of the address that it was asked at. A stream is the events of each
    delta, then the last ones or those of a fault."""

    def add(self, index: int, delta: Delta) -> None: ...

    def whole(self) -> dict[str, Any]: ...

    def events(self, index: int, delta: Delta) -> bytes: ...

    def last_events(self) -> bytes: ...

    def fault_event(self, fault: Fault) -> bytes: ...


@dataclass(slots=True)
class Answer:
    """The answer to a chat or a completion. `reads_tools`: tool calls are read out of each choice's text, where the
    base makes them; `form` is how it goes out. `with_usage`: a stream ends with usage, so each chunk has the member.
    `kolm` are members of our own: `rule`, the number of the rule that answered in the model's place, and what a student
    on an encoder adds."""

    model: str
    is_chat: bool
    n_choices: int
    has_logprobs: bool
    reads_tools: bool
    form: AnswerForm = field(default_factory=AnswerForm)
    with_usage: bool = False
    kolm: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    created: int = 0
    choices: list["Choice"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid4().hex}"
        self.created = int(time.time())
        self.choices = [Choice(reader=self._reader()) for _ in range(self.n_choices)]

    def _reader(self) -> "FormWriter | ToolReader | None":
        if not self.form.is_plain:
            return FormWriter(self.form)
        return ToolReader() if self.reads_tools else None

    def events(self, index: int, delta: Delta) -> bytes:
        return event_of(self._chunk(index, delta))

    def last_events(self) -> bytes:
        usage = event_of(self._object([], chunk=True) | {"usage": self.usage()}) if self.with_usage else b""
        return usage + DONE

    def fault_event(self, fault: Fault) -> bytes:
        """Too late for a status: it is in the stream, which ends here."""
        return event_of(fault.body)

    def _chunk(self, index: int, delta: Delta) -> dict[str, Any]:
        """The chunk that a delta adds."""
        choice = self.choices[index]
        is_first = choice.n_deltas == 0
        content, calls, finish = choice.take(delta)
        body: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": finish}
        if self.has_logprobs:
            body["logprobs"] = self._logprobs(delta.logprobs, choice)
        if self.is_chat:
            part: dict[str, Any] = {"role": "assistant"} if is_first else {}
            if content or is_first:
                part["content"] = content
            if calls:
                part["tool_calls"] = [{"index": i} | call for i, call in enumerate(calls)]
            body["delta"] = part
        else:
            body["text"] = content
        return self._object([body], chunk=True) | ({"usage": None} if self.with_usage else {})

    def add(self, index: int, delta: Delta) -> None:
        choice = self.choices[index]
        content, calls, finish = choice.take(delta)
        choice.text += content
        choice.calls += calls
        choice.finish = finish
        choice.logprobs += delta.logprobs

    def whole(self) -> dict[str, Any]:
        choices = [self._whole_choice(i, choice) for i, choice in enumerate(self.choices)]
        return self._object(choices, chunk=False) | {"usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        """The usage of all choices: each reads the prompt for itself."""
        counts = [choice.counts for choice in self.choices]
        prompt, completion = sum(c.prompt_tokens for c in counts), sum(c.completion_tokens for c in counts)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(c.cached_tokens for c in counts)},
            "completion_tokens_details": {
                "accepted_prediction_tokens": sum(c.accepted_tokens for c in counts),
                "rejected_prediction_tokens": sum(c.drafted_tokens - c.accepted_tokens for c in counts),
            },
            "kolm": {"steps": sum(c.steps for c in counts), "drafts": by_source(counts)},
        }

    def _whole_choice(self, index: int, choice: "Choice") -> dict[str, Any]:
        body: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": choice.finish}
        if self.has_logprobs:
            choice.n_chars = 0
            body["logprobs"] = self._logprobs(choice.logprobs, choice)
        if not self.is_chat:
            return body | {"text": choice.text}
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        if choice.calls:
            message |= {"content": choice.text or None, "tool_calls": choice.calls}
        return body | {"message": message}

    def _object(self, choices: Sequence[Mapping[str, Any]], *, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion" + (".chunk" if chunk else "")) if self.is_chat else "text_completion"
        body = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        return body | {"kolm": self.kolm} if self.kolm else body

    def _logprobs(self, logprobs: Sequence[TokenLogprob], choice: "Choice") -> dict[str, Any]:
        if self.is_chat:
            return {"content": [_chat_logprob(one) for one in logprobs], "refusal": None}
        offsets = []
        for one in logprobs:
            offsets.append(choice.n_chars)
            choice.n_chars += len(one.token)
        return {
            "tokens": [one.token for one in logprobs],
            "token_logprobs": [_finite(one.logprob) for one in logprobs],
            "top_logprobs": [{text: _finite(value) for text, value in one.top} for one in logprobs],
            "text_offset": offsets,
        }


@dataclass(slots=True)
class Choice:
    reader: FormWriter | ToolReader | None
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    counts: Counts = field(default_factory=Counts)
    n_deltas: int = 0
    n_chars: int = 0

    def take(self, delta: Delta) -> tuple[str, list[dict[str, Any]], str | None]:
        """(content, tool calls, finish reason) that are told now."""
        self.counts, self.n_deltas = delta.counts, self.n_deltas + 1
        finish = None if delta.finish_reason is None else str(delta.finish_reason)
        if self.reader is None:
            return delta.text, [], finish
        content = self.reader.push(delta.text)
        if finish is None:
            return content, [], None
        held, calls = self.reader.finish()
        return content + held, calls, "tool_calls" if calls and finish == "stop" else finish


def event_of(value: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def by_source(counts: Sequence[Counts]) -> dict[str, dict[str, int]]:
    """Drafted and accepted tokens by where they came from."""
    sums: dict[str, dict[str, int]] = {}
    for one in (source for each in counts for source in each.by_source):
        row = sums.setdefault(str(one.kind), {"drafted": 0, "accepted": 0})
        row["drafted"] += one.drafted
        row["accepted"] += one.accepted
    return sums


def _chat_logprob(one: TokenLogprob) -> dict[str, Any]:
    return _token_row(one.token, one.logprob) | {"top_logprobs": [_token_row(text, value) for text, value in one.top]}


def _token_row(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode("utf-8", "replace"))}


def _finite(logprob: float) -> float:
    return max(_LOWEST, logprob)
