"""Times as the API writes them: RFC 3339, UTC, milliseconds."""

from datetime import UTC, datetime


def rfc3339(moment: datetime | None) -> str | None:
    """
    >>> rfc3339(datetime(2026, 11, 20, 10, 30, 0, 123456, tzinfo=UTC))
    '2026-11-20T10:30:00.123Z'
    """
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
