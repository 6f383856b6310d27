"""The plans: what a tenant on each may do. Their prices and limits stand in a dated table (`price_catalog`), which the
operator may replace.

The table is the truth about prices. A payment makes a plan active only when Stripe's price id, the amount and the
currency all agree with it (`backend.billing.activation`). Usage is priced by `backend.domain.money.pricing`, alike on
every plan; a plan only says how much a tenant may hold at once.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from backend.domain.errors import InvalidInput, PaymentRequired
from backend.domain.money.plan_tables import CURRENCY, MICROUSD_PER_USD, Plan, PlanName
from backend.domain.money.price_catalog import catalog

__all__ = [
    "CURRENCY",
    "MICROUSD_PER_USD",
    "Entitlement",
    "Plan",
    "PlanName",
    "check_cap",
    "check_entitlement",
    "most_monthly_cents",
    "plan",
    "plan_then",
    "plans",
]


class Entitlement(StrEnum):
    """The entitlements of a plan: the first four by number, the last two are in it or not."""

    CONCURRENT_COMPILES = "concurrent_compiles"
    SEATS = "seats"
    API_KEYS = "api_keys"
    WEBHOOK_ENDPOINTS = "webhook_endpoints"
    SSO = "sso"
    AUDIT_LOG = "audit_log"


# What a tenant at its limit does, beside taking a larger plan.
_RELIEF = {
    Entitlement.CONCURRENT_COMPILES: ("compiles at once", "wait until one ends, cancel one"),
    Entitlement.SEATS: ("people", "remove someone"),
    Entitlement.API_KEYS: ("API keys", "revoke one"),
    Entitlement.WEBHOOK_ENDPOINTS: ("webhook endpoints", "delete one"),
}
_FEATURE = {Entitlement.SSO: "single sign-on", Entitlement.AUDIT_LOG: "the audit log's export"}


def plan(name: str) -> Plan:
    """The plan of that name. Raises InvalidInput.

    >>> plan("free").cap_max_microusd
    25000000
    """
    return _find(name, catalog().plan_tables[-1].plans)


def plans() -> tuple[Plan, ...]:
    """All plans, smallest first."""
    return tuple(catalog().plan_tables[-1].plans.values())


def plan_then(name: str, at: datetime) -> Plan:
    """The plan of that name as its table was at an aware time; before the first one, as in that. Raises
    InvalidInput."""
    tables = catalog().plan_tables
    return _find(name, next((table for table in reversed(tables) if table.effective_at <= at), tables[0]).plans)


def most_monthly_cents(name: str) -> int:
    """The highest price that a plan ever had."""
    return max(_find(name, table.plans).monthly_cents or 0 for table in catalog().plan_tables)


def _find(name: str, table: Mapping[PlanName, Plan]) -> Plan:
    try:
        return table[PlanName(name)]
    except ValueError:
        known = ", ".join(PlanName)
        raise InvalidInput(f"There is no plan {name[:40]!r}; there are {known}.", code="unknown_plan") from None


def check_entitlement(of: Plan | str, name: str, used: int = 0) -> None:
    """Return whether one more fits: `used` are there already. Raises PaymentRequired (`entitlement_reached`).

    >>> check_entitlement("free", "webhook_endpoints", 1)
    >>> check_entitlement("free", "webhook_endpoints", 2)
    Traceback (most recent call last):
    backend.domain.errors.PaymentRequired: The Free plan has 2 webhook endpoints and all are in use: delete one or ...
    """
    row = of if isinstance(of, Plan) else plan(of)
    what = Entitlement(name)
    limit: int | bool | None = getattr(row, what.value)
    if limit is None or limit is True:
        return
    larger = _first_with_more(row, what)
    move = f"move to the {larger.title} plan" if larger else "ask us for more"
    if limit is False:
        message = f"The {row.title} plan does not have {_FEATURE[what]}: {move}."
    elif used >= limit:
        noun, relief = _RELIEF[what]
        message = f"The {row.title} plan has {limit} {noun} and all are in use: {relief} or {move}."
    else:
        return
    raise PaymentRequired(message, code="entitlement_reached")


def check_cap(of: Plan | str, cap_microusd: int | None) -> None:
    """Return whether a tenant on this plan may set this monthly spend cap (None: none). Raises PaymentRequired."""
    row = of if isinstance(of, Plan) else plan(of)
    most = row.cap_max_microusd
    if most is not None and (cap_microusd is None or cap_microusd > most):
        raise PaymentRequired(
            f"The {row.title} plan's spend cap is ${most // MICROUSD_PER_USD} a month: a larger plan may raise it.",
            code="entitlement_reached",
        )


def _first_with_more(row: Plan, what: Entitlement) -> Plan | None:
    """The smallest plan that allows more of it."""
    mine = getattr(row, what.value)
    for other in plans():
        theirs = getattr(other, what.value)
        if theirs is None or theirs > mine:
            return other
    return None
