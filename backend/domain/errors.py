"""The one exception tree.

    KolmError
    |- CustomerError      the tenant's to mend: shown as is, 4xx, stable `code`
    |  |- InvalidSpec      the spec breaks a rule; carries one problem per JSON pointer
    |  |- InvalidInput     any other malformed request or upload
    |  |- NotFound         no such object for this tenant (also: another tenant's object)
    |  |- Conflict         the object is in a state that forbids the move
    |  |- PaymentRequired  a budget or spend cap is reached
    |  |- TooManyRequests  a rate limit; carries `retry_after_s`
    |  `- Forbidden        the key lacks the scope
    `- OurError           ours to mend: logged, 5xx, retried
       |- Unavailable      a part of this installation does not answer just now
       `- TeacherFailed    the teacher could not be made to answer within its retries

Only `backend.rest` knows HTTP; nothing here names a status.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault at one place of a document; `pointer` is RFC 6901 ("" is the whole document)."""

    pointer: str
    message: str
    code: str = "invalid"


class KolmError(Exception):
    """`code` is stable and machine-readable; `message` says what happened and what to do."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class CustomerError(KolmError):
    code = "invalid_request"


class InvalidInput(CustomerError):
    code = "invalid_input"

    def __init__(self, message: str, *, code: str | None = None, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.problems = problems


class InvalidSpec(InvalidInput):
    code = "invalid_spec"


class NotFound(CustomerError):
    code = "not_found"


class Conflict(CustomerError):
    code = "conflict"


class PaymentRequired(CustomerError):
    code = "payment_required"


class Forbidden(CustomerError):
    code = "forbidden"


class TooManyRequests(CustomerError):
    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_s: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class OurError(KolmError):
    code = "internal_error"


class Unavailable(OurError):
    code = "unavailable"


class TeacherFailed(OurError):
    code = "teacher_failed"
