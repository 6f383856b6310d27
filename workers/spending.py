"""What a step spends: reserved before a teacher is called, settled with the step's effect, never above the compile's
budget."""

from collections.abc import Sequence
from dataclasses import replace

from django.db.models import F

from backend.compiles.events import touch
from backend.compiles.models import Compile, StepRun
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.usage.ledger import Fact, record
from backend.usage.models import Billing


def reserve(compile: Compile, amount_microusd: int) -> None:
    """Set money aside on a locked compile. Raises PaymentRequired when the budget has not that much left."""
    left = compile.budget_microusd - compile.spent_microusd - compile.reserved_microusd
    if amount_microusd > left:
        raise PaymentRequired(
            f"The next teacher calls may cost up to ${amount_microusd / 1e6:.6f} and the budget has "
            f"${left / 1e6:.6f} left. Resume the compile with a larger budget; what is done stays done.",
            code="budget_exhausted",
        )
    touch(compile, reserved_microusd=compile.reserved_microusd + amount_microusd)


def settle(compile: Compile, step: StepName, facts: Sequence[Fact], *, reserved_microusd: int = 0) -> None:
    """Book facts on a locked compile and give their reservation back. What the budget cannot carry is booked to waste:
    ours, not the customer's."""
    headroom = compile.budget_microusd - compile.spent_microusd - (compile.reserved_microusd - reserved_microusd)
    booked = []
    for fact in facts:
        if fact.billing == Billing.CHARGE and fact.amount_microusd > headroom:
            fact = replace(fact, billing=Billing.WASTE)
        if fact.billing == Billing.CHARGE:
            headroom -= fact.amount_microusd
        booked.append(fact)
    record(compile.tenant_id, booked, compile_id=compile.id, step=step)
    charged = sum(f.amount_microusd for f in booked if f.billing == Billing.CHARGE)
    wasted = sum(f.amount_microusd for f in booked if f.billing == Billing.WASTE)
    touch(
        compile,
        reserved_microusd=compile.reserved_microusd - reserved_microusd,
        spent_microusd=compile.spent_microusd + charged,
        waste_microusd=compile.waste_microusd + wasted,
    )
    StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile, name=step).update(
        spent_microusd=F("spent_microusd") + charged, waste_microusd=F("waste_microusd") + wasted
    )
