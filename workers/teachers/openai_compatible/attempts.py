"""Makes one attempt of a call: one HTTP exchange, read into an answer or into the failure that it is.

A failure says what the attempt may have cost, how long the endpoint wants to be left alone, and which refusal may teach
something. Its message quotes no word of the server's answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx

from backend.domain.dialects.faults import FAULT_TEXTS, MAY_PASS, TeacherFault
from backend.outbound import (
    BodyCompressed,
    BodyTooLarge,
    OutboundCanceled,
    OutboundRefused,
    OutboundTimeout,
    read_capped,
)
from workers.teachers.openai_compatible import answers, endpoint_faults, refusals, retry, waits
from workers.teachers.openai_compatible.logprobs import BadAnswer
from workers.teachers.openai_compatible.statements import REFUSAL_CAP, read_statement
from workers.teachers.protocol import CompletionRequest, TeacherCanceled, Usage
from workers.teachers.token_estimates import likely_input_tokens

T = TypeVar("T")
_TOO_LARGE = "the request is too large for it"
BROKEN_JSON = "it withholds an answer that is not the JSON it was asked for"


class AttemptFailed(Exception):
    """One attempt failed. `usage` is what it may have cost, `refusal` its status and body, where it may be about an
    option."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        refusal: tuple[int, bytes] | None = None,
        fault: TeacherFault | None = None,
        is_broken_json: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.fault = fault
        self.message = message
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.refusal = refusal
        self.is_broken_json = is_broken_json

    @property
    def is_lasting(self) -> bool:
        """The next attempt would not mend it."""
        return self.fault is not None and self.fault not in MAY_PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The body of a 200, and its headers."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def request_id(self) -> str | None:
        return self.headers.get("x-request-id")


def send(
    client: httpx.Client,
    method: str,
    url: str,
    read: Callable[[httpx.Response], T],
    *,
    api_key: str | None,
    most: Usage | None,
    **content: Any,
) -> T:
    """Return what `read` makes of the answer to one request; `most` is the most that it may cost from its first byte
    on. Raises AttemptFailed, TeacherCanceled."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with client.stream(method, url, headers=headers, **content) as response:
            _check_status(response, has_key=api_key is not None, most=most)
            return read(response)
    except OutboundRefused as refused:
        raise AttemptFailed("teacher_rejected", refused.message.rstrip("."), fault=TeacherFault.ADDRESS) from None
    except BodyTooLarge as large:
        fault = TeacherFault.COMPRESSED if isinstance(large, BodyCompressed) else None
        raise AttemptFailed("teacher_too_large", str(large), usage=most, fault=fault) from None
    except OutboundTimeout:
        raise AttemptFailed("teacher_timeout", "it did not finish its answer in time", usage=most) from None
    except OutboundCanceled:
        raise TeacherCanceled(most) from None
    except httpx.ConnectTimeout:
        raise AttemptFailed("teacher_timeout", "no connection to it could be made in time") from None
    except httpx.ConnectError as unconnected:
        fault = endpoint_faults.fault_of_connection(unconnected)
        message = "no connection to it could be made" if fault is None else FAULT_TEXTS[fault].finding
        raise AttemptFailed("teacher_unreachable", message, fault=fault) from None
    except (httpx.RemoteProtocolError, httpx.DecodingError):
        raise AttemptFailed("teacher_unreachable", "it broke off in the middle of its answer", usage=most) from None
    except httpx.HTTPError as broken:
        message = f"the connection to it broke ({type(broken).__name__})"
        raise AttemptFailed("teacher_unreachable", message, usage=most) from None


def _check_status(response: httpx.Response, *, has_key: bool, most: Usage | None) -> None:
    """Raise AttemptFailed for any status but 200; a refusal is read as far as it tells a fault or may teach something.
    One of an answer, not of the request, may have been billed."""
    status = response.status_code
    if status == 200:
        return
    raw = _read_refusal(response) if status in endpoint_faults.JUDGED | refusals.LEARNT_FROM else b""
    if read_statement(raw).is_broken_json:
        raise AttemptFailed("teacher_protocol", BROKEN_JSON, usage=most, is_broken_json=True)
    wait = waits.wait_s(response.headers, raw, datetime.now(UTC))
    kind = response.headers.get("content-type", "")
    fault = endpoint_faults.fault_of(status, raw, content_type=kind, has_key=has_key)
    if status == 429 and fault is None:
        raise AttemptFailed("teacher_rate_limited", "it answers 429, too many requests", retry_after_s=wait)
    refusal = (status, raw) if status in refusals.LEARNT_FROM else None
    if retry.is_retried(status) and status != 429:
        broken = TeacherFault.SERVER_ERROR if status >= 500 else None
        message = f"it answers with status {status}"
        raise AttemptFailed("teacher_unreachable", message, retry_after_s=wait, refusal=refusal, fault=broken)
    if fault is TeacherFault.SERVER_ERROR:
        message = f"the server behind it failed ({status})"
        raise AttemptFailed("teacher_unreachable", message, retry_after_s=wait, refusal=refusal, fault=fault)
    if fault is None:
        raise AttemptFailed("teacher_rejected", _TOO_LARGE if status == 413 else f"it answers with status {status}")
    raise AttemptFailed("teacher_rejected", f"{FAULT_TEXTS[fault].finding} ({status})", refusal=refusal, fault=fault)


def read_reply(response: httpx.Response, *, cap: int) -> Reply:
    """Read a 200, which may hold a refusal that says when to come back."""
    return Reply(body=read_capped(response, cap=cap), headers=response.headers)


def _read_refusal(response: httpx.Response) -> bytes:
    try:
        return read_capped(response, cap=REFUSAL_CAP)
    except BodyTooLarge:
        return b""


def parse_answer(parse: Callable[[bytes], T], reply: Reply, request: CompletionRequest, *, has_key: bool) -> T:
    """Return what `parse` makes of the body of a 200. Raises AttemptFailed."""
    try:
        return parse(reply.body)
    except BadAnswer as wrong:
        failed = answers.error_of_choices(reply.body)
        if failed is not None:
            raise _failed_choices(*failed, reply, request, has_key=has_key) from None
        if not answers.is_no_completion(reply.body):
            raise AttemptFailed("teacher_protocol", str(wrong), usage=most_usage(request)) from None
        raise _no_completion(reply, str(wrong), request, has_key=has_key) from None


def _failed_choices(
    error: bytes, usage: object, reply: Reply, request: CompletionRequest, *, has_key: bool
) -> AttemptFailed:
    """The failure of a completion that has an error in the place of every choice: it costs what the vendor reports."""
    failed = _no_completion(replace(reply, body=error), "every choice is an error", request, has_key=has_key)
    if isinstance(usage, dict):
        reported = answers.read_usage(usage, request, ())
        failed.usage = reported if reported.input_tokens or reported.output_tokens else None
    return failed


def _no_completion(reply: Reply, wrong: str, request: CompletionRequest, *, has_key: bool) -> AttemptFailed:
    """The failure of a 200 that is something else: a refusal inside it is one, and generated nothing."""
    raw = reply.body
    if read_statement(raw).is_broken_json:
        return AttemptFailed("teacher_protocol", BROKEN_JSON, usage=most_usage(request), is_broken_json=True)
    status = endpoint_faults.status_within(raw)
    if status is None:
        fault = endpoint_faults.fault_of_answer(raw)
        usage = None if fault is TeacherFault.HTML else most_usage(request)  # no model writes a page of a web server
        return AttemptFailed("teacher_protocol", wrong, usage=usage, fault=fault)
    wait = waits.wait_s(reply.headers, raw, datetime.now(UTC))
    refused = endpoint_faults.fault_of(status, raw, has_key=has_key)
    if status == 429 and refused is None:
        message = "it answers 200 with an error 429, too many requests"
        return AttemptFailed("teacher_rate_limited", message, retry_after_s=wait)
    if retry.is_retried(status) and refused is None:
        message = "it answers 200 with an error of its own"
        return AttemptFailed("teacher_unreachable", message, retry_after_s=wait, fault=TeacherFault.SERVER_ERROR)
    fault = refused or TeacherFault.OTHER_REFUSAL
    refusal = (status, raw) if status in refusals.LEARNT_FROM else None
    if fault is TeacherFault.SERVER_ERROR:
        message = "the server behind it failed (200 with an error)"
        return AttemptFailed("teacher_unreachable", message, retry_after_s=wait, refusal=refusal, fault=fault)
    message = f"{FAULT_TEXTS[fault].finding} (200 with an error)"
    return AttemptFailed("teacher_rejected", message, refusal=refusal, fault=fault)


def most_usage(request: CompletionRequest) -> Usage:
    """The most that an attempt may have cost that was sent but not understood: the estimated prompt, and every token
    that it could write."""
    return Usage(input_tokens=likely_input_tokens(request), output_tokens=request.most_output_tokens, estimated=True)
