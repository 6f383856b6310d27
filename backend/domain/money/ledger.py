"""The double-entry ledger: its accounts, and the lines of every kind of transaction. Amounts are whole micro-USD.

Debit is positive. What a tenant owes or has used is positive (`held`, `accrued`, `receivable`, `waste`), what it has
been given and not used is negative (`credit:promo`, `credit:prepaid`), and `available` is the other side of `held`.
The lines of one transaction sum to 0 and none of them is 0.

    grant             promo | cash:stripe  +g      credit:*        -g
    hold              held                 +h      available       -h
    release           held                 -r      available       +r
    settle, charge    accrued              +c-x    revenue:<meter> -c     credit:* +x (what a grant paid)
                      held                 -h      available       +h     (settle alone: the part of a hold it used)
                      waste                +w      cogs:<meter>    -w     (kolm's own cost, on nobody's bill)
    credit_our_fault  our_fault            +c      accrued, credit:*      as they were charged, taken back
    expire            credit:*             +x      breakage        -x
    invoice           receivable           +i      accrued         -a     rounding a-i (i is whole cents)
    payment           cash:stripe          +p      receivable      -p
    refund            refunds              +r      cash:stripe     -r
    reverse           every line of another transaction, negated
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from uuid import UUID

MICROUSD_PER_CENT = 10_000


class Kind(StrEnum):
    GRANT = "grant"
    HOLD = "hold"
    CAPTURE = "settle"
    RELEASE = "release"
    CHARGE = "charge"
    CREDIT_OUR_FAULT = "credit_our_fault"
    INVOICE = "invoice"
    PAYMENT = "payment"
    REFUND = "refund"
    EXPIRE = "expire"
    REVERSE = "reverse"


class Meter(StrEnum):
    """The meters: a bill has a line for each."""

    TEACHER = "teacher"
    GPU_COMPILE = "gpu_compile"
    SERVING = "serving"
    STORAGE = "storage"
    PLATFORM = "platform"


class GrantKind(StrEnum):
    PROMO = "promo"
    PREPAID = "prepaid"


HELD, AVAILABLE, ACCRUED, RECEIVABLE, WASTE = "held", "available", "accrued", "receivable", "waste"
BREAKAGE, OUR_FAULT, CASH, REFUNDS, ROUNDING, PROMO = (
    "breakage",
    "our_fault",
    "cash:stripe",
    "refunds",
    "rounding",
    "promo",
)
CREDIT, REVENUE, COGS = "credit:", "revenue:", "cogs:"
# a promise is used up before money that was paid
GRANT_PRIORITY = {GrantKind.PROMO: 10, GrantKind.PREPAID: 20}
# what moves `accrued` by use, and what reverses it; an invoice only moves it on to `receivable`
OF_USE = frozenset({Kind.CAPTURE, Kind.CHARGE, Kind.CREDIT_OUR_FAULT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`grant_id` names the grant that a line on a credit account is of."""

    account: str
    amount_microusd: int
    grant_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """The part of a charge that one grant pays."""

    grant_id: UUID
    kind: GrantKind
    amount_microusd: int


class Unbalanced(ValueError):
    """The lines of a transaction do not sum to 0, or one of them is 0."""


def entry(*lines: Line) -> tuple[Line, ...]:
    """The lines summed by account and grant, without zeros. Raises Unbalanced where they do not sum to 0.

    >>> [(line.account, line.amount_microusd) for line in hold_lines(5)]
    [('held', 5), ('available', -5)]
    """
    sums: dict[tuple[str, UUID | None], int] = {}
    for line in lines:
        place = (line.account, line.grant_id)
        sums[place] = sums.get(place, 0) + line.amount_microusd
    if sum(sums.values()) != 0:
        raise Unbalanced(f"the lines sum to {sum(sums.values())}: {sums}")
    return tuple(
        Line(account=account, grant_id=grant_id, amount_microusd=amount)
        for (account, grant_id), amount in sums.items()
        if amount
    )


def grant_lines(kind: GrantKind, grant_id: UUID, amount: int) -> tuple[Line, ...]:
    source = PROMO if kind == GrantKind.PROMO else CASH
    return entry(Line(account=source, amount_microusd=amount), _credit(kind, grant_id, -amount))


def hold_lines(amount: int) -> tuple[Line, ...]:
    return entry(Line(account=HELD, amount_microusd=amount), Line(account=AVAILABLE, amount_microusd=-amount))


def release_lines(amount: int) -> tuple[Line, ...]:
    return hold_lines(-amount)


def charge_lines(
    charged: Mapping[Meter, int],
    *,
    wasted: Mapping[Meter, int] | None = None,
    paid: Sequence[Paid] = (),
    from_hold: int = 0,
) -> tuple[Line, ...]:
    """`charged` and `wasted` by meter. `paid` is what grants cover of it, `from_hold` how much of a hold it uses up."""
    lines = [*hold_lines(-from_hold)]
    covered = 0
    for part in paid:
        lines.append(_credit(part.kind, part.grant_id, part.amount_microusd))
        covered += part.amount_microusd
    lines.append(Line(account=ACCRUED, amount_microusd=sum(charged.values()) - covered))
    lines += [Line(account=f"{REVENUE}{meter}", amount_microusd=-amount) for meter, amount in charged.items()]
    for meter, amount in (wasted or {}).items():
        lines.append(Line(account=WASTE, amount_microusd=amount))
        lines.append(Line(account=f"{COGS}{meter}", amount_microusd=-amount))
    return entry(*lines)


def our_fault_lines(charged: Iterable[Line]) -> tuple[Line, ...]:
    """Takes back what these lines (of all transactions of a compile) charged to `accrued` and to grants."""
    back = [
        Line(account=line.account, grant_id=line.grant_id, amount_microusd=-line.amount_microusd)
        for line in charged
        if line.account == ACCRUED or line.account.startswith(CREDIT)
    ]
    total = -sum(line.amount_microusd for line in back)
    return entry(*back, Line(account=OUR_FAULT, amount_microusd=total))


def expire_lines(kind: GrantKind, grant_id: UUID, amount: int) -> tuple[Line, ...]:
    return entry(_credit(kind, grant_id, amount), Line(account=BREAKAGE, amount_microusd=-amount))


def invoice_lines(accrued: int, invoiced_cents: int) -> tuple[Line, ...]:
    """Accrued micro-USD become a receivable of whole cents; the difference goes to `rounding`."""
    invoiced = invoiced_cents * MICROUSD_PER_CENT
    return entry(
        Line(account=RECEIVABLE, amount_microusd=invoiced),
        Line(account=ACCRUED, amount_microusd=-accrued),
        Line(account=ROUNDING, amount_microusd=accrued - invoiced),
    )


def payment_lines(amount: int) -> tuple[Line, ...]:
    return entry(Line(account=CASH, amount_microusd=amount), Line(account=RECEIVABLE, amount_microusd=-amount))


def reverse_lines(lines: Iterable[Line]) -> tuple[Line, ...]:
    return entry(
        *(Line(account=line.account, grant_id=line.grant_id, amount_microusd=-line.amount_microusd) for line in lines)
    )


def sum_usage(lines: Iterable[Line]) -> int:
    """Return what these lines say was used, whoever paid: accrued and covered by grants."""
    return sum(line.amount_microusd for line in lines if line.account == ACCRUED or line.account.startswith(CREDIT))


def to_cents(microusd: int) -> int:
    """Whole cents, half to even.

    >>> [to_cents(amount) for amount in (4_999, 5_000, 15_000, 25_000, -5_000)]
    [0, 0, 2, 2, 0]
    """
    return int((Decimal(microusd) / MICROUSD_PER_CENT).to_integral_value(rounding=ROUND_HALF_EVEN))


def meter_of(sku: str, step: str = "") -> Meter:
    """The meter that a usage fact counts towards.

    >>> meter_of("runner.millisecond", "run").value, meter_of("runner.second", "distillation").value
    ('serving', 'gpu_compile')
    """
    if sku.startswith("teacher."):
        return Meter.TEACHER
    if step == "run" or sku.startswith("serving."):
        return Meter.SERVING
    if sku.startswith(("runner.", "embedding.")):
        return Meter.GPU_COMPILE
    if sku.startswith("storage."):
        return Meter.STORAGE
    return Meter.PLATFORM


def _credit(kind: GrantKind, grant_id: UUID, amount: int) -> Line:
    return Line(account=f"{CREDIT}{kind}", amount_microusd=amount, grant_id=grant_id)
