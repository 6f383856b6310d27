"""Bringing every sealed value under the present sealing key, a few rows at a time and at any number of times: a value
says which key it needs, so nothing has to be remembered about how far anybody got."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.apps import apps
from django.db import connection, models, transaction
from django.db.models.functions import Length

from backend.domain.errors import OurError
from backend.tenants.isolation import tenant_scope
from backend.tenants.sealing import HEAD_BYTES, SealedField, current_head, key_id, open_with, seal

BATCH = 200  # rows in one transaction: some milliseconds under lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of sealed values; its table has `tenant_id` and a primary key that orders it."""

    model: type[models.Model]
    field: SealedField

    @property
    def name(self) -> str:
        return f"{self.model._meta.db_table}.{self.field.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`n_broken` open with no key that is configured: they are left as they are."""

    n_sealed: int
    n_broken: int


def sealed_columns() -> list[Column]:
    columns = [(model, field) for model in apps.get_models() for field in model._meta.local_fields]
    return [Column(model=model, field=field) for model, field in columns if isinstance(field, SealedField)]


def reseal(tenants: Sequence[UUID]) -> Iterator[Batch]:
    """One pass over all values that the present key has not sealed; each batch is a transaction, and each tenant gives
    one at least, so that who has little time can stop between them. Rows that somebody else holds are passed over: the
    next pass has them."""
    for tenant_id in tenants:
        for column in _due(tenant_id):
            last = None
            while True:
                with tenant_scope(tenant_id):
                    rows = list(
                        _others(tenant_id, column, after=last).select_for_update(skip_locked=True, no_key=True)[:BATCH]
                    )
                    batch = _seal_again(tenant_id, column, rows)
                if rows:
                    last = rows[-1].pk
                    yield batch
                if len(rows) < BATCH:
                    break
        yield Batch(n_sealed=0, n_broken=0)


def for_a_while(passes: Iterator[Batch], budget_s: float) -> tuple[int, bool]:
    """(values sealed, whether the pass ended) of as much of a pass as fits into the time."""
    ends, n_sealed = time.monotonic() + budget_s, 0
    for batch in passes:
        n_sealed += batch.n_sealed
        if time.monotonic() > ends:
            return n_sealed, False
    return n_sealed, True


def count_others(tenants: Sequence[UUID]) -> int:
    """Count the values that the present key has not sealed."""
    n_others = 0
    for tenant_id in tenants:
        for column in _due(tenant_id):
            with tenant_scope(tenant_id):
                n_others += _others(tenant_id, column).count()
    return n_others


def needed_keys(tenants: Sequence[UUID]) -> dict[str, int]:
    """Ids of the other keys that values still need, and how many each; under "" those that no key opens."""
    n_by_key: dict[str, int] = {}
    for tenant_id in tenants:
        for column in _due(tenant_id):
            with tenant_scope(tenant_id):
                for row in _others(tenant_id, column).iterator(chunk_size=BATCH):
                    needed = _key_of(tenant_id, column, row)
                    n_by_key[needed] = n_by_key.get(needed, 0) + 1
    return n_by_key


def _due(tenant_id: UUID) -> list[Column]:
    """The columns in which the tenant has values that the present key has not sealed, in one question for all: most
    tenants have none, and there are many tenants (a question for each column was nine times the work)."""
    columns = sealed_columns()
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        cursor.execute(_due_sql(tuple(columns)), {"tenant": tenant_id, "head": current_head()})
        return [columns[at] for (at,) in cursor.fetchall()]


@lru_cache(maxsize=1)
def _due_sql(columns: tuple[Column, ...]) -> str:
    """The SQL of what `_others` asks, written once: to have it written by the ORM takes longer than to have it
    answered."""
    quote = connection.ops.quote_name
    return " UNION ALL ".join(
        f"SELECT {at} WHERE EXISTS (SELECT FROM {quote(column.model._meta.db_table)} WHERE tenant_id = %(tenant)s"
        f" AND length({value}) > 0 AND substring({value}, 1, {HEAD_BYTES}) <> %(head)s)"
        for at, column in enumerate(columns)
        for value in [quote(str(column.field.column))]
    )


def _others(tenant_id: UUID, column: Column, *, after: object = None) -> "models.QuerySet[models.Model]":
    name = column.field.name
    head = models.Func(models.F(name), 1, HEAD_BYTES, function="substring", output_field=models.BinaryField())
    rows = column.model._default_manager.filter(tenant_id=tenant_id).annotate(_n=Length(name), _head=head)
    rows = rows.filter(_n__gt=0).exclude(_head=current_head()).order_by("pk")
    return rows if after is None else rows.filter(pk__gt=after)


def _seal_again(tenant_id: UUID, column: Column, rows: "Sequence[models.Model]") -> Batch:
    name, n_broken = column.field.name, 0
    with transaction.atomic():
        for row in rows:
            purpose = column.field.purpose_of(row)
            try:
                _, secret = open_with(tenant_id, bytes(getattr(row, name)), purpose=purpose)
            except OurError:
                n_broken += 1
                continue
            again = {name: seal(tenant_id, secret, purpose=purpose)}
            column.model._default_manager.filter(tenant_id=tenant_id, pk=row.pk).update(**again)
    return Batch(n_sealed=len(rows) - n_broken, n_broken=n_broken)


def _key_of(tenant_id: UUID, column: Column, row: models.Model) -> str:
    try:
        key, _ = open_with(tenant_id, bytes(getattr(row, column.field.name)), purpose=column.field.purpose_of(row))
    except OurError:
        return ""
    return key_id(key)
