"""The ledger's invariants as queries: what `manage.py ledger_check` and the tests ask of the database. Each gives one
line per violation; none means that the books are in order.

Some read the compiles' tables by name, which usage as an app knows nothing of: the check stands over all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db import connection

from backend.domain.lifecycle import TERMINAL
from backend.domain.money.price_catalog import catalog
from backend.usage.models import PriceBookRow

_LOGS = ("usage_usagefact", "usage_ledgertx", "usage_ledgerline", "usage_budgetnotice", "usage_draftsaving")
_USED = "(l.account = 'accrued' OR l.account LIKE 'credit:%%')"
_ENDED = ", ".join(f"'{status}'" for status in sorted(TERMINAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Rows of `sql` are violations of invariant `number`; `says` names their columns."""

    number: int
    says: str
    sql: str


# `%(tenant)s` is the tenant; row-level security holds every query to it once more.
CHECKS: tuple[Check, ...] = (
    Check(
        number=1,
        says="transaction {0} sums to {1}",
        sql="SELECT tx_id, sum(amount_microusd) FROM usage_ledgerline WHERE tenant_id = %(tenant)s"
        " GROUP BY tx_id HAVING sum(amount_microusd) <> 0",
    ),
    Check(
        number=1,
        says="line {0} is of nothing",
        sql="SELECT id FROM usage_ledgerline WHERE tenant_id = %(tenant)s AND amount_microusd = 0",
    ),
    Check(
        number=2,
        says="account says held {0}, spent {1}, credit {2}; its lines {3}, {4}, {5}",
        sql="""
        SELECT a.held_microusd, a.spent_microusd, a.credit_microusd, f.held, f.spent, f.credit FROM usage_account a,
        LATERAL (SELECT
            coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'held'), 0) AS held,
            coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'accrued' AND t.is_use
                AND t.period_start = a.period_start), 0) AS spent,
            -coalesce(sum(l.amount_microusd) FILTER (WHERE l.account LIKE 'credit:%%'), 0) AS credit
            FROM usage_ledgerline l JOIN usage_ledgertx t ON t.id = l.tx_id AND t.tenant_id = l.tenant_id
            WHERE l.tenant_id = a.tenant_id) f
        WHERE a.tenant_id = %(tenant)s
        AND (a.held_microusd, a.spent_microusd, a.credit_microusd) IS DISTINCT FROM (f.held, f.spent, f.credit)""",
    ),
    Check(
        number=2,
        says="grant {0} has {1} left; its lines say {2}",
        sql="""
        SELECT g.id, g.remaining_microusd, f.remaining FROM usage_grant g, LATERAL (
            SELECT -coalesce(sum(l.amount_microusd), 0) AS remaining FROM usage_ledgerline l
            WHERE l.tenant_id = g.tenant_id AND l.grant_id = g.id) f
        WHERE g.tenant_id = %(tenant)s AND g.remaining_microusd <> f.remaining""",
    ),
    Check(
        number=2,
        says="budget {0} says held {1}, spent {2}; its lines {3}, {4}",
        sql=f"""
        SELECT b.id, b.held_microusd, b.spent_microusd, f.held, f.spent FROM usage_budget b, LATERAL (SELECT
            coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'held'), 0) AS held,
            coalesce(sum(l.amount_microusd) FILTER (WHERE {_USED} AND t.is_use
                AND t.period_start = b.period_start), 0) AS spent
            FROM usage_ledgerline l JOIN usage_ledgertx t ON t.id = l.tx_id AND t.tenant_id = l.tenant_id
            WHERE l.tenant_id = b.tenant_id AND (b.api_key_id IS NULL OR t.api_key_id = b.api_key_id)) f
        WHERE b.tenant_id = %(tenant)s
        AND (b.held_microusd, b.spent_microusd) IS DISTINCT FROM (f.held, f.spent)""",
    ),
    Check(
        number=3,
        says="held {0}, spent {1}, cap {2}, credit {3}",
        sql="SELECT held_microusd, spent_microusd, cap_microusd, credit_microusd FROM usage_account"
        " WHERE tenant_id = %(tenant)s AND (held_microusd < 0"
        " OR held_microusd + spent_microusd > cap_microusd + credit_microusd)",
    ),
    Check(
        number=4,
        says="source key {0} is recorded {1} times",
        sql="SELECT source_key, count(*) FROM usage_usagefact WHERE tenant_id = %(tenant)s"
        " GROUP BY source_key HAVING count(*) > 1",
    ),
    Check(
        number=4,
        says="transaction {0} books {1} charged and {2} wasted; its facts are {3} and {4}",
        sql="""
        SELECT t.id, l.charged, l.wasted, f.charged, f.wasted FROM usage_ledgertx t,
        LATERAL (SELECT -coalesce(sum(amount_microusd) FILTER (WHERE account LIKE 'revenue:%%'), 0) AS charged,
            coalesce(sum(amount_microusd) FILTER (WHERE account = 'waste'), 0) AS wasted
            FROM usage_ledgerline WHERE tenant_id = t.tenant_id AND tx_id = t.id) l,
        LATERAL (SELECT coalesce(sum(amount_microusd) FILTER (WHERE billing = 'charge'), 0) AS charged,
            coalesce(sum(amount_microusd) FILTER (WHERE billing = 'waste'), 0) AS wasted
            FROM usage_usagefact WHERE tenant_id = t.tenant_id AND tx_id = t.id) f
        WHERE t.tenant_id = %(tenant)s AND t.kind IN ('settle', 'charge')
        AND (l.charged, l.wasted) IS DISTINCT FROM (f.charged, f.wasted)""",
    ),
    Check(
        number=5,
        says="compile {0} is {1} and has {2} held",
        sql=f"""
        SELECT c.id, c.status, sum(l.amount_microusd) FROM compiles_compile c
        JOIN usage_ledgertx t ON t.tenant_id = c.tenant_id AND t.compile_id = c.id
        JOIN usage_ledgerline l ON l.tenant_id = t.tenant_id AND l.tx_id = t.id AND l.account = 'held'
        WHERE c.tenant_id = %(tenant)s AND c.status IN ({_ENDED})
        GROUP BY c.id, c.status HAVING sum(l.amount_microusd) <> 0""",
    ),
    Check(
        number=5,
        says="the hold of compile {0} has {1} left; its lines say {2}",
        sql="""
        SELECT h.compile_id, CASE WHEN h.is_open THEN h.amount_microusd - h.settled_microusd ELSE 0 END, f.held
        FROM usage_hold h, LATERAL (SELECT coalesce(sum(l.amount_microusd), 0) AS held FROM usage_ledgerline l
            JOIN usage_ledgertx t ON t.id = l.tx_id AND t.tenant_id = l.tenant_id
            WHERE t.tenant_id = h.tenant_id AND t.compile_id = h.compile_id AND l.account = 'held') f
        WHERE h.tenant_id = %(tenant)s
        AND f.held <> CASE WHEN h.is_open THEN h.amount_microusd - h.settled_microusd ELSE 0 END""",
    ),
    Check(
        number=5,
        says="allowance {0} has {1} left; its lines say {2}",
        sql="""
        SELECT a.id, CASE WHEN a.is_open THEN a.amount_microusd - a.settled_microusd ELSE 0 END, f.held
        FROM usage_allowance a, LATERAL (SELECT coalesce(sum(l.amount_microusd), 0) AS held FROM usage_ledgerline l
            JOIN usage_ledgertx t ON t.id = l.tx_id AND t.tenant_id = l.tenant_id
            WHERE t.tenant_id = a.tenant_id AND t.allowance_id = a.id AND l.account = 'held') f
        WHERE a.tenant_id = %(tenant)s
        AND f.held <> CASE WHEN a.is_open THEN a.amount_microusd - a.settled_microusd ELSE 0 END""",
    ),
    Check(
        number=5,
        says="compile {0} says {1} spent; its steps {2}, its facts {3}",
        sql="""
        SELECT c.id, c.spent_microusd, s.spent, f.spent FROM compiles_compile c,
        LATERAL (SELECT coalesce(sum(spent_microusd), 0) AS spent FROM compiles_steprun
            WHERE tenant_id = c.tenant_id AND compile_id = c.id) s,
        LATERAL (SELECT coalesce(sum(amount_microusd), 0) AS spent FROM usage_usagefact
            WHERE tenant_id = c.tenant_id AND compile_id = c.id AND billing = 'charge') f
        WHERE c.tenant_id = %(tenant)s AND (c.spent_microusd <> s.spent OR c.spent_microusd <> f.spent)""",
    ),
    Check(
        number=6,
        says="invoice {0}: receivable {1}, rounding {2}",
        sql="""
        SELECT t.key, coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'receivable'), 0),
            coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'rounding'), 0)
        FROM usage_ledgertx t JOIN usage_ledgerline l ON l.tenant_id = t.tenant_id AND l.tx_id = t.id
        WHERE t.tenant_id = %(tenant)s AND t.kind = 'invoice' GROUP BY t.id, t.key
        HAVING coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'receivable'), 0) %% 10000 <> 0
            OR abs(coalesce(sum(l.amount_microusd) FILTER (WHERE l.account = 'rounding'), 0)) > 5000 * 20""",
    ),
    Check(
        number=7,
        says="fact {0} of {1} is in the period of {2}",
        sql="""
        SELECT f.id, f.occurred_at, t.period_start FROM usage_usagefact f
        LEFT JOIN usage_ledgertx t ON t.tenant_id = f.tenant_id AND t.id = f.tx_id
        WHERE f.tenant_id = %(tenant)s AND f.meter <> '' AND f.amount_microusd <> 0 AND (t.id IS NULL
            OR t.period_start <> date_trunc('month', f.occurred_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')""",
    ),
    Check(
        number=9,
        says="grant {0} expired at {1} and has {2} left",
        sql="""
        SELECT g.id, g.expires_at, g.remaining_microusd FROM usage_grant g JOIN usage_account a USING (tenant_id)
        WHERE g.tenant_id = %(tenant)s AND g.remaining_microusd > 0 AND g.expires_at < now() - interval '2 hours'
        AND (a.cap_microusd IS NULL
            OR a.held_microusd + a.spent_microusd < a.cap_microusd + a.credit_microusd)""",
    ),
    Check(
        number=10,
        says="fact {0} of {1} has the price book {2}; in force was {3}",
        sql="""
        SELECT f.id, f.occurred_at, f.price_version, b.version FROM usage_usagefact f, LATERAL (
            SELECT version FROM usage_pricebookrow p WHERE p.effective_at <= f.occurred_at
            ORDER BY effective_at DESC LIMIT 1) b
        WHERE f.tenant_id = %(tenant)s AND f.meter <> '' AND b.version <> f.price_version
        AND EXISTS (SELECT FROM usage_pricebookrow p WHERE p.version = f.price_version)
        AND NOT EXISTS (SELECT FROM compiles_compile c WHERE c.tenant_id = f.tenant_id AND c.id = f.compile_id
            AND c.estimate ->> 'price_version' = f.price_version)""",  # a compile keeps the book that it began with
    ),
    Check(
        number=10,
        says="fact {0}: {1} of {2} cost {3}, booked {4}",
        sql="""
        SELECT f.id, f.quantity, f.sku, round(f.quantity * p.usd_per_unit * 1000000, 3),
            f.amount_microusd + f.provider_microusd
        FROM usage_usagefact f JOIN usage_pricebookrow p ON p.version = f.price_version AND p.sku = f.sku
        WHERE f.tenant_id = %(tenant)s AND f.meter <> ''
        AND (f.amount_microusd + f.provider_microusd > f.quantity * p.usd_per_unit * 1000000 + 1
            OR (f.source_key NOT LIKE 'call:%%'
                AND f.amount_microusd + f.provider_microusd < f.quantity * p.usd_per_unit * 1000000 - 1))""",
    ),
)


def violations(tenant_id: UUID) -> Iterator[str]:
    """Return the violations of one tenant, in its scope."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM usage_account WHERE tenant_id = %s", [tenant_id])
        if cursor.fetchone()[0] != 1:
            yield "[2] there is no account"
        for check in CHECKS:
            cursor.execute(check.sql, {"tenant": tenant_id})
            for row in cursor.fetchall():
                yield f"[{check.number}] {check.says.format(*row)}"


def installation_violations() -> Iterator[str]:
    """Return the violations of what holds for all tenants: the triggers that keep the ledger, and the prices as they
    were published."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, count(*) FROM pg_trigger WHERE tgname IN ('append_only',"
            " 'append_only_truncate') AND tgenabled <> 'D' GROUP BY tgrelid"
        )
        guarded = dict(cursor.fetchall())
        cursor.execute("SELECT count(*) FROM pg_trigger WHERE tgname = 'balanced' AND tgenabled <> 'D'")
        if cursor.fetchone()[0] != 1:
            yield "[1] nothing keeps transactions balanced"
    for table in (*_LOGS, "usage_pricebookrow"):
        if guarded.get(table) != 2:
            yield f"[1] {table} is not append-only"
    yield from _price_violations()


def _price_violations() -> Iterator[str]:
    published: dict[str, dict[str, Decimal]] = {}
    digests: dict[str, set[str]] = {}
    for row in PriceBookRow.objects.all():
        published.setdefault(row.version, {})[row.sku] = row.usd_per_unit
        digests.setdefault(row.version, set()).add(row.sha256)
    for book in catalog().known_books.values():
        prices = {sku: price.usd_per_unit for sku, price in book.prices.items()}
        if book.version not in published:
            yield f"[10] the price book {book.version} was not published: run `manage.py migrate`"
        elif published[book.version] != prices or digests[book.version] != {book.sha256}:
            yield f"[10] the price book {book.version} is not as it was published"
