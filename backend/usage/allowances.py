"""Allowances: how serving spends, in a card's terms. A request's cost is known when it is over, and a cap must hold all
the same; so its worst case is authorized out of money that is reserved already.

    authorize   one conditional UPDATE of an allowance's row, before the request runs
    reserve     another allowance, under the account's lock, where none has room: a hold of several requests' worth
    capture     what was used, when a server reports it
    void        an authorization whose request never ran
    expire      what is left goes back, when nothing is authorized any more or at the allowance's end

Most requests touch neither the account nor the ledger. Money goes back however the request, the gateway or the server
died.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q

from backend.domain.cost_tags import merge
from backend.domain.money.ledger import Kind, hold_lines, release_lines
from backend.rest.new_ids import new_uuid7
from backend.usage import accounts, budgets, postings
from backend.usage.ledger import Fact, StepFact, book, known_keys
from backend.usage.models import Account, Allowance, Billing, BillingDue
from backend.usage.subjects import NOBODY, Subject, tags_of_keys

TAKES = timedelta(seconds=60)  # how long one allowance authorizes new requests
LEASE = timedelta(minutes=30)  # longer than a request runs and a server keeps what it could not report
N_WORST = 16  # worst cases in a new allowance, where there is room
STEP = "serve"

_AUTHORIZE = """
    UPDATE usage_allowance SET promised_microusd = promised_microusd + %(worst)s
    WHERE tenant_id = %(tenant)s AND id = (
        SELECT id FROM usage_allowance WHERE tenant_id = %(tenant)s AND api_key_id IS NOT DISTINCT FROM %(key)s
        AND is_open AND takes_until > now() AND amount_microusd - settled_microusd - promised_microusd >= %(worst)s
        ORDER BY takes_until LIMIT 1 FOR UPDATE)
    AND is_open AND amount_microusd - settled_microusd - promised_microusd >= %(worst)s
    RETURNING id"""
_VOID = """
    UPDATE usage_allowance SET promised_microusd = greatest(0, promised_microusd - %s) WHERE tenant_id = %s AND id = %s
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A request's use of an allowance, or a part of it. `fulfils` of what was authorized is not needed any more beyond
    what the facts cost: at the request's end, the rest of its worst case."""

    allowance_id: UUID | None
    api_key_id: UUID | None
    facts: tuple[Fact, ...]
    fulfils_microusd: int
    subject: Subject = NOBODY


def authorize(tenant_id: UUID, api_key_id: UUID | None, worst_microusd: int) -> UUID | None:
    """Authorize a request's worst case out of an open allowance, whose id this returns; None where none has room: then
    `reserve`, in a transaction of its own (it locks the account, and this has locked an allowance)."""
    with connection.cursor() as cursor:
        cursor.execute(_AUTHORIZE, {"tenant": tenant_id, "key": api_key_id, "worst": worst_microusd})
        row = cursor.fetchone()
    return None if row is None else UUID(str(row[0]))


def reserve(tenant_id: UUID, api_key_id: UUID | None, worst_microusd: int) -> UUID:
    """Set money aside for several requests like this one and authorize this one out of it. Raises PaymentRequired where
    not even this one fits."""
    account, at = accounts.lock_account(tenant_id)
    allowance_id = authorize(tenant_id, api_key_id, worst_microusd)  # somebody may have made one while this waited
    if allowance_id is not None:
        return allowance_id
    if _room_of(account, api_key_id) < N_WORST * worst_microusd:
        _release_idle(account, at)
    room = _room_of(account, api_key_id)
    if room < worst_microusd:
        if postings.account_headroom(account) < worst_microusd:
            raise accounts.cap_reached(account, worst_microusd)
        budgets.claim(account, api_key_id, worst_microusd)  # raises, and says which
    amount = max(worst_microusd, min(N_WORST * worst_microusd, room // 4))
    row = Allowance.objects.create(
        id=new_uuid7(),
        tenant_id=tenant_id,
        api_key_id=api_key_id,
        amount_microusd=amount,
        promised_microusd=worst_microusd,
        takes_until=at + TAKES,
        expires_at=at + LEASE,
    )
    lines = hold_lines(amount)
    postings.post(account, Kind.HOLD, f"allow:{row.id}", lines, at=at, api_key_id=api_key_id, allowance_id=row.id)
    budgets.count(account, api_key_id, used=0, held=amount, at=at)
    BillingDue.objects.filter(tenant_id=tenant_id, due_at__gt=row.takes_until).update(due_at=row.takes_until)
    return row.id


def void(tenant_id: UUID, allowance_id: UUID, worst_microusd: int) -> None:
    """Give back the authorization of a request that never ran."""
    with connection.cursor() as cursor:
        cursor.execute(_VOID, [worst_microusd, tenant_id, allowance_id])


def capture(tenant_id: UUID, rows: Sequence[Used]) -> set[str]:
    """Book what requests used, in the caller's transaction, whose last lock but the allowances' this takes. Out of
    their allowances; beyond those within the cap and the hard budgets; else as waste. What is recorded already is left
    as it is. Returns the source keys that are new."""
    account, at = accounts.lock_account(tenant_id)
    seen = known_keys(tenant_id, [fact.source_key for row in rows for fact in row.facts])
    fresh: set[str] = set()
    key_tags = tags_of_keys(tenant_id, [row.api_key_id for row in rows])
    for row in rows:
        facts = [fact for fact in row.facts if fact.source_key not in seen | fresh]
        if facts:
            fresh |= {fact.source_key for fact in facts}
            tags = merge(under=key_tags.get(row.api_key_id, {}) if row.api_key_id else {}, over=row.subject.tags)
            subject = replace(row.subject, tags=tags)
            _capture_one(account, replace(row, facts=tuple(facts), subject=subject), at)
    return fresh


def _capture_one(account: Account, used: Used, at: datetime) -> None:
    rows = Allowance.objects.of_tenant(account.tenant_id).select_for_update().filter(id=used.allowance_id)
    allowance = rows.first() if used.allowance_id is not None else None
    is_open = allowance is not None and allowance.is_open
    left = allowance.amount_microusd - allowance.settled_microusd if is_open else 0
    room = left + max(0, _room_of(account, used.api_key_id))
    booked, charged = [], 0
    for fact in used.facts:
        if fact.amount_microusd > room - charged:
            fact = replace(fact, billing=Billing.WASTE)
        else:
            charged += fact.amount_microusd
        booked.append(StepFact(step=STEP, fact=fact))
    from_hold = min(charged, left)
    book(
        account,
        Kind.CAPTURE if is_open else Kind.CHARGE,
        booked,
        at=at,
        compile_id=None,
        api_key_id=used.api_key_id,
        from_hold=from_hold,
        allowance_id=allowance.id if is_open else None,
        subject=used.subject,
    )
    if is_open:
        allowance.settled_microusd += from_hold
        fulfilled = charged + used.fulfils_microusd
        allowance.promised_microusd = max(0, allowance.promised_microusd - fulfilled)
        allowance.save(update_fields=["settled_microusd", "promised_microusd"])
        if not allowance.promised_microusd and (allowance.takes_until <= at or _is_used_up(allowance)):
            release(account, allowance, at)


def release(account: Account, row: Allowance, at: datetime) -> None:
    """Close an allowance and give back what it has left."""
    left = row.amount_microusd - row.settled_microusd
    row.is_open, row.promised_microusd = False, 0
    row.save(update_fields=["is_open", "promised_microusd"])
    postings.post(
        account,
        Kind.RELEASE,
        f"unallow:{row.id}",
        release_lines(left),
        at=at,
        api_key_id=row.api_key_id,
        allowance_id=row.id,
    )
    budgets.count(account, row.api_key_id, used=0, held=-left, at=at)


def expire(account: Account, at: datetime) -> datetime | None:
    """Release what is idle and what nobody reported the end of, on a locked account; return when to look again. Upkeep
    calls this."""
    open_rows = Allowance.objects.of_tenant(account.tenant_id).filter(is_open=True)
    over = Q(takes_until__lte=at, promised_microusd=0) | Q(expires_at__lte=at)
    for row in open_rows.filter(over).select_for_update():
        release(account, row, at)
    ends = [row.takes_until if row.takes_until > at else row.expires_at for row in open_rows]
    return min(ends, default=None)


def _is_used_up(row: Allowance) -> bool:
    """Return whether so little is left that hardly a request fits in."""
    return (row.amount_microusd - row.settled_microusd) * N_WORST < row.amount_microusd


def _release_idle(account: Account, at: datetime) -> None:
    """Near the cap, money that waits for requests which do not come must not refuse those which do."""
    idle = Allowance.objects.of_tenant(account.tenant_id).filter(is_open=True, promised_microusd=0)
    for row in idle.select_for_update():
        release(account, row, at)


def _room_of(account: Account, api_key_id: UUID | None) -> int:
    return min(postings.account_headroom(account), budgets.headroom(account, api_key_id))
