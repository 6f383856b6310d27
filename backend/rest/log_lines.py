"""The parts that every log line of web has and has not: the request's id, its route instead of its path, and no fault
that the server below us would print by itself. Apart from the middleware, because logging is configured before Django
is."""

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

current_request_id: ContextVar[str] = ContextVar("kolm_request_id", default="-")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_log = logging.getLogger("kolm.web")


class AddRequestId(logging.Filter):
    """Puts `request_id` on log records, "-" outside a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current_request_id.get()
        return True


class RoutesForPaths(logging.Filter):
    """Django's lines of a request name its path, in which stand an invitation's token, an e-mail's key or a model's
    name, and quote its Host, Origin and Referer. Here they name the route and the status."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if request is None or not record.name.startswith("django."):
            return True
        method = request.method if request.method in _METHODS else "another method"
        match = request.resolver_match
        status = getattr(record, "status_code", "no answer")
        why = _reason(record) if record.name == "django.security.csrf" else ""
        record.msg = "%s %s: %s%s"
        record.args = (method, f"/{match.route}" if match else "(no route)", status, why)
        return True


def _reason(record: logging.LogRecord) -> str:
    """Return the reason of a CSRF refusal: a sentence of Django's, with another site's address after its dash."""
    args = record.args if isinstance(record.args, tuple) and record.args else ("",)
    return f" ({str(args[0]).partition(' - ')[0]})"


def log_what_escapes(app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The ASGI application, with its faults in our log: granian prints a fault's words itself, and `guard_logs` can
    only cut them off, with the traceback that precedes them."""

    async def log_faults(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception:
            _log.exception("a request ended the application")
            raise

    return log_faults
