"""The plans: what each costs a month, how high its spend cap may be, and how much of each thing it allows.

The table is the truth about prices. A payment makes a plan active only when Stripe's price id, the amount and the
currency all agree with it (`backend.billing.activation`). Usage is priced by `backend.domain.money.pricing`, alike on
every plan; a plan only says how much a tenant may hold at once.
"""

from dataclasses import dataclass
from enum import StrEnum

from backend.domain.errors import InvalidInput, PaymentRequired

MICROUSD_PER_USD = 1_000_000
CURRENCY = "usd"


class PlanName(StrEnum):
    FREE = "free"
    PRO = "pro"
    TEAM = "team"
    ENTERPRISE = "enterprise"


class Entitlement(StrEnum):
    """The entitlements of a plan: the first four by number, the last two are in it or not."""

    CONCURRENT_COMPILES = "concurrent_compiles"
    SEATS = "seats"
    API_KEYS = "api_keys"
    WEBHOOK_ENDPOINTS = "webhook_endpoints"
    SSO = "sso"
    AUDIT_LOG = "audit_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One row of the table. A limit of None is no limit; `monthly_cents` of None is agreed by contract and invoiced.

    `runner_weight`: where teams compete for the runners, one of weight 4 gets four times the seconds of one of weight 1
    (`jobs.fair_turns`). `cap_default_microusd` is the monthly spend cap that a tenant begins with, `cap_max_microusd`
    the highest that it may set for itself: on the free plan the two are one, a hard cap.
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


PLANS: tuple[Plan, ...] = (
    Plan(
        name=PlanName.FREE,
        title="Free",
        monthly_cents=0,
        cap_default_microusd=25 * MICROUSD_PER_USD,
        cap_max_microusd=25 * MICROUSD_PER_USD,
        concurrent_compiles=2,
        seats=2,
        api_keys=5,
        webhook_endpoints=2,
        runner_weight=1,
        retention_days=30,
        sso=False,
        audit_log=False,
    ),
    Plan(
        name=PlanName.PRO,
        title="Pro",
        monthly_cents=4_900,
        cap_default_microusd=250 * MICROUSD_PER_USD,
        cap_max_microusd=None,
        concurrent_compiles=10,
        seats=10,
        api_keys=50,
        webhook_endpoints=10,
        runner_weight=2,
        retention_days=90,
        sso=False,
        audit_log=False,
    ),
    Plan(
        name=PlanName.TEAM,
        title="Team",
        monthly_cents=29_900,
        cap_default_microusd=2_500 * MICROUSD_PER_USD,
        cap_max_microusd=None,
        concurrent_compiles=50,
        seats=50,
        api_keys=250,
        webhook_endpoints=50,
        runner_weight=4,
        retention_days=365,
        sso=True,
        audit_log=True,
    ),
    Plan(
        name=PlanName.ENTERPRISE,
        title="Enterprise",
        monthly_cents=None,
        cap_default_microusd=None,
        cap_max_microusd=None,
        concurrent_compiles=None,
        seats=None,
        api_keys=None,
        webhook_endpoints=None,
        runner_weight=8,
        retention_days=3_650,
        sso=True,
        audit_log=True,
    ),
)
_BY_NAME = {row.name: row for row in PLANS}

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
    try:
        return _BY_NAME[PlanName(name)]
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
    for other in PLANS:
        theirs = getattr(other, what.value)
        if theirs is None or theirs > mine:
            return other
    return None
