"""The use of a compile in the transaction under way, booked when that ends: the account's row, which all of a tenant's
compiles share, is locked last and for as short as can be."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self
from uuid import UUID

from backend.compiles.models import Compile
from backend.usage import holds
from backend.usage.ledger import Fact, StepFact, capture, known_keys
from backend.usage.models import Billing
from backend.usage.subjects import Subject


@dataclass(slots=True, kw_only=True)
class Unbooked:
    """Facts to be booked at the end of a transaction, and what the compile's hold has left beyond them."""

    tenant_id: UUID
    compile_id: UUID
    facts: list[StepFact] = field(default_factory=list)
    _hold_left: int | None = field(default=None, init=False)

    @property
    def hold_left(self) -> int:
        if self._hold_left is None:
            self._hold_left = holds.left_of(self.tenant_id, self.compile_id)
        return self._hold_left

    def unknown(self, facts: Sequence[Fact]) -> list[Fact]:
        """The facts that are neither recorded nor waiting to be."""
        waiting = {row.fact.source_key for row in self.facts}
        known = waiting | known_keys(self.tenant_id, [fact.source_key for fact in facts])
        return [fact for fact in facts if fact.source_key not in known]

    def add(self, step: str, facts: Sequence[Fact]) -> None:
        """Have facts booked at the end of the transaction."""
        left = self.hold_left
        for fact in facts:
            self.facts.append(StepFact(step=step, fact=fact))
            if fact.billing == Billing.CHARGE:
                left -= fact.amount_microusd
        self._hold_left = left

    def book(self) -> None:
        """Book what waits. `leases.fenced_transaction` and the end of a compile do this by themselves."""
        if self.facts:
            capture(self.tenant_id, self.compile_id, self.facts)
        self.facts, self._hold_left = [], None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A compile that a transaction has locked, behind the fence of its lease or as `locked_compile` does, and what the
    transaction has used of its money."""

    compile: Compile
    unbooked: Unbooked

    @classmethod
    def around(cls, compile: Compile) -> Self:
        """A locked compile of whose money nothing is used yet."""
        return cls(compile=compile, unbooked=Unbooked(tenant_id=compile.tenant_id, compile_id=compile.id))


def hold_again(compile: Compile) -> None:
    """Set aside what a resumed compile may still cost: what its budget has left, or, where the customer's own key pays
    the teacher, no more than at first. Raises PaymentRequired."""
    left = compile.budget_microusd - compile.spent_microusd
    if compile.spec["teacher"].get("api_key") is not None:
        left = min(left, holds.amount_of(compile.tenant_id, compile.id) or left)
    subject = Subject(name=compile.name, tags=compile.spec.get("tags", {}))
    holds.hold(compile.tenant_id, compile.id, left, api_key_id=compile.api_key_id, subject=subject)


def end(fenced: Fenced) -> None:
    """Book what waits and give back what the hold has left."""
    fenced.unbooked.book()
    holds.release(fenced.compile.tenant_id, fenced.compile.id)
