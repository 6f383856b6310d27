"""Bills and reports: the ledger's figures for money, the facts' for quantities. The same numbers wherever they are
shown: API, console, invoice and CSV."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db.models import Count, DateField, F, Func, Q, QuerySet, Sum, TextField
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KeyTextTransform

from backend.domain.cost_tags import tag_line
from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.forecast import Forecast, forecast
from backend.rest.times import rfc3339
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import account_of
from backend.usage.bills import (
    COUNTED,
    Bill,
    BillLine,
    LineKind,
    adjustments,
    by_step,
    draft_line,
    grants_applied,
    own_key,
    usage_by_meter,
    waste_by_meter,
)
from backend.usage.models import Billing, DraftSaving, LedgerTx, UsageFact

__all__ = [
    "COUNTED",
    "Bill",
    "BillLine",
    "Group",
    "LineKind",
    "TagFilter",
    "UsageRow",
    "compile_bill",
    "csv_rows",
    "month_forecast",
    "period_bill",
    "tag_names",
    "usage_by",
]

CSV_HEADER = (
    "occurred_at",
    "compile",
    "step",
    "meter",
    "sku",
    "quantity",
    "unit",
    "amount_microusd",
    "billing",
    "provider_microusd",
    "estimated",
    "price_version",
    "api_key",
    "source_key",
    "deployment",
    "subject",
    "tags",
)
CSV_CHUNK = 1_000
_OF_FORMULAS = frozenset("=+-@\t\r\n")


class Group(StrEnum):
    DAY = "day"
    STEP = "step"
    SKU = "sku"
    API_KEY = "api_key"
    COMPILE = "compile"
    DEPLOYMENT = "deployment"


TAG = "tag:"  # "tag:team" groups by the values of the tag `team`
_IDS = {
    Group.API_KEY: ("api_key_id", Prefix.API_KEY),
    Group.COMPILE: ("compile_id", Prefix.COMPILE),
    Group.DEPLOYMENT: ("deployment_id", Prefix.DEPLOYMENT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One group's usage. `key` is the day, step, sku or public id; "" for what belongs to none."""

    key: str
    n_facts: int
    charged_microusd: int
    waste_microusd: int
    provider_microusd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFilter:
    """Usage with this tag alone; a value of "" is what does not have it."""

    name: str
    value: str

    @classmethod
    def read(cls, text: str | None) -> "TagFilter | None":
        """
        >>> TagFilter.read("team:search"), TagFilter.read("")
        (TagFilter(name='team', value='search'), None)
        """
        name, _, value = (text or "").partition(":")
        return cls(name=name, value=value) if name else None


def usage_by(
    tenant_id: UUID, group: str, start: datetime, end: datetime, *, tag: TagFilter | None = None
) -> list[UsageRow]:
    """Usage between two moments (`end` excluded), grouped, by a tag as "tag:NAME"; the largest group first, days in
    order."""
    rows = _with_tag(_facts(tenant_id, start, end), tag).annotate(group=_column(group)).values("group")
    rows = rows.annotate(
        n=Count("id"),
        charged=Sum("amount_microusd", filter=Q(billing=Billing.CHARGE), default=0),
        waste=Sum("amount_microusd", filter=Q(billing=Billing.WASTE), default=0),
        provider=Sum("provider_microusd", default=0),
    )
    ordered = rows.order_by("group") if group == Group.DAY else rows.order_by("-charged", "group")
    return [
        UsageRow(
            key=_key(group, row["group"]),
            n_facts=row["n"],
            charged_microusd=row["charged"],
            waste_microusd=row["waste"],
            provider_microusd=row["provider"],
        )
        for row in ordered
    ]


def tag_names(tenant_id: UUID, start: datetime, end: datetime) -> list[str]:
    """The names of the tags that usage between two moments carries."""
    keys = Func(F("tags"), function="jsonb_object_keys", output_field=TextField())
    rows = _facts(tenant_id, start, end).exclude(tags={}).annotate(tag_name=keys)
    return sorted(rows.values_list("tag_name", flat=True).distinct())


def _column(group: str) -> Combinable:
    if group.startswith(TAG):
        return KeyTextTransform(group.removeprefix(TAG), "tags")
    by = Group(group)
    if by in _IDS:
        return F(_IDS[by][0])
    if by is Group.DAY:
        return Func(F("occurred_at"), template="(%(expressions)s AT TIME ZONE 'UTC')::date", output_field=DateField())
    return F(by.value)


def _with_tag(facts: QuerySet[UsageFact], tag: TagFilter | None) -> QuerySet[UsageFact]:
    if tag is None:
        return facts
    return facts.filter(tags__contains={tag.name: tag.value}) if tag.value else facts.exclude(tags__has_key=tag.name)


def period_bill(tenant_id: UUID, start: datetime, end: datetime) -> Bill:
    """The bill of the billing periods that begin in a span; for one period, its start and end."""
    txs = LedgerTx.objects.of_tenant(tenant_id).filter(period_start__gte=start, period_start__lt=end)
    lines = [*usage_by_meter(tenant_id, txs), *adjustments(tenant_id, txs), *grants_applied(tenant_id, txs)]
    # what costs nothing has no transaction: its period is the one that its time is in
    facts = _facts(tenant_id, start, end)
    savings = DraftSaving.objects.of_tenant(tenant_id).filter(occurred_at__gte=start, occurred_at__lt=end)
    saving = _saving(savings)
    lines += [*waste_by_meter(tenant_id, txs), *own_key(facts), *draft_line(saving)]
    return Bill(tenant_id=tenant_id, start=start, end=end, lines=tuple(lines), saving=saving)


def compile_bill(tenant_id: UUID, compile_id: UUID) -> Bill:
    """Return what one compile came to, step by step."""
    txs = LedgerTx.objects.of_tenant(tenant_id).filter(compile_id=compile_id)
    facts = UsageFact.objects.of_tenant(tenant_id).filter(compile_id=compile_id)
    saving = _saving(DraftSaving.objects.of_tenant(tenant_id).filter(compile_id=compile_id))
    lines = [*by_step(facts, Billing.CHARGE, LineKind.USAGE), *adjustments(tenant_id, txs)]
    lines += [*grants_applied(tenant_id, txs), *by_step(facts, Billing.WASTE, LineKind.WASTE)]
    lines += [*own_key(facts), *draft_line(saving)]
    return Bill(tenant_id=tenant_id, start=None, end=None, lines=tuple(lines), saving=saving, compile_id=compile_id)


def month_forecast(tenant_id: UUID) -> Forecast:
    """The forecast of use at the end of the account's period, at list price: before grants and credits. Days before
    the account was opened are no days without use."""
    account = account_of(tenant_id)
    first = max(account.period_start, account.created_at).astimezone(UTC).date()
    today, last = max(first, account.now.astimezone(UTC).date()), account.period_end.astimezone(UTC).date()
    rows = usage_by(tenant_id, Group.DAY, account.period_start, account.period_end)
    by_day = {date.fromisoformat(row.key): row.charged_microusd for row in rows}
    whole = [by_day.get(first + timedelta(days=n), 0) for n in range((today - first).days)]
    return forecast(whole, by_day.get(today, 0), n_days=(last - first).days)


def csv_rows(
    tenant_id: UUID, start: datetime, end: datetime, *, tag: TagFilter | None = None
) -> Iterator[tuple[str, ...]]:
    """The header and every fact, oldest first, in chunks that are transactions of their own: a file of any length is
    streamed after the request's transaction has ended."""
    yield CSV_HEADER
    after: tuple[datetime, UUID] | None = None
    while True:
        with tenant_scope(tenant_id):
            rows = _with_tag(_facts(tenant_id, start, end), tag).order_by("occurred_at", "id")
            if after is not None:
                rows = rows.filter(Q(occurred_at__gt=after[0]) | Q(occurred_at=after[0], id__gt=after[1]))
            page = list(rows[:CSV_CHUNK])
        for row in page:
            yield _csv_row(row)
        if len(page) < CSV_CHUNK:
            return
        after = (page[-1].occurred_at, page[-1].id)


def _facts(tenant_id: UUID, start: datetime, end: datetime) -> QuerySet[UsageFact]:
    return UsageFact.objects.of_tenant(tenant_id).filter(occurred_at__gte=start, occurred_at__lt=end)


def _saving(rows: QuerySet[DraftSaving]) -> Saving:
    sums = rows.aggregate(avoided=Sum("avoided_microusd"), verification=Sum("verification_microusd"))
    return Saving(avoided=sums["avoided"] or 0, verification=sums["verification"] or 0)


def _key(group: str, value: object) -> str:
    if value is None:
        return ""
    return encode_id(_IDS[Group(group)][1], value) if isinstance(value, UUID) else str(value)


def _csv_row(row: UsageFact) -> tuple[str, ...]:
    return (
        rfc3339(row.occurred_at) or "",
        "" if row.compile_id is None else encode_id(Prefix.COMPILE, row.compile_id),
        row.step,
        row.meter,
        inert(row.sku),
        str(row.quantity),
        row.unit,
        str(row.amount_microusd),
        row.billing,
        str(row.provider_microusd),
        str(row.is_estimated).lower(),
        row.price_version,
        "" if row.api_key_id is None else encode_id(Prefix.API_KEY, row.api_key_id),
        inert(row.source_key),
        "" if row.deployment_id is None else encode_id(Prefix.DEPLOYMENT, row.deployment_id),
        inert(row.subject),
        inert(tag_line(row.tags)),
    )


def inert(text: str) -> str:
    """A spreadsheet takes these for the beginning of a formula, and a model's name is the customer's."""
    begins = unicodedata.normalize("NFKC", text.lstrip()[:1])  # fullwidth signs are signs there too
    return f"'{text}" if begins in _OF_FORMULAS or text[:1] in _OF_FORMULAS else text
