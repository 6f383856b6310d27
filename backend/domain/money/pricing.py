"""The price of things, from the dated, immutable price books of `price_catalog`. What a whole compile will cost is in
`estimates`.

Prices are exact decimals of US dollars per unit; an amount becomes a whole number of micro-USD once, when it is
booked, rounded half to even. The book knows this installation's own work and its own demonstration teacher. It holds no
vendor's prices: those have dates and sources of their own (`vendor_prices`), and which price a teacher has is decided
in `teacher_prices`.
"""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Decimal

from backend.domain.canonical import sha256_of
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.money.price_books import MICRO, Price, PriceBook
from backend.domain.money.price_catalog import catalog
from backend.domain.spec.teacher import DeclaredPrice

__all__ = [
    "LINE_TO_PASTE",
    "MICRO",
    "CostPart",
    "Listing",
    "Price",
    "PriceBook",
    "TeacherPrice",
    "cost_microusd",
    "kept_book",
    "model_price",
    "price_book",
    "price_books",
    "teacher_price",
]

# INPUT and OUTPUT are no numbers: pasted as it is, the line is refused and not billed
LINE_TO_PASTE = "price: {input_usd_per_mtok: INPUT, output_usd_per_mtok: OUTPUT}"


def price_books() -> tuple[PriceBook, ...]:
    """The books that are or will be in force, the newest last."""
    return catalog().books


def kept_book(version: str) -> PriceBook:
    """The book that a compile began with, by the version in its estimate; the newest where no book has that version."""
    return catalog().known_books.get(version) or price_books()[-1]


def price_book(at: datetime | None = None) -> PriceBook:
    """The book in force at an aware time, or the newest. What is booked names its time: a book may be dated ahead.
    Raises LookupError before the first one."""
    if at is None:
        return price_books()[-1]
    in_force = [book for book in price_books() if book.effective_at <= at]
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


_KINDS = ("input", "cached_input", "cache_write", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """The price of one kind of token in a call. `kind` is the sku's, without `_token`."""

    kind: str
    quantity: int
    amount_microusd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The origin of a price: spec, operator (its table), vendor (the table that ships) or book. A table's has its day,
    its source and, as `place`, the provider or host; `until` is the last day that it was published for."""

    origin: str = "book"
    place: str = ""
    as_of: date | None = None
    until: date | None = None
    source: str = ""
    note: str = ""


BOOK = Listing()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPrice:
    """The prices of one model's tokens in this compile. `version` names the price book, the row or the declaration it
    came from. Input that was read from the vendor's prompt cache, and input that was written to it, may have prices of
    their own."""

    version: str
    input: Price
    output: Price
    cached_input: Price
    cache_write: Price
    listing: Listing = BOOK

    @property
    def model(self) -> str:
        return self.input.sku.removeprefix("teacher.").removesuffix(".input_token")

    def cost_microusd(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> int:
        """One call, rounded once. `input_tokens` counts the cached and the written ones too, which together are never
        more."""
        plain_tokens = input_tokens - cached_tokens - cache_write_tokens
        return _whole(
            plain_tokens * self.input.usd_per_unit
            + cached_tokens * self.cached_input.usd_per_unit
            + cache_write_tokens * self.cache_write.usd_per_unit
            + output_tokens * self.output.usd_per_unit
        )

    def parts(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        most_microusd: int,
    ) -> tuple[CostPart, ...]:
        """One call by what was billed, input and output always, cached and written input where there was some. Each
        amount is what the part adds to the ones before, so that together they are `cost_microusd`, or
        `most_microusd` where that is less."""
        plain_tokens = input_tokens - cached_tokens - cache_write_tokens
        quantities = dict(zip(_KINDS, (plain_tokens, cached_tokens, cache_write_tokens, output_tokens), strict=True))
        exact, booked, parts = Decimal(0), 0, []
        for kind, price in zip(_KINDS, (self.input, self.cached_input, self.cache_write, self.output), strict=True):
            exact += quantities[kind] * price.usd_per_unit
            if quantities[kind] or kind in ("input", "output"):
                upto = min(_whole(exact), most_microusd)
                parts.append(CostPart(kind=kind, quantity=quantities[kind], amount_microusd=upto - booked))
                booked = upto
        return tuple(parts)

    def most_microusd(self, *, input_tokens: int, output_tokens: int) -> int:
        """Return what a call costs at most, whatever part of its input the vendor says was cached or written."""
        dearest = max(price.usd_per_unit for price in (self.input, self.cached_input, self.cache_write))
        return _whole(input_tokens * dearest + output_tokens * self.output.usd_per_unit)


def teacher_price(
    book: PriceBook, model: str, declared: DeclaredPrice | None, *, at: str = "", near: str = ""
) -> TeacherPrice:
    """The declared price where the spec has one, else the book's; where neither has a price for cached or written
    input, that is billed as input. Raises InvalidSpec (unknown_teacher_price) without either; `at` (a host) and
    `near` (what has a price there) are part of its message.
    """
    if declared is not None:
        return _price_of(model, declared)
    plain, cached, written, output = (book.prices.get(f"teacher.{model}.{kind}_token") for kind in _KINDS)
    if plain is not None and output is not None:
        return TeacherPrice(
            version=book.version, input=plain, output=output, cached_input=cached or plain, cache_write=written or plain
        )
    message = (
        f'there is no price for the model "{model[:80]}"{at}. Add this line under "teacher", with your vendor\'s US '
        f"dollars per million tokens (0 for a server of your own): {LINE_TO_PASTE}{near}"
    )
    problem = Problem(pointer="/teacher/price", message=message, code="unknown_teacher_price")
    raise InvalidSpec(
        f"The spec is not valid: /teacher/price: {message}", code="unknown_teacher_price", problems=(problem,)
    )


def _price_of(model: str, declared: DeclaredPrice) -> TeacherPrice:
    plain, output = declared.input_usd_per_mtok, declared.output_usd_per_mtok
    cached, written = declared.cached_input_usd_per_mtok, declared.cache_write_usd_per_mtok
    per_mtok = (plain, plain if cached is None else cached, plain if written is None else written, output)
    # without the optional ones the digest is of two prices: what was declared before there were four keeps its version
    amounts = (plain, output) if cached is None and written is None else per_mtok
    digest = sha256_of({"model": model, "usd_per_mtok": [format(usd.normalize(), "f") for usd in amounts]})
    return model_price(model, per_mtok, version=f"declared-{digest[:16]}", listing=Listing(origin="spec"))


def model_price(
    model: str, usd_per_mtok: tuple[Decimal, Decimal, Decimal, Decimal], *, version: str, listing: Listing
) -> TeacherPrice:
    """The price of a model from US dollars per million tokens of input, cached input, written input and output."""
    plain, cached, written, output = (
        Price(sku=f"teacher.{model}.{kind}_token", unit="token", usd_per_unit=usd / MICRO)
        for kind, usd in zip(_KINDS, usd_per_mtok, strict=True)
    )
    return TeacherPrice(
        version=version, input=plain, cached_input=cached, cache_write=written, output=output, listing=listing
    )
