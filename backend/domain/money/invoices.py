"""The arithmetic of an invoice: micro-USD of the ledger become whole cents, and nothing is lost on the way.

Each line is rounded by itself, half to even; what credits take off is one amount. The invoice's rounding is what its
cents are more (or less) than the ledger's micro-USD, and goes to an account of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.domain.money.ledger import MICROUSD_PER_CENT, Meter, to_cents


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    meter: Meter
    amount_microusd: int
    amount_cents: int

    @property
    def rounding_microusd(self) -> int:
        return self.amount_cents * MICROUSD_PER_CENT - self.amount_microusd


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """`billed_microusd` is what the ledger has left to pay, `invoiced_cents` what the invoice asks for it."""

    lines: tuple[UsageLine, ...]
    credit_cents: int
    billed_microusd: int

    @property
    def subtotal_cents(self) -> int:
        return sum(line.amount_cents for line in self.lines)

    @property
    def invoiced_cents(self) -> int:
        return self.subtotal_cents - self.credit_cents

    @property
    def rounding_microusd(self) -> int:
        return self.invoiced_cents * MICROUSD_PER_CENT - self.billed_microusd


def usage_sum(by_meter: Mapping[Meter, int], *, left_to_pay: int) -> UsageSum:
    """The usage part of an invoice: gross by meter, and what is left of it after grants and credits. A meter that was
    corrected below 0 has no line, and a period below 0 asks for nothing: its rest stays on the account.

    >>> found = usage_sum({Meter.TEACHER: 1_234_567, Meter.SERVING: 5_000}, left_to_pay=1_000_000)
    >>> [line.amount_cents for line in found.lines], found.credit_cents, found.invoiced_cents, found.rounding_microusd
    ([123, 0], 24, 99, -10000)
    """
    lines = tuple(
        UsageLine(meter=meter, amount_microusd=amount, amount_cents=to_cents(amount))
        for meter, amount in by_meter.items()
        if amount > 0
    )
    subtotal = sum(line.amount_cents for line in lines)
    gross = sum(line.amount_microusd for line in lines)
    billed = max(0, min(left_to_pay, gross))
    credit = subtotal if billed == 0 else max(0, min(subtotal, to_cents(gross - billed)))
    return UsageSum(lines=lines, credit_cents=credit, billed_microusd=billed)
