"""Errors of the OpenAI-compatible addresses: the problem document of every other address, with OpenAI's `error` member
in it, so that OpenAI's clients read theirs and ours read theirs."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse

from backend.rest.problems import CONTENT_TYPE, Refusal, answer_to, problem_body

_TYPE_OF = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """The `error` member."""
    fallback = "invalid_request_error" if refusal.status < 500 else "server_error"
    param = refusal.errors[0].pointer.lstrip("/") if refusal.errors else None
    kind = _TYPE_OF.get(refusal.status, fallback)
    return {"message": refusal.detail, "type": kind, "param": param, "code": refusal.code}


def respond(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    problem = problem_body(refusal, path=request.path, request_id=getattr(request, "request_id", None))
    body = problem | {"error": openai_error(refusal)}
    return HttpResponse(
        json.dumps(body, ensure_ascii=False), status=refusal.status, content_type=CONTENT_TYPE, headers=refusal.headers
    )


def respond_to(request: HttpRequest, error: Exception) -> HttpResponse:
    return respond(request, answer_to(error))


def event_of(refusal: Refusal) -> bytes:
    """The error as the last event of a stream that had begun."""
    return f"data: {json.dumps({'error': openai_error(refusal)}, ensure_ascii=False)}\n\n".encode()
