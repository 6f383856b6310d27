"""What a compile used in the transaction under way, and is booked when that ends: the account's row, which all of a
tenant's compiles share, is locked last and for as short as can be."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backend.usage import holds
from backend.usage.ledger import Fact, StepFact, capture, known_keys
from backend.usage.models import Billing

if TYPE_CHECKING:
    from backend.compiles.models import Compile


@dataclass(slots=True)
class Unbooked:
    """Facts to be booked, and what the compile's hold has left beyond them."""

    hold_left: int
    facts: list[StepFact] = field(default_factory=list)


def unbooked(compile: "Compile") -> Unbooked:
    """Of a locked compile."""
    if compile.unbooked is None:
        compile.unbooked = Unbooked(hold_left=holds.left_of(compile.tenant_id, compile.id))
    return compile.unbooked


def unknown(compile: "Compile", facts: Sequence[Fact]) -> list[Fact]:
    """The facts that are neither recorded nor waiting to be."""
    waiting = {row.fact.source_key for row in unbooked(compile).facts}
    known = waiting | known_keys(compile.tenant_id, [fact.source_key for fact in facts])
    return [fact for fact in facts if fact.source_key not in known]


def add(compile: "Compile", step: str, facts: Sequence[Fact]) -> None:
    """Have facts booked at the end of the transaction."""
    mine = unbooked(compile)
    for fact in facts:
        mine.facts.append(StepFact(step=step, fact=fact))
        if fact.billing == Billing.CHARGE:
            mine.hold_left -= fact.amount_microusd


def book(compile: "Compile") -> None:
    """Book what waits. `leases.fenced` and the end of a compile do this by themselves."""
    if compile.unbooked is not None and compile.unbooked.facts:
        capture(compile.tenant_id, compile.id, compile.unbooked.facts)
    compile.unbooked = None


def hold_again(compile: "Compile") -> None:
    """Set aside what a resumed compile may still cost: what its budget has left, or, where the customer's own key pays
    the teacher, no more than at first. Raises PaymentRequired."""
    left = compile.budget_microusd - compile.spent_microusd
    if compile.spec["teacher"].get("api_key") is not None:
        left = min(left, holds.amount_of(compile.tenant_id, compile.id) or left)
    holds.hold(compile.tenant_id, compile.id, left, api_key_id=compile.api_key_id)


def end(compile: "Compile") -> None:
    """Book what waits and give back what the hold has left."""
    book(compile)
    holds.release(compile.tenant_id, compile.id)
