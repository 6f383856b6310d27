"""The money that a step spends: reserved before a teacher is called, settled with the step's effect, never above the
compile's budget."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import F

from backend.compiles.booking import Fenced
from backend.compiles.events import touch
from backend.compiles.models import Compile, StepRun
from backend.compiles.states import DELEGATE_CALLS, REWARD_CALLS
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.domain.number_words import usd_exact
from backend.domain.spec.parsing import Spec, judged_by, rewarded_by
from backend.usage.ledger import Fact
from backend.usage.models import Billing


def pays_teacher_itself(spec: Spec) -> bool:
    """Say whether the teacher is called with the customer's own key: then its provider bills the customer, not kolm."""
    return spec.teacher.api_key is not None


def pays_call_itself(spec: Spec, key: str) -> bool:
    """Say whether the call of this key in the journal is made with a key of the customer's own: the teacher's, or the
    one of the model that gives the spec's rewards, or of its own judge of drafts."""
    if key.startswith(DELEGATE_CALLS):
        return pays_teacher_itself(judged_by(spec))
    return pays_teacher_itself(rewarded_by(spec) if key.startswith(REWARD_CALLS) else spec)


def pays_stored_call_itself(stored: Mapping[str, Any], key: str) -> bool:
    """The same of a spec as it is stored, which today's rules may refuse: a compile ends, whatever its spec says."""
    asked = stored["teacher"]
    if key.startswith(REWARD_CALLS):
        rewards = (each for each in stored.get("verifiers") or () if each["kind"] == "reward" and each.get("base_url"))
        asked = next(rewards, asked)
    if key.startswith(DELEGATE_CALLS):
        judge = (stored.get("draft_cache") or {}).get("judge") or {}
        asked = judge if judge.get("base_url") else asked
    return asked.get("api_key") is not None


def reserve(compile: Compile, amount_microusd: int) -> None:
    """Set money aside on a locked compile. Raises PaymentRequired when the budget has not that much left."""
    left = left_of(compile)
    if amount_microusd > left:
        raise PaymentRequired(
            f"The next teacher calls may cost up to {usd_exact(amount_microusd)} and the budget has "
            f"{usd_exact(left)} left. Resume the compile with a larger budget; what is done stays done.",
            code="budget_exhausted",
        )
    touch(compile, reserved_microusd=compile.reserved_microusd + amount_microusd)


def capture(fenced: Fenced, step: StepName, facts: Sequence[Fact], *, reserved_microusd: int = 0) -> None:
    """Book facts on a locked compile and give their reservation back. What neither the budget nor the hold can carry is
    booked to waste: ours, not the customer's; of a runner's work what goes beyond a hold that is the smaller of the
    two. The ledger gets them at the end of the transaction."""
    compile, unbooked = fenced.compile, fenced.unbooked
    headroom = left_of(compile) + reserved_microusd
    hold_left = unbooked.hold_left
    booked = []
    for fact in unbooked.unknown(facts):
        for part in _divide(fact, headroom, hold_left):
            if part.billing == Billing.CHARGE:
                headroom -= part.amount_microusd + part.provider_microusd
                hold_left -= part.amount_microusd
            booked.append(part)
    unbooked.add(step, booked)
    charged = sum(f.amount_microusd for f in booked if f.billing == Billing.CHARGE)
    wasted = sum(f.amount_microusd for f in booked if f.billing == Billing.WASTE)
    touch(
        compile,
        reserved_microusd=compile.reserved_microusd - reserved_microusd,
        spent_microusd=compile.spent_microusd + charged,
        waste_microusd=compile.waste_microusd + wasted,
        provider_microusd=compile.provider_microusd + sum(f.provider_microusd for f in booked),
    )
    StepRun.objects.filter(tenant_id=compile.tenant_id, compile=compile, name=step).update(
        spent_microusd=F("spent_microusd") + charged, waste_microusd=F("waste_microusd") + wasted
    )


def _divide(fact: Fact, headroom: int, hold_left: int) -> list[Fact]:
    """The fact as there is money for it, charged or wasted. Of a runner's work the part that a hold carries is
    charged and the rest wasted, where the budget has more: that of a compile with a teacher's key of its own."""
    room = max(0, min(headroom, hold_left))  # 0 is always carried: what the customer's own provider bills is no waste
    if fact.billing != Billing.CHARGE or fact.amount_microusd <= room:
        return [fact]
    wasted = replace(fact, billing=Billing.WASTE)
    if not fact.sku.startswith("runner.") or not 0 < hold_left < headroom:
        return [wasted]
    n = fact.quantity * hold_left // fact.amount_microusd
    amount = fact.amount_microusd * n // fact.quantity
    if n == 0:
        return [wasted]
    beyond = replace(
        wasted,
        quantity=fact.quantity - n,
        amount_microusd=fact.amount_microusd - amount,
        source_key=f"{fact.source_key}:beyond",
    )
    return [replace(fact, quantity=n, amount_microusd=amount), beyond]


def left_to_bill(fenced: Fenced) -> int:
    """The rest of the budget that kolm may bill: no more than the hold has, which is less where the customer's own key
    pays the teacher."""
    return min(left_of(fenced.compile), fenced.unbooked.hold_left)


def left_of(compile: Compile) -> int:
    """The rest of the budget, with what the customer's own provider bills taken off it as well."""
    used = compile.spent_microusd + compile.provider_microusd + compile.reserved_microusd
    left: int = compile.budget_microusd - used
    return left
