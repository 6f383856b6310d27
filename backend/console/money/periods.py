"""The month that a money page is about: `?month=2026-11`, the present one without."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from backend.domain.errors import InvalidInput
from backend.usage.accounts import month_of

SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A calendar month of UTC, [start, end)."""

    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        return f"{self.start:%Y-%m}"

    @property
    def days(self) -> list[str]:
        """Every day, as `2026-11-30`."""
        return [f"{self.start + timedelta(days=n):%Y-%m-%d}" for n in range((self.end - self.start).days)]

    @property
    def title(self) -> str:
        return f"{self.start:%B %Y}"


def month(text: str | None) -> Month:
    """Raises InvalidInput."""
    if not text:
        start, end = month_of(timezone.now())
        return Month(start=start, end=end)
    try:
        start, end = month_of(datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise InvalidInput("Write the month like 2026-11.") from None
    return Month(start=start, end=end)


def months_since(first: datetime) -> list[Month]:
    """Return the months from this one back to that of `first`, the newest twelve."""
    months = [month(None)]
    while months[-1].start > first and len(months) < SHOWN:
        start, end = month_of(before(months[-1].start))
        months.append(Month(start=start, end=end))
    return months


def before(at: datetime) -> datetime:
    """The last moment before a month's beginning."""
    return datetime.fromtimestamp(at.timestamp() - 1, tz=UTC)
