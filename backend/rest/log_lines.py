"""The request id on every log line. Apart from the middleware that sets it, because logging is configured before
Django is."""

import logging
from contextvars import ContextVar

current_request_id: ContextVar[str] = ContextVar("kolm_request_id", default="-")


class AddRequestId(logging.Filter):
    """Puts `request_id` on log records, "-" outside a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = current_request_id.get()
        return True
