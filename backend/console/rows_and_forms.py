"""Helpers that most rooms share: a row behind a public id, a page of a long list, a number from a form."""

from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID

from django.core.paginator import Page, Paginator

from backend.domain.errors import InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.tenants.isolation import TenantOwned

_Row = TypeVar("_Row", bound=TenantOwned)

MICRO = Decimal(1_000_000)
MOST_USD = Decimal(1_000_000)  # above it a number in a form is a slip of the finger


def own_row(model: type[_Row], tenant_id: UUID, prefix: Prefix, public_id: str) -> _Row:
    """The tenant's row. Raises NotFound, for another tenant's too."""
    row = model.objects.of_tenant(tenant_id).filter(id=decode_id(prefix, public_id)).first()
    if row is None:
        raise NotFound(f"There is no {prefix.name.lower().replace('_', ' ')} {public_id[:60]!r}.")
    return row


def page_of(rows: Any, number: str | None, *, size: int = 25) -> Page[Any]:
    """The page that `?page=` names; the first or the last one for a number that names none."""
    return Paginator(rows, size).get_page(number)


def microusd(text: str, *, field: str) -> int:
    """A form's US dollars as micro-USD. Raises InvalidInput."""
    try:
        usd = Decimal(text.strip().lstrip("$").replace(",", ""))
    except InvalidOperation:
        raise InvalidInput(f"{field} must be an amount of US dollars, such as 25 or 0.50.") from None
    if not usd.is_finite() or not 0 < usd <= MOST_USD or usd * MICRO != (usd * MICRO).to_integral_value():
        raise InvalidInput(f"{field} must lie above 0 and up to {MOST_USD:,f} US dollars, in whole millionths.")
    return int(usd * MICRO)
