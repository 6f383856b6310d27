"""What things cost: a dated, immutable price book. What a whole compile will cost is in `estimates`.

Prices are exact decimals of US dollars per unit; an amount becomes a whole number of micro-USD once, when it is
booked, rounded half to even. The book knows this deployment's own work and its own demonstration teacher. It holds no
vendor's prices: they change without notice, so a spec that names another model brings its price along
(`teacher.price`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from types import MappingProxyType

from backend.domain.canonical import sha256_of
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.spec_models import DeclaredPrice

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


def _book(
    version: str, effective_at: datetime, per_mtok: Mapping[str, str], per_second: Mapping[str, str]
) -> PriceBook:
    prices = [Price(sku=sku, unit="token", usd_per_unit=Decimal(usd) / MICRO) for sku, usd in per_mtok.items()]
    prices += [Price(sku=sku, unit="second", usd_per_unit=Decimal(usd)) for sku, usd in per_second.items()]
    return PriceBook(version=version, effective_at=effective_at, prices=MappingProxyType({p.sku: p for p in prices}))


# Newest last; a book that has been in force is never edited, a change is a new entry.
BOOKS: tuple[PriceBook, ...] = (
    _book(
        "2026-11-01",
        datetime(2026, 11, 1, tzinfo=UTC),
        per_mtok={
            "teacher.kolm-grammar-1.input_token": "0.10",
            "teacher.kolm-grammar-1.output_token": "0.40",
            "embedding.token": "0.01",
        },
        per_second={"runner.second": "0.000150"},
    ),
)


def price_book(at: datetime | None = None) -> PriceBook:
    """The book in force at an aware time, or the newest. Raises LookupError before the first one."""
    if at is None:
        return BOOKS[-1]
    in_force = [book for book in BOOKS if book.effective_at <= at]
    if not in_force:
        raise LookupError(f"No price book was in force at {at.isoformat()}.")
    return in_force[-1]


def cost_microusd(quantity: int, price: Price) -> int:
    """Whole micro-USD, half to even.

    >>> cost_microusd(1_500_000, price_book().prices["embedding.token"])
    15000
    """
    return _whole(quantity * price.usd_per_unit)


def _whole(usd: Decimal) -> int:
    return int((usd * MICRO).to_integral_value(rounding=ROUND_HALF_EVEN))


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPrice:
    """What one model's tokens cost in this compile. `version` names the price book, or the declaration it came from."""

    version: str
    input: Price
    output: Price

    def cost_microusd(self, *, input_tokens: int, output_tokens: int) -> int:
        """One call, rounded once."""
        return _whole(input_tokens * self.input.usd_per_unit + output_tokens * self.output.usd_per_unit)


def teacher_price(book: PriceBook, model: str, declared: DeclaredPrice | None) -> TeacherPrice:
    """The declared price where the spec has one, else the book's. Raises InvalidSpec (unknown_teacher_price) without
    either.
    """
    skus = [f"teacher.{model}.{side}_token" for side in ("input", "output")]
    if declared is not None:
        per_mtok = (declared.input_usd_per_mtok, declared.output_usd_per_mtok)
        sides = [
            Price(sku=sku, unit="token", usd_per_unit=usd / MICRO) for sku, usd in zip(skus, per_mtok, strict=True)
        ]
        digest = sha256_of({"model": model, "usd_per_mtok": [format(usd.normalize(), "f") for usd in per_mtok]})
        return TeacherPrice(version=f"declared-{digest[:16]}", input=sides[0], output=sides[1])
    if all(sku in book.prices for sku in skus):
        return TeacherPrice(version=book.version, input=book.prices[skus[0]], output=book.prices[skus[1]])
    known = sorted(
        sku.split(".")[1] for sku in book.prices if sku.startswith("teacher.") and sku.endswith(".input_token")
    )
    message = (
        f'there is no price for the model "{model[:80]}"; add "price" with input_usd_per_mtok and output_usd_per_mtok '
        f"as your vendor bills them (models with a price of their own here: {', '.join(known)})"
    )
    problem = Problem(pointer="/teacher/price", message=message, code="unknown_teacher_price")
    raise InvalidSpec(
        f"The spec is not valid: /teacher/price: {message}", code="unknown_teacher_price", problems=(problem,)
    )
