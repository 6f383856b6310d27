"""The one error of a body that cannot be answered."""


class BadRequest(Exception):
    """The body is not a call that can be answered; `param` is the parameter that it is about."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status
