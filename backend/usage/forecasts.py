"""The forecast of the present month from the days of its usage facts."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from backend.domain.money.forecast import Forecast, forecast
from backend.usage.accounts import account_of
from backend.usage.reports import Group, usage_by


def month_forecast(tenant_id: UUID) -> Forecast:
    """What use will come to by the end of the account's period, at list price: before grants and credits. Days before
    the account was opened are no days without use."""
    account = account_of(tenant_id)
    first = max(account.period_start, account.created_at).astimezone(UTC).date()
    today, last = _today(account.now, first), account.period_end.astimezone(UTC).date()
    rows = usage_by(tenant_id, Group.DAY, account.period_start, account.period_end)
    by_day = {date.fromisoformat(row.key): row.charged_microusd for row in rows}
    whole = [by_day.get(first + timedelta(days=n), 0) for n in range((today - first).days)]
    return forecast(whole, by_day.get(today, 0), n_days=(last - first).days)


def _today(now: datetime, first: date) -> date:
    return max(first, now.astimezone(UTC).date())
