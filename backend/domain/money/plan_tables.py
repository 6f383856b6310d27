"""A table of plans: what each costs a month, how high its spend cap may be, and how much of each thing it allows.
Tables are dated like price books: a month is invoiced by the table of its beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

MICROUSD_PER_USD = 1_000_000
CURRENCY = "usd"


class PlanName(StrEnum):
    FREE = "free"
    PRO = "pro"
    TEAM = "team"
    ENTERPRISE = "enterprise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One row of the table. A limit of None is no limit; `monthly_cents` of None is agreed by contract and invoiced.

    `cap_default_microusd` is the monthly spend cap that a tenant begins with, `cap_max_microusd` the highest that it
    may set for itself: on the free plan the two are one, a hard cap. `runner_weight`: where teams compete for the
    runners, one of weight 4 gets four times the seconds of one of weight 1 (`jobs.fair_turns`).
    """

    name: PlanName
    title: str
    monthly_cents: int | None
    cap_default_microusd: int | None
    cap_max_microusd: int | None
    concurrent_compiles: int | None
    seats: int | None
    api_keys: int | None
    webhook_endpoints: int | None
    runner_weight: int
    retention_days: int
    sso: bool
    audit_log: bool

    @property
    def cap_is_hard(self) -> bool:
        """Return whether the tenant cannot raise its own cap."""
        return self.cap_max_microusd is not None

    @property
    def is_sold(self) -> bool:
        """Return whether it is bought by card; the free plan is nobody's purchase, enterprise is a contract."""
        return bool(self.monthly_cents)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """The plans in force from `effective_at` until the next table, smallest first: every plan that there is."""

    version: str
    effective_at: datetime
    plans: Mapping[PlanName, Plan]
