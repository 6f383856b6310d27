"""The rows that a deployment publishes when it is migrated: the price books of `domain.money.pricing` as immutable
rows, and what a new tenant's account begins with."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from backend.domain.money.plans import plan
from backend.domain.money.price_catalog import catalog
from backend.domain.money.pricing import PriceBook


def publish(*, apps: Any = None, **_: Any) -> None:
    """Publish after a migration, as the owner of the tables. Doing it again changes nothing; a migration back to before
    the tables leaves nothing to do."""
    from backend.usage.models import AccountDefault

    if apps is not None and "pricebookrow" not in apps.all_models.get("usage", {}):
        return
    for book in catalog().known_books.values():
        publish_book(book)
    wanted = plan(settings.KOLM_DEFAULT_PLAN)
    AccountDefault.objects.update_or_create(
        id=1, defaults={"plan": wanted.name.value, "cap_microusd": wanted.cap_default_microusd}
    )


def publish_book(book: PriceBook) -> None:
    """Raises ImproperlyConfigured where a book of this version was published with other prices."""
    from backend.usage.models import PriceBookRow

    published = PriceBookRow.objects.filter(version=book.version)
    if published.exclude(sha256=book.sha256).exists():
        raise ImproperlyConfigured(f"The price book {book.version} was published with other prices; make a new one.")
    known = set(published.values_list("sku", flat=True))
    PriceBookRow.objects.bulk_create(
        PriceBookRow(
            version=book.version,
            effective_at=book.effective_at,
            sku=price.sku,
            unit=price.unit,
            usd_per_unit=price.usd_per_unit,
            sha256=book.sha256,
        )
        for price in book.prices.values()
        if price.sku not in known
    )
