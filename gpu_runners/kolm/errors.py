"""The exceptions that the client raises.

KolmError                everything below; `str()` is ready to be shown
  NotReachable           no answer, or one that broke off: the installation is away or the address is wrong
  InvalidRequest         400, 413, 415, 422: the request breaks a rule; `problems` names the places
  Unauthenticated        401: no key, or one that opens nothing
  PaymentRequired        402: a spend cap, a budget or a plan's limit
  Forbidden              403: the key lacks a scope, or the plan a feature
  NotFound               404
  Conflict               409: the object is in another state than the request needs
  RateLimited            429
  ServerError            5xx, and any other answer
  Unreadable             a file of yours that cannot be read (`documents`)
  BadSignature           a webhook that was not signed with this secret (`webhooks`)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One place in what was sent: a JSON Pointer, a stable code and a sentence."""

    pointer: str
    code: str
    message: str


class KolmError(Exception):
    """`code` is the API's stable code, `retryable` whether the same request may succeed later, `request_id` what finds
    it in the installation's logs."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        retryable: bool = False,
        request_id: str | None = None,
        retry_after_s: float | None = None,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retryable = status, code, retryable
        self.request_id, self.retry_after_s, self.problems = request_id, retry_after_s, problems


class NotReachable(KolmError):
    pass


class InvalidRequest(KolmError):
    pass


class Unauthenticated(KolmError):
    pass


class PaymentRequired(KolmError):
    pass


class Forbidden(KolmError):
    pass


class NotFound(KolmError):
    pass


class Conflict(KolmError):
    pass


class RateLimited(KolmError):
    pass


class ServerError(KolmError):
    pass


_CLASS_OF: dict[int, type[KolmError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    402: PaymentRequired,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}


def error_of(status: int, document: Any, *, url: str, retry_after_s: float | None = None) -> KolmError:
    """The error that an answer of `status` with this body (parsed JSON, or None) means."""
    problem: Mapping[str, Any] = document if isinstance(document, dict) else {}
    if isinstance(problem.get("error"), dict):  # of OpenAI's shape; the gateway's problems have it as a member
        problem = {"detail": problem["error"].get("message"), "code": problem["error"].get("code")} | dict(problem)
    faults = [fault for fault in problem.get("errors") or () if isinstance(fault, dict)]
    problems = tuple(
        Problem(
            pointer=str(fault.get("pointer") or "/"),
            code=str(fault.get("code") or ""),
            message=str(fault.get("detail") or fault.get("message") or ""),
        )
        for fault in faults
    )
    lines = [str(problem.get("detail") or f"{url} answered {status}.")]
    lines += [f"  {one.pointer}: {one.message}" for one in problems]
    if status == 401:
        lines.append("Log in with `kolm login`, or set KOLM_API_KEY to an API key of this installation.")
    if problem.get("request_id"):
        lines.append(f"(request {problem['request_id']})")
    return _CLASS_OF.get(status, ServerError)(
        "\n".join(lines),
        status=status,
        code=str(problem.get("code") or ""),
        retryable=bool(problem.get("retryable", status in (429, 502, 503, 504))),
        request_id=problem.get("request_id"),
        retry_after_s=retry_after_s,
        problems=problems,
    )
