"""A price book: what one unit of each sku costs, from a day on. Immutable: a book that has been in force is never
edited, a change is a new book.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from backend.domain.canonical import sha256_of

MICRO = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for one unit of one sku."""

    sku: str
    unit: str
    usd_per_unit: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBook:
    """The prices in force from `effective_at` until the next book. `sha256` is what a receipt quotes."""

    version: str
    effective_at: datetime
    prices: Mapping[str, Price]

    def to_json(self) -> dict[str, object]:
        """Prices as decimal strings, so that the canonical form is exact."""
        return {
            "version": self.version,
            "effective_at": self.effective_at.isoformat().replace("+00:00", "Z"),
            "prices": {
                sku: {"unit": p.unit, "usd_per_unit": format(p.usd_per_unit, "f")} for sku, p in self.prices.items()
            },
        }

    @property
    def sha256(self) -> str:
        return sha256_of(self.to_json())
