"""The price of a teacher: which table it is from, what of it is kept with an estimate, and when to doubt it.

The spec's own price goes before the operator's table, that before the vendors' table, and that before the price book,
which knows this installation's grammar teacher. A compile keeps the prices it was estimated by, and is billed by them
whatever the tables say later. Only what is the price book's goes by the book in force, as all of our own work does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from backend.domain.canonical import sha256_of
from backend.domain.dialects.batches import BatchTerms
from backend.domain.errors import InvalidSpec, Problem
from backend.domain.money.pricing import MICRO, Listing, PriceBook, TeacherPrice, model_price, teacher_price
from backend.domain.money.vendor_prices import NO_PRICES, Origin, PriceRow, PriceTable, host_of, shipped_prices
from backend.domain.spec.defaults import dialect_of
from backend.domain.spec.teacher import Teacher

OLD = timedelta(days=365)
LEAST_USD_PER_MTOK = Decimal("0.001")  # no vendor's output costs less; one token of what most ask costs about that
N_NEAREST = 3
PRICE_KEYS = (
    "teacher_price",
    "fallback_price",
    "batch_price",
    "batch_fallback_price",
    "reward_price",
    "judge_price",
)
_AMOUNTS = ("input_usd_per_mtok", "cached_input_usd_per_mtok", "cache_write_usd_per_mtok", "output_usd_per_mtok")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherPrices:
    """The prices of a compile's teacher: of its model, of the fallback model where the spec names one, in batch mode
    also what each costs in a batch; of the model that gives its rewards, where one does; and of the spec's own judge of
    drafts."""

    main: TeacherPrice
    fallback: TeacherPrice | None = None
    batch: TeacherPrice | None = None
    batch_fallback: TeacherPrice | None = None
    reward: TeacherPrice | None = None
    judge: TeacherPrice | None = None

    def of(self, model: str) -> TeacherPrice:
        """The price of one of the spec's two models."""
        return self.fallback if self.fallback is not None and self.fallback.model == model else self.main

    def batch_of(self, model: str) -> TeacherPrice:
        """The price in a batch of one of the spec's two models; the live one where there are no batches."""
        kept = self.batch_fallback if self.of(model) is self.fallback else self.batch
        return kept or self.of(model)

    @property
    def dearest(self) -> TeacherPrice:
        """Prices that neither model exceeds."""
        if self.fallback is None:
            return self.main
        pairs = {
            name: max(getattr(self.main, name), getattr(self.fallback, name), key=lambda price: price.usd_per_unit)
            for name in ("input", "cached_input", "cache_write", "output")
        }
        return replace(self.main, **pairs)

    def to_json(self) -> dict[str, object]:
        """Return them as an estimate shows them and a compile keeps them."""
        prices = (self.main, self.fallback, self.batch, self.batch_fallback, self.reward, self.judge)
        return {key: price and price_json(price) for key, price in zip(PRICE_KEYS, prices, strict=True)}


def resolve_reward_price(
    rewarder: Teacher, pointer: str, *, book: PriceBook, operator: PriceTable = NO_PRICES
) -> TeacherPrice:
    """The price of the model that gives the rewards now. Raises InvalidSpec (unknown_teacher_price) at `pointer`."""
    return _resolve_of(rewarder, pointer, "to this reward", book, operator)


def resolve_judge_price(judge: Teacher, *, book: PriceBook, operator: PriceTable = NO_PRICES) -> TeacherPrice:
    """The price of the spec's own judge of drafts now. Raises InvalidSpec (unknown_teacher_price) at
    /draft_cache/judge."""
    return _resolve_of(judge, "/draft_cache/judge", "to the judge", book, operator)


def _resolve_of(asked: Teacher, pointer: str, where: str, book: PriceBook, operator: PriceTable) -> TeacherPrice:
    try:
        return _resolve(asked, asked.model, book, operator)
    except InvalidSpec as unknown:
        message = unknown.problems[0].message.replace('under "teacher"', where)
        problem = Problem(pointer=pointer, message=message, code="unknown_teacher_price")
        text = f"The spec is not valid: {pointer}: {message}"
        raise InvalidSpec(text, code="unknown_teacher_price", problems=(problem,)) from None


def resolve_prices(teacher: Teacher, *, book: PriceBook, operator: PriceTable = NO_PRICES) -> TeacherPrices:
    """The prices of a spec's teacher now. Raises InvalidSpec (unknown_teacher_price) for a model without one, at
    /teacher/price or /teacher/fallback_model."""
    main = _resolve(teacher, teacher.model, book, operator)
    batch = _in_a_batch(teacher, main, operator)
    if teacher.fallback_model is None:
        return TeacherPrices(main=main, batch=batch)
    try:
        fallback = _resolve(teacher, teacher.fallback_model, book, operator)
        batch_fallback = _in_a_batch(teacher, fallback, operator)
        return TeacherPrices(main=main, fallback=fallback, batch=batch, batch_fallback=batch_fallback)
    except InvalidSpec:
        message = (
            f'there is no price for the model "{teacher.fallback_model[:80]}"; add "price", which is for both models, '
            "or leave it out"
        )
        problem = Problem(pointer="/teacher/fallback_model", message=message, code="unknown_teacher_price")
        text = f"The spec is not valid: /teacher/fallback_model: {message}"
        raise InvalidSpec(text, code="unknown_teacher_price", problems=(problem,)) from None


def kept_prices(
    estimate: Mapping[str, Any],
    teacher: Teacher,
    *,
    book: PriceBook,
    rewarder: Teacher | None = None,
    judge: Teacher | None = None,
) -> TeacherPrices:
    """The prices that a compile is billed by: those of its estimate, whatever the tables say now. An estimate of
    before there were tables holds none; its prices were the spec's or the book's."""
    kept = {
        key: price_of_json(row) if (row := estimate.get(key)) and row["origin"] != "book" else None
        for key in PRICE_KEYS
    }
    has_fallback = teacher.fallback_model is not None
    fallback, reward, judges = kept["fallback_price"], kept["reward_price"], kept["judge_price"]
    if teacher.fallback_model is not None and fallback is None:
        fallback = teacher_price(book, teacher.fallback_model, teacher.price)
    if rewarder is not None and reward is None:
        reward = teacher_price(book, rewarder.model, rewarder.price)
    if judge is not None and judges is None:
        judges = teacher_price(book, judge.model, judge.price)
    return TeacherPrices(
        main=kept["teacher_price"] or teacher_price(book, teacher.model, teacher.price),
        fallback=fallback if has_fallback else None,
        batch=kept["batch_price"],
        batch_fallback=kept["batch_fallback_price"] if has_fallback else None,
        reward=None if rewarder is None else reward,
        judge=None if judge is None else judges,
    )


def price_warnings(price: TeacherPrice, today: date) -> Iterator[str]:
    """Say what is doubtful about a price of a table: a year without a look at it, or a vendor's own last day."""
    listing, what = price.listing, f"the price of {price.model[:80]}"
    todo = "check it, or declare teacher.price"
    if listing.until is not None and listing.until < today:
        yield f"{what} was published until {listing.until} ({listing.source}): {todo}"
    elif listing.as_of is not None and today - listing.as_of > OLD:
        yield f"{what} is of {listing.as_of} ({listing.source}): {todo}"


def unit_warnings(price: TeacherPrice) -> Iterator[str]:
    """Say that a declared price is as small as if it were for one token."""
    dearer = max(price.input.usd_per_unit, price.output.usd_per_unit) * MICRO
    if price.listing.origin == "spec" and 0 < dearer < LEAST_USD_PER_MTOK:
        yield (
            f"the price of {price.model[:80]} is ${_text(dearer)} a million tokens, as if it were for one token: "
            "declare teacher.price in US dollars per million tokens"
        )


def is_free(price: TeacherPrice) -> bool:
    return price.input.usd_per_unit == price.output.usd_per_unit == 0


def row_price(row: PriceRow, origin: Origin) -> TeacherPrice:
    """A row as a price. Its version names the table, the row's day and a digest of all that it says; cached and written
    input without a price of their own are billed as input."""
    plain, output = row.input_usd_per_mtok, row.output_usd_per_mtok
    cached = plain if row.cached_input_usd_per_mtok is None else row.cached_input_usd_per_mtok
    written = plain if row.cache_write_usd_per_mtok is None else row.cache_write_usd_per_mtok
    per_mtok = (plain, cached, written, output)
    listing = Listing(
        origin=origin, place=row.place, as_of=row.as_of, until=row.until, source=row.source, note=row.note
    )
    digest = sha256_of({"model": row.model, "usd_per_mtok": [_text(usd) for usd in per_mtok], **_listing_json(listing)})
    return model_price(row.model, per_mtok, version=f"{origin}-{row.as_of}-{digest[:16]}", listing=listing)


def batch_price(price: TeacherPrice, terms: BatchTerms, discount: Decimal) -> TeacherPrice:
    """Return what a model costs in a batch: the discount off every price. Where the vendor does not take it off cached
    input as well, that is billed as input is in a batch."""
    plain, cached, written, output = (
        (1 - discount) * part.usd_per_unit * MICRO
        for part in (price.input, price.cached_input, price.cache_write, price.output)
    )
    if not terms.with_cache:
        cached = written = plain
    percent = _text(100 * discount)
    note = f"{price.listing.note + '; ' if price.listing.note else ''}in a batch, {percent} % off: {terms.source}"
    return model_price(
        price.model,
        (plain, cached, written, output),
        version=f"{price.version}-batch-{percent}",
        listing=replace(price.listing, note=note),
    )


def _in_a_batch(teacher: Teacher, price: TeacherPrice, operator: PriceTable) -> TeacherPrice | None:
    """The price of a model in a batch, where the spec sends any: by the discount that the spec declares, else the row
    of its model, else the vendor's for all."""
    terms = dialect_of(teacher.model_copy(update={"model": price.model})).batch
    if teacher.mode != "batch" or terms is None:
        return None
    if teacher.price is not None:
        declared = teacher.price.batch_discount
        return batch_price(price, terms, terms.discount if declared is None else declared)
    host = host_of(teacher.base_url)
    rows = (table.find(host, price.model) for table in (operator, shipped_prices()))
    row = next((row for row in rows if row is not None), None)
    return batch_price(price, terms, (row and row.batch_discount) or terms.discount)


def price_json(price: TeacherPrice) -> dict[str, str | None]:
    """A price in full, its amounts as decimal strings."""
    parts = (price.input, price.cached_input, price.cache_write, price.output)
    return {
        "version": price.version,
        "model": price.model,
        **{name: _text(part.usd_per_unit * MICRO) for name, part in zip(_AMOUNTS, parts, strict=True)},
        **_listing_json(price.listing),
    }


def price_sentence(row: Mapping[str, Any]) -> str:
    """A price, as `price_json` writes it, in one line.

    >>> price_sentence({"model": "m", "input_usd_per_mtok": "2", "output_usd_per_mtok": "8", "origin": "spec"})
    'm: $2 input and $8 output a million tokens, as the spec declares'
    """
    plain, output = row["input_usd_per_mtok"], row["output_usd_per_mtok"]
    amounts = f"${plain} input and ${output} output a million tokens" if Decimal(plain) or Decimal(output) else "free"
    if row["origin"] == "spec":
        whose = "as the spec declares"
    elif row["origin"] == "book":
        whose = f"by the price book {row['version']}"
    else:
        whose = f"{row['place']} as of {row['as_of']}, {row['source']}"
    return f"{row['model']}: {amounts}, {whose}" + (f" ({row['note']})" if row.get("note") else "")


def price_of_json(value: Mapping[str, Any]) -> TeacherPrice:
    """Read what `price_json` wrote."""
    plain, cached, written, output = (Decimal(value[name]) for name in _AMOUNTS)
    as_of, until = (None if value[name] is None else date.fromisoformat(value[name]) for name in ("as_of", "until"))
    listing = Listing(
        origin=value["origin"],
        place=value["place"],
        as_of=as_of,
        until=until,
        source=value["source"],
        note=value["note"],
    )
    return model_price(value["model"], (plain, cached, written, output), version=value["version"], listing=listing)


def _resolve(teacher: Teacher, model: str, book: PriceBook, operator: PriceTable) -> TeacherPrice:
    host, tables = host_of(teacher.base_url), (operator, shipped_prices())
    if teacher.price is None:
        for table in tables:
            row = table.find(host, model)
            if row is not None:
                return row_price(row, table.origin)
    at = "" if host is None else f" at {host}"
    return teacher_price(book, model, teacher.price, at=at, near=_near(host, model, tables))


def _near(host: str | None, model: str, tables: tuple[PriceTable, ...]) -> str:
    """Name what is priced at this host and spelled alike, or where else this model has a price."""
    if host is None:
        return ""
    known = {name for table in tables for name in table.models_at(host)}
    names = get_close_matches(model, known, N_NEAREST, cutoff=0.5)
    if names:
        return f". There is a price for {', '.join(names)}"
    places = sorted({place for table in tables for place in table.places_of(model)})[:N_NEAREST]
    return f". The price at {', '.join(places)} is another host's" if places else ""


def _listing_json(listing: Listing) -> dict[str, str | None]:
    return {
        "origin": listing.origin,
        "place": listing.place,
        "as_of": None if listing.as_of is None else listing.as_of.isoformat(),
        "until": None if listing.until is None else listing.until.isoformat(),
        "source": listing.source,
        "note": listing.note,
    }


def _text(usd: Decimal) -> str:
    return format(usd.normalize(), "f")
