"""Money set aside before work begins: one hold a compile, in one conditional UPDATE of the account's row.

`Compile.budget` guards what a compile may cost; its hold guards that all compiles together stay within the account's
cap, however many are submitted at once. The caller holds the compile's lock; the account's row is locked last.
"""

from uuid import UUID

from django.db import connection

from backend.domain.money.ledger import Kind, Line, hold_lines, our_fault_lines, release_lines, sum_usage
from backend.usage import accounts, budgets, postings
from backend.usage.models import Account, Hold, LedgerTx
from backend.usage.subjects import MOST_SUBJECT, NOBODY, Subject, with_key_tags


def hold(
    tenant_id: UUID,
    compile_id: UUID,
    amount_microusd: int,
    *,
    api_key_id: UUID | None,
    subject: Subject = NOBODY,
) -> None:
    """Set money aside for a compile that has none, and keep what its bookings are to carry. Raises PaymentRequired
    (`spend_cap_reached`, `key_budget_reached`); the caller's transaction then writes nothing."""
    accounts.begin_due_period(tenant_id)
    account = _claim(tenant_id, amount_microusd)
    budgets.claim(account, api_key_id, amount_microusd)
    row = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id).first()
    if row is None:
        row = Hold(tenant_id=tenant_id, compile_id=compile_id, api_key_id=api_key_id, n_holds=0)
    row.amount_microusd, row.settled_microusd, row.is_open = amount_microusd, 0, True
    row.n_holds += 1
    kept = with_key_tags(tenant_id, subject, api_key_id)
    row.subject, row.tags = kept.name[:MOST_SUBJECT], kept.tags
    row.save()
    postings.post(
        account,
        Kind.HOLD,
        f"hold:{compile_id}:{row.n_holds}",
        hold_lines(amount_microusd),
        at=max(account.now, account.period_start),
        compile_id=compile_id,
        api_key_id=api_key_id,
        is_counted=True,
    )


def left_of(tenant_id: UUID, compile_id: UUID) -> int:
    """Return what a compile's hold has left; 0 without one."""
    row = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id, is_open=True).first()
    return 0 if row is None else row.amount_microusd - row.settled_microusd


def amount_of(tenant_id: UUID, compile_id: UUID) -> int | None:
    """Return what was last set aside for a compile."""
    rows = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id)
    return rows.values_list("amount_microusd", flat=True).first()


def release(tenant_id: UUID, compile_id: UUID) -> None:
    """Give back what a compile's hold has left. Once: a second time there is nothing."""
    account, at = accounts.lock_account(tenant_id)
    row = Hold.objects.of_tenant(tenant_id).filter(compile_id=compile_id, is_open=True).first()
    if row is None:
        return
    left = row.amount_microusd - row.settled_microusd
    row.is_open = False
    row.save(update_fields=["is_open"])
    postings.post(
        account,
        Kind.RELEASE,
        f"release:{compile_id}:{row.n_holds}",
        release_lines(left),
        at=at,
        compile_id=compile_id,
        api_key_id=row.api_key_id,
    )
    budgets.count(account, row.api_key_id, used=0, held=-left, at=at)


def credit_our_fault(tenant_id: UUID, compile_id: UUID, reason: str) -> int:
    """Book everything that a compile was charged back to its tenant: grants get back what they paid, the rest comes off
    this period's bill. What was credited before is not credited again. Returns micro-USD."""
    account, at = accounts.lock_account(tenant_id)
    txs = list(LedgerTx.objects.of_tenant(tenant_id).filter(compile_id=compile_id))
    lines = our_fault_lines(_net(postings.lines_of(txs)))
    amount = -sum_usage(lines)
    if amount <= 0:
        return 0
    n_before = sum(tx.kind == Kind.CREDIT_OUR_FAULT for tx in txs)
    api_key_id = next((tx.api_key_id for tx in txs if tx.api_key_id is not None), None)
    postings.post(
        account,
        Kind.CREDIT_OUR_FAULT,
        f"credit:{compile_id}:{n_before + 1}",
        lines,
        at=at,
        actor="kolm",
        reason=reason[:64],
        compile_id=compile_id,
        api_key_id=api_key_id,
    )
    budgets.count(account, api_key_id, used=-amount, held=0, at=at)
    return amount


def credited_microusd(tenant_id: UUID, compile_id: UUID) -> int:
    """Return what was credited to a compile for failures of ours."""
    txs = LedgerTx.objects.of_tenant(tenant_id).filter(compile_id=compile_id, kind=Kind.CREDIT_OUR_FAULT)
    return -sum_usage(postings.lines_of(list(txs)))


def _net(lines: list[Line]) -> list[Line]:
    """The lines that say what is still charged: those of use alone, summed by account and grant."""
    sums: dict[tuple[str, UUID | None], int] = {}
    for line in lines:
        place = (line.account, line.grant_id)
        sums[place] = sums.get(place, 0) + line.amount_microusd
    return [Line(account=a, grant_id=g, amount_microusd=n) for (a, g), n in sums.items()]


def _claim(tenant_id: UUID, amount_microusd: int) -> Account:
    """The one UPDATE. Under READ COMMITTED a concurrent one waits for this row and reads it anew, so that two claims
    never see the same headroom."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE usage_account SET held_microusd = held_microusd + %s WHERE tenant_id = %s AND (cap_microusd IS NULL"
            " OR held_microusd + spent_microusd + %s <= cap_microusd + credit_microusd)",
            [amount_microusd, tenant_id, amount_microusd],
        )
        is_claimed = cursor.rowcount == 1
    account = accounts.account_row(tenant_id)
    if not is_claimed:
        raise accounts.cap_reached(account, amount_microusd)
    return account
