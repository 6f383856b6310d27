"""Every error as `application/problem+json` (RFC 9457), whatever raised it: our tree, DRF, Django, the database.

`code` is stable and for programs; `detail` is for people and says what to do; `errors` names the places in the body
by JSON Pointer; `retryable` says whether the same request may succeed later. What is ours to mend is logged
and masked in the answer. `doc_url` is the code's entry on the page that this installation serves (`console.docs_site`).
"""

import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from django.conf import settings
from django.core import exceptions as django_errors
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import RawPostDataException, UnreadablePostError
from rest_framework import exceptions as drf
from rest_framework.request import Request
from rest_framework.views import set_rollback

from backend.domain import errors as ours
from backend.domain.errors import Problem

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE = "urn:kolm:error:"  # a name, not an address: the same on every installation
RETRY_AFTER_S = 5  # of a part that does not answer just now
MAX_PROBLEMS = 100  # places that one answer names

# The nearest class of our tree, in the order of its drawing: a subclass stands before its parent.
_STATUS_OF: tuple[tuple[type[ours.KolmError], int], ...] = (
    (ours.InvalidSpec, 422),
    (ours.InvalidInput, 400),
    (ours.NotFound, 404),
    (ours.Conflict, 409),
    (ours.PaymentRequired, 402),
    (ours.TooManyRequests, 429),
    (ours.Forbidden, 403),
    (ours.CustomerError, 400),
    (ours.Unavailable, 503),
    (ours.TeacherFailed, 502),
)
# Codes that HTTP has a more exact status for than their class.
_STATUS_OF_CODE = {
    "blob_store_full": 507,
    "digest_mismatch": 422,
    "part_mismatch": 422,
    "idempotency_key_reuse": 422,
    "payload_too_large": 413,
    "too_large": 413,
    "not_implemented": 501,
    "payments_not_configured": 501,
}

# DRF's own sentences, with what to do about them.
_ADVICE = {
    "method_not_allowed": "{} The header Allow names those of this address.",
    "unsupported_media_type": "{} Send JSON as application/json, and the lines of an upload as application/x-ndjson.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    status: int
    code: str
    detail: str
    errors: tuple[Problem, ...] = ()
    is_retryable: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


def exception_handler(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """DRF's hook: the answer to anything a view raises."""
    set_rollback()
    request: Request = context["request"]
    return respond(request._request, answer_to(error))


def problem_response(
    request: HttpRequest,
    *,
    status: int,
    code: str,
    detail: str,
    errors: Sequence[Problem] = (),
    is_retryable: bool = False,
    headers: Mapping[str, str] | None = None,
) -> HttpResponse:
    """An error answer for code outside DRF views (middleware, plain and async views)."""
    return respond(
        request,
        Refusal(
            status=status,
            code=code,
            detail=detail,
            errors=tuple(errors),
            is_retryable=is_retryable,
            headers=headers or {},
        ),
    )


def problem_for(request: HttpRequest, error: Exception) -> HttpResponse:
    """The same answer as a DRF view's, for views that are not DRF's: `except KolmError as e: return
    problem_for(request, e)`."""
    return respond(request, answer_to(error))


def respond(request: HttpRequest, answer: Refusal) -> HttpResponse:
    body = problem_body(answer, path=request.path, request_id=getattr(request, "request_id", None))
    response = HttpResponse(json.dumps(body, ensure_ascii=False), status=answer.status, content_type=CONTENT_TYPE)
    for name, value in answer.headers.items():
        response[name] = value
    return response


def problem_body(answer: Refusal, *, path: str, request_id: str | None) -> dict[str, Any]:
    return {
        "type": TYPE + answer.code,
        "title": answer.code.replace("_", " ").capitalize(),
        "status": answer.status,
        "detail": answer.detail,
        "instance": path,
        "code": answer.code,
        "errors": [{"pointer": e.pointer, "code": e.code, "detail": e.message} for e in answer.errors[:MAX_PROBLEMS]],
        "request_id": request_id,
        "retryable": answer.is_retryable,
        "doc_url": f"{settings.KOLM_PUBLIC_URL}/docs/errors#{answer.code}",
    }


def answer_to(error: Exception) -> Refusal:
    if isinstance(error, ours.KolmError):
        return _of_ours(error)
    if isinstance(error, drf.APIException):
        return _of_drf(error)
    return _of_django(error) or _of_database(error) or _mask(error)


def _of_ours(error: ours.KolmError) -> Refusal:
    status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), None)
    if status is None:
        return _mask(error)
    status = _STATUS_OF_CODE.get(error.code, status)
    headers = {}
    if isinstance(error, ours.TooManyRequests):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    elif isinstance(error, ours.Unavailable):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    elif error.code == "idempotency_in_flight":
        headers["Retry-After"] = "1"
    if isinstance(error, ours.OurError):
        logger.warning("answered %s", error.code)
    return Refusal(
        status=status,
        code=error.code,
        detail=error.message,
        errors=error.problems if isinstance(error, ours.InvalidInput) else (),
        is_retryable=bool(headers) or isinstance(error, ours.OurError),
        headers=headers,
    )


def _of_drf(error: drf.APIException) -> Refusal:
    headers: dict[str, str] = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header
    if isinstance(error, drf.Throttled) and error.wait is not None:
        headers["Retry-After"] = str(math.ceil(error.wait))
    if isinstance(error, drf.ValidationError):
        problems = tuple(islice(flatten(error.detail), MAX_PROBLEMS))
        is_typo = any(p.code == "unknown_parameter" for p in problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        first = problems[0] if problems else Problem(pointer="", message="The request is not valid.")
        return Refusal(
            status=400,
            code="unknown_parameter" if is_typo else "invalid_request",
            detail=f"{first.pointer.lstrip('/') + ': ' if first.pointer else ''}{first.message}{more}",
            errors=problems,
        )
    code = str(error.get_codes()) if isinstance(error.detail, str) else "invalid_request"
    code = {"throttled": "rate_limited", "error": "invalid_request", "parse_error": "malformed_json"}.get(code, code)
    return Refusal(
        status=error.status_code,
        code=code,
        detail=_ADVICE.get(code, "{}").format(error.detail),
        is_retryable=error.status_code in (429, 503),
        headers=headers,
    )


def flatten(detail: Any, pointer: str = "") -> Iterator[Problem]:
    """DRF's tree of messages as (pointer, message, code), in the order of the body."""
    if isinstance(detail, Mapping):
        for key, below in detail.items():
            step = "" if key == "non_field_errors" else "/" + str(key).replace("~", "~0").replace("/", "~1")
            yield from flatten(below, pointer + step)
    elif isinstance(detail, (list, tuple)):
        for index, below in enumerate(detail):
            is_message = isinstance(below, str)
            if below:
                yield from flatten(below, pointer if is_message else f"{pointer}/{index}")
    else:
        yield Problem(pointer=pointer, message=str(detail), code=getattr(detail, "code", None) or "invalid")


def _of_django(error: Exception) -> Refusal | None:
    if isinstance(error, Http404):
        return Refusal(
            status=404, code="not_found", detail="There is nothing at this address; see GET /v1/openapi.json."
        )
    if isinstance(error, django_errors.PermissionDenied):
        return Refusal(status=403, code="forbidden", detail="This is not allowed.")
    if isinstance(error, django_errors.RequestDataTooBig):
        return Refusal(
            status=413, code="payload_too_large", detail="The body is larger than this address takes; send less."
        )
    if isinstance(error, (UnreadablePostError, RawPostDataException)):
        return Refusal(
            status=400,
            code="incomplete_body",
            detail="The body broke off before its end; send it again.",
            is_retryable=True,
        )
    if isinstance(error, django_errors.SuspiciousOperation):
        return Refusal(status=400, code="bad_request", detail="The request is malformed.")
    return None


def _of_database(error: Exception) -> Refusal | None:
    """The database is away, too slow, or chose this transaction to break a deadlock: the same request may succeed
    later."""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return None
    logger.error("the database did not answer", exc_info=error)
    return Refusal(
        status=503,
        code="unavailable",
        detail="A part of this installation does not answer just now; try again.",
        is_retryable=True,
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def _mask(error: BaseException | None) -> Refusal:
    logger.error("a request failed", exc_info=error)
    return Refusal(
        status=500,
        code="internal_error",
        detail="Something broke on our side. It is logged under the request id: send that id to the operator.",
        is_retryable=not isinstance(error, DatabaseError),
    )


# --- Django's own handlers (urls.py): what never reaches a view ---------------------------------------------


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return respond(
        request, _of_django(exception) or Refusal(status=400, code="bad_request", detail="The request is malformed.")
    )


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return respond(request, Refusal(status=403, code="forbidden", detail="This is not allowed."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return respond(
        request,
        Refusal(
            status=404, code="not_found", detail=f"There is nothing at {request.path[:200]}; see GET /v1/openapi.json."
        ),
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """Also reached when no transaction could be begun, so that the database being away is a 503 here too."""
    error = sys.exc_info()[1]
    return respond(request, answer_to(error) if isinstance(error, Exception) else _mask(error))
