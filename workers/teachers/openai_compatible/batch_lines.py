"""The lines of a batch's files: one request each in what is sent, one answer or error each in what comes back.

What comes back is hostile input, as every answer of a teacher is: a line that is no JSON, has no name of ours or comes
a second time counts for nothing, and no message quotes a word of it.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from backend.domain.dialects.dialect import Dialect, Lesson
from backend.domain.dialects.faults import FAULT_TEXTS, TeacherFault
from workers.teachers.openai_compatible import refusals, retry
from workers.teachers.openai_compatible.answers import (
    Answer,
    error_of_choices,
    is_no_completion,
    no_answer,
    parse_json,
    read_chat,
)
from workers.teachers.openai_compatible.attempts import BROKEN_JSON, AttemptFailed, Reply, most_usage, parse_answer
from workers.teachers.openai_compatible.endpoint_faults import fault_of, status_within
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.statements import read_statement
from workers.teachers.protocol import Completion, CompletionRequest, Message, TeacherFailed, Usage

# an error that says of a line that it was never run: it costs nothing, and may be sent again
NOT_RUN = frozenset({"batch_expired", "batch_cancelled", "batch_canceled"})
LEAST_STATUS = 100  # below, a status is none: the request came to no end


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One request of a batch: its name, what is asked, and the body by which it is asked."""

    name: str
    request: CompletionRequest
    body: Mapping[str, Any]

    def line(self, url: str) -> bytes:
        """The line of the input file."""
        return _dump({"custom_id": self.name, "method": "POST", "url": url, "body": self.body})

    def to_json(self) -> bytes:
        return _dump({"name": self.name, "request": asdict(self.request), "body": self.body})

    @classmethod
    def from_json(cls, row: bytes) -> Self:
        """Read what `to_json` wrote."""
        value = json.loads(row)
        asked = dict(value["request"])
        asked["messages"] = tuple(Message(**message) for message in asked["messages"])
        asked["drafts"] = tuple(asked["drafts"])
        asked["labels"] = tuple(asked.get("labels", ()))  # a release before this one stored none
        return cls(name=value["name"], request=CompletionRequest(**asked), body=value["body"])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One line of an output or error file. `status` is that of the answer, None where the request was not run."""

    name: str
    status: int | None
    body: bytes
    fault: str
    request_id: str


def read_lines(rows: Iterable[bytes]) -> Iterator[BatchLine]:
    """The lines that can be read, each name once: the first that has it counts."""
    seen: set[str] = set()
    for row in rows:
        line = _read_line(row)
        if line is not None and line.name not in seen:
            seen.add(line.name)
            yield line


def _read_line(row: bytes) -> BatchLine | None:
    try:
        value = parse_json(row)
    except BadAnswer:
        return None
    name, response, error = value.get("custom_id"), value.get("response"), value.get("error")
    if not isinstance(name, str):
        return None
    fault = error.get("code") if isinstance(error, dict) else None
    return BatchLine(
        name=name,
        status=_status(response, is_failed=bool(error)) if isinstance(response, dict) else None,
        body=json.dumps(response.get("body")).encode() if isinstance(response, dict) else b"",
        fault=fault if isinstance(fault, str) else "",
        request_id=_short(response.get("request_id")) if isinstance(response, dict) else "",
    )


def _status(response: Mapping[str, Any], *, is_failed: bool) -> int | None:
    """The status of an answer, also where it is a text. Without one it is 200 where the body is a completion, or an
    error and the line has none of its own: what was run and paid is not sent a second time."""
    status, body = response.get("status_code"), response.get("body")
    if isinstance(status, str) and status.isascii() and status.isdigit() and len(status) == 3:
        return int(status)
    if status is None and isinstance(body, dict):
        is_answered = isinstance(body.get("choices"), list) or (bool(body.get("error")) and not is_failed)
        return 200 if is_answered else None
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _short(value: object) -> str:
    return value[:200] if isinstance(value, str) and value.isprintable() else ""


def answer_of(line: BatchLine, sent: BatchRequest) -> Answer | TeacherFailed | None:
    """Read what a line says of its request: an answer, of nothing where a filter refused its text; a failure, as a live
    call would have had it; None where it was never run. Of an answer that cannot be read the most is billed that it can
    have cost."""
    if line.status is None and (line.fault in NOT_RUN or not line.fault):
        return None
    if line.status is None or line.status < LEAST_STATUS:
        return _line_failure("teacher_unreachable", "its batch has no answer to it")
    if line.status == 200:
        return _answer_within(line, sent)
    if read_statement(line.body).is_broken_json:
        return _line_failure("teacher_protocol", BROKEN_JSON, usage=most_usage(sent.request))
    fault = fault_of(line.status, line.body)
    if fault is TeacherFault.CONTENT:
        return no_answer(sent.request)
    if line.status == 429 and fault is None:
        return _line_failure("teacher_rate_limited", "it answers 429, too many requests")
    if fault is TeacherFault.SERVER_ERROR:
        return _line_failure("teacher_unreachable", f"the server behind it failed ({line.status})")
    if retry.is_retried(line.status) and line.status != 429:
        return _line_failure("teacher_unreachable", f"it answers with status {line.status}")
    why = f"it answers with status {line.status}" if fault is None else f"{FAULT_TEXTS[fault].finding} ({line.status})"
    return _line_failure("teacher_rejected", why, fault=fault)


def _answer_within(line: BatchLine, sent: BatchRequest) -> Answer | TeacherFailed:
    """Read a line of status 200 as the body of a live call's 200, which may hold an error."""
    parse = functools.partial(read_chat, request=sent.request)
    reply = Reply(body=line.body, headers={})
    try:
        return parse_answer(parse, reply, sent.request, has_key=True)
    except AttemptFailed as failed:
        if failed.fault is TeacherFault.CONTENT:
            return no_answer(sent.request)
        return _line_failure(failed.code, failed.message, usage=failed.usage, fault=failed.fault)


def _refusal_of(line: BatchLine) -> tuple[int, bytes] | None:
    """The status and the body of a refusal, also of one within a 200; None for an answer."""
    if line.status != 200:
        return None if line.status is None else (line.status, line.body)
    failed = error_of_choices(line.body)
    body = line.body if failed is None else failed[0]
    status = status_within(body) if failed is not None or is_no_completion(line.body) else None
    return None if status is None else (status, body)


def is_filtered(line: BatchLine) -> bool:
    """Tell whether a filter refused the text of a line's request, which generated nothing."""
    refusal = _refusal_of(line)
    if refusal is None or read_statement(refusal[1]).is_broken_json:
        return False
    return fault_of(*refusal) is TeacherFault.CONTENT


def filter_failure(line: BatchLine, model: str) -> TeacherFailed:
    """The failure of a line that a filter refused after too many others, in the words of a live call's."""
    why = FAULT_TEXTS[TeacherFault.CONTENT].finding
    return TeacherFailed(
        f"The teacher {model} failed: {why} ({'200 with an error' if line.status == 200 else line.status}).",
        code="teacher_rejected",
        n_attempts=1,
        fault=TeacherFault.CONTENT,
    )


def lesson_of(line: BatchLine, sent: BatchRequest, dialect: Dialect, known: Sequence[Lesson]) -> Lesson | None:
    """Find what the refusal of a line teaches about an option of its body, if it does."""
    refusal = _refusal_of(line)
    if refusal is None or refusal[0] not in refusals.LEARNT_FROM:
        return None
    return refusals.lesson_of(*refusal, sent.body, dialect, known)


def completion_of(answer: Answer, line: BatchLine) -> Completion:
    return Completion(
        choices=answer.choices,
        usage=answer.usage,
        provider_request_id=line.request_id or None,
        revision=answer.system_fingerprint,
    )


def _line_failure(
    code: str, why: str, *, usage: Usage | None = None, fault: TeacherFault | None = None
) -> TeacherFailed:
    message = f"A line of the teacher's batch failed: {why}."
    return TeacherFailed(message, code=code, usage=usage, n_attempts=1, fault=fault)


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
