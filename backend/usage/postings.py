"""The writing of the ledger: a transaction, its lines, and what they make of the account and its grants, in one place.

Whoever posts has locked the account's row (`accounts.lock_account`), which is the last lock of its transaction: so that
transactions of one tenant are booked one after another, in the order of their periods.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import F, QuerySet

from backend.domain.errors import Conflict
from backend.domain.money.ledger import (
    ACCRUED,
    AVAILABLE,
    CREDIT,
    HELD,
    OF_USE,
    GrantKind,
    Kind,
    Line,
    Paid,
    expire_lines,
    reverse_lines,
)
from backend.usage.models import Account, Grant, LedgerLine, LedgerTx


def post(
    account: Account,
    kind: Kind,
    key: str,
    lines: Sequence[Line],
    *,
    at: datetime,
    actor: str = "",
    reason: str = "",
    compile_id: UUID | None = None,
    api_key_id: UUID | None = None,
    allowance_id: UUID | None = None,
    reverses: LedgerTx | None = None,
    is_counted: bool = False,
) -> LedgerTx | None:
    """Book lines on a locked account; None when there are none. `is_counted`: the account's row has been changed for
    them already (a hold, which is one conditional UPDATE)."""
    if not lines:
        return None
    tx = write(
        account,
        kind,
        key,
        lines,
        at=at,
        actor=actor,
        reason=reason,
        compile_id=compile_id,
        api_key_id=api_key_id,
        allowance_id=allowance_id,
        reverses=reverses.id if reverses else None,
        is_use=reverses.is_use if reverses else kind in OF_USE,
    )
    if not is_counted:
        _count(account, tx, lines)
    return tx


def write(account: Account, kind: Kind, key: str, lines: Sequence[Line], **fields: object) -> LedgerTx:
    """The rows alone."""
    at = fields.pop("at")
    tx = LedgerTx.objects.create(
        tenant_id=account.tenant_id,
        key=key,
        kind=kind,
        period_start=account.period_start,
        booked_at=at,
        **fields,
    )
    LedgerLine.objects.bulk_create(
        LedgerLine(
            tenant_id=account.tenant_id,
            tx=tx,
            account=line.account,
            amount_microusd=line.amount_microusd,
            grant_id=line.grant_id,
        )
        for line in lines
    )
    return tx


def lines_of(txs: Sequence[LedgerTx]) -> list[Line]:
    rows = LedgerLine.objects.filter(tx__in=txs)
    return [Line(account=r.account, amount_microusd=r.amount_microusd, grant_id=r.grant_id) for r in rows]


def paid_by_grants(account: Account, amount_microusd: int) -> list[Paid]:
    """Return which grants pay for a charge, in their order, as far as they reach."""
    parts: list[Paid] = []
    left = min(amount_microusd, account.credit_microusd)
    if left <= 0:
        return parts
    for row in _usable(account.tenant_id):
        part = min(left, row.remaining_microusd)
        parts.append(Paid(grant_id=row.id, kind=GrantKind(row.kind), amount_microusd=part))
        left -= part
        if not left:
            break
    return parts


def expire_grants(account: Account, at: datetime) -> None:
    """Book what is left of expired grants as breakage. What compiles under way were promised stays until they end."""
    for row in _usable(account.tenant_id).filter(expires_at__lte=at):
        part = min(row.remaining_microusd, account_headroom(account))
        if part <= 0:
            return
        lines = expire_lines(GrantKind(row.kind), row.id, part)
        key = f"expire:{row.id}:{row.remaining_microusd}:{at.isoformat()}"
        post(account, Kind.EXPIRE, key, lines, at=at, actor="kolm")


def reverse(account: Account, tx: LedgerTx, *, at: datetime, actor: str, reason: str) -> LedgerTx:
    """Take a transaction back by its opposite; once. What it took from a hold is not held again: the compile goes on
    with what it has. Raises Conflict."""
    if LedgerTx.objects.of_tenant(account.tenant_id).filter(reverses=tx.id).exists():
        raise Conflict("This transaction was reversed already.", code="already_reversed")
    kept = [line for line in lines_of([tx]) if line.account not in (HELD, AVAILABLE)]
    made = None
    if tx.kind != Kind.REVERSE:
        made = post(
            account,
            Kind.REVERSE,
            f"reverse:{tx.id}",
            reverse_lines(kept),
            at=at,
            actor=actor,
            reason=reason,
            compile_id=tx.compile_id,
            api_key_id=tx.api_key_id,
            reverses=tx,
        )
    if made is None:
        raise Conflict(f"A transaction of kind {tx.kind} cannot be reversed.", code="not_reversible")
    return made


def account_headroom(account: Account) -> int:
    """Return what may still be spent or held, micro-USD; without a cap, more than anybody has."""
    if account.cap_microusd is None:
        return 1 << 62
    return account.cap_microusd + account.credit_microusd - account.held_microusd - account.spent_microusd


def _usable(tenant_id: UUID) -> QuerySet[Grant]:
    rows = Grant.objects.of_tenant(tenant_id).filter(remaining_microusd__gt=0)
    return rows.order_by("priority", F("expires_at").asc(nulls_last=True), "id")


def _count(account: Account, tx: LedgerTx, lines: Sequence[Line]) -> None:
    """The lines' sums onto the account and the grants."""
    by_grant: Counter[UUID] = Counter()
    for line in lines:
        if line.account == HELD:
            account.held_microusd += line.amount_microusd
        elif line.account == ACCRUED and tx.is_use:
            account.spent_microusd += line.amount_microusd
        elif line.account.startswith(CREDIT):
            account.credit_microusd -= line.amount_microusd
            if line.grant_id is not None:
                by_grant[line.grant_id] += line.amount_microusd
    for grant_id, amount in by_grant.items():
        rows = Grant.objects.of_tenant(account.tenant_id).filter(id=grant_id)
        rows.update(remaining_microusd=F("remaining_microusd") - amount)
    account.save(update_fields=["held_microusd", "spent_microusd", "credit_microusd"])
