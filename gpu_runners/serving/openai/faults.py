"""The error that a caller gets when a call cannot be answered, in OpenAI's shape. Nothing of the request is in it but
names of its parameters."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from gpu_runners.errors import JobFailed
from gpu_runners.models.protocol import EngineFailed, Overloaded, Rejected
from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.responder import Refusal

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: float | None = None

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> JSONResponse:
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, round(self.retry_after_s)))
        return JSONResponse(self.body, status_code=self.status, headers=headers)


def fault_of(error: Exception) -> Fault:
    """The fault of anything that a call may end with; what nobody foresaw is a 500 without its words."""
    match error:
        case BadRequest():
            return Fault(status=error.status, message=error.message, param=error.param, code=error.code)
        case Refusal():
            return Fault(status=error.status, message=error.message, code=error.code, retry_after_s=error.retry_after_s)
        case Rejected():
            # the name that OpenAI's clients look for
            code = "context_length_exceeded" if error.code == "context_too_long" else error.code
            return Fault(status=400, message=str(error), code=code)
        case Overloaded():
            message = "Too many requests are waiting; try again later."
            return Fault(status=429, message=message, code="overloaded", retry_after_s=error.retry_after_s)
        case EngineFailed():
            return Fault(status=503, message=str(error), code=error.code, retry_after_s=1.0)
        case JobFailed():
            return Fault(status=400, message=error.message, code=error.code)
    return Fault(status=500, message="The server failed at this request.", code="internal_error")
