"""The file of prices and plans: the one that ships (`prices.json`), and an operator's own in the same form. Text comes
in parsed from JSON or YAML, as plain objects. docs/prices.md says what each field means.

Every fault is collected with its place, so that one look at the message mends the file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

from backend.domain.money.plan_tables import MICROUSD_PER_USD, Plan, PlanName, PlanTable
from backend.domain.money.price_books import MICRO, Price, PriceBook
from backend.domain.pointers import suggestion

T = TypeVar("T")
MOST_FAULTS = 20
MOST_BOOKS = 200
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,15})?")
_VERSION = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_SKU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}")
_LEAST_USD = Decimal(1).scaleb(-15)  # the places that a published price has
_COUNTS = ("concurrent_compiles", "seats", "api_keys", "webhook_endpoints")
_CAPS = ("spend_cap_usd", "spend_cap_max_usd")
_PLAN_FIELDS = ("title", "monthly_usd", *_CAPS, *_COUNTS, "runner_weight", "retention_days", "sso", "audit_log")


class BadPriceFile(ValueError):
    """A file that cannot be used; the message names every place at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFile:
    """The books and the tables of plans of one file, each in the order of their times. Either may be empty."""

    books: tuple[PriceBook, ...] = ()
    plan_tables: tuple[PlanTable, ...] = ()


class _Fault(ValueError):
    """The fault of one place."""


@dataclass(slots=True)
class _Reader:
    """Reads one part after another and keeps what was wrong."""

    faults: list[str] = field(default_factory=list)

    def try_read(self, place: str, read: Callable[[Any], T], value: Any) -> T | None:
        try:
            return read(value)
        except _Fault as fault:
            self.faults.append(f"{place}: {fault}")
            return None

    def list_of(self, place: str, value: Any, read: Callable[[str, Any], T | None]) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > MOST_BOOKS:
            self.faults.append(f"{place}: a list of at most {MOST_BOOKS} is needed")
            return ()
        rows = (read(f"{place}[{number}]", row) for number, row in enumerate(value))
        return tuple(row for row in rows if row is not None)

    def fields(self, place: str, value: Any, known: Sequence[str]) -> dict[str, Any] | None:
        """The object at a place if it has these fields, all of them and no others."""
        if not isinstance(value, dict):
            self.faults.append(f"{place}: an object with {', '.join(known)} is needed")
            return None
        n_before = len(self.faults)
        unknown = [str(name) for name in value if name not in known]
        self.faults += [f"{place}.{name[:60]}: no such field; {suggestion(name, list(known))}" for name in unknown]
        self.faults += [f"{place}.{name}: is missing" for name in known if name not in value]
        return value if len(self.faults) == n_before else None

    def check(self) -> None:
        if self.faults:
            more = len(self.faults) - MOST_FAULTS
            rest = f"; and {more} more" if more > 0 else ""
            raise BadPriceFile("; ".join(self.faults[:MOST_FAULTS]) + rest)


def read_price_file(value: object) -> PriceFile:
    """The file in `{"books": [...], "plans": [...]}`, one of the two at least. Raises BadPriceFile."""
    reader = _Reader()
    if not isinstance(value, dict) or not value or not set(value) <= {"books", "plans"}:
        raise BadPriceFile('the file is no object with "books", "plans" or both')
    books = reader.list_of("books", value.get("books", []), lambda place, row: _book(reader, place, row))
    tables = reader.list_of("plans", value.get("plans", []), lambda place, row: _table(reader, place, row))
    for name, rows in (("books", books), ("plans", tables)):
        _check_order(reader, name, rows)
    reader.check()
    return PriceFile(books=books, plan_tables=tables)


def _check_order(reader: _Reader, name: str, rows: Sequence[PriceBook | PlanTable]) -> None:
    versions = [row.version for row in rows]
    times = [row.effective_at for row in rows]
    reader.faults += [
        f"{name}: the version {one} is there twice" for one in sorted(set(versions)) if versions.count(one) > 1
    ]
    if any(later <= earlier for earlier, later in pairwise(times)):
        reader.faults.append(f"{name}: each must take effect after the one before it; the newest stands last")


def _book(reader: _Reader, place: str, value: Any) -> PriceBook | None:
    row = reader.fields(place, value, ("version", "effective_at", "prices"))
    if row is None:
        return None
    version = reader.try_read(f"{place}.version", _version, row["version"])
    at = reader.try_read(f"{place}.effective_at", _time, row["effective_at"])
    if not isinstance(row["prices"], dict) or not row["prices"]:
        reader.faults.append(f"{place}.prices: an object of skus with their prices is needed")
        return None
    read = {
        str(sku): reader.try_read(f"{place}.prices.{str(sku)[:80]}", _price(str(sku)), price)
        for sku, price in row["prices"].items()
    }
    prices = {sku: price for sku, price in read.items() if price is not None}
    if version is None or at is None or len(prices) < len(read):
        return None
    return PriceBook(version=version, effective_at=at, prices=MappingProxyType(prices))


def _price(sku: str) -> Callable[[Any], Price]:
    def read(value: Any) -> Price:
        if not _SKU.fullmatch(sku):
            raise _Fault("a sku is a name such as runner.second")
        if not isinstance(value, dict) or not {"usd", "usd_per_million"} & set(value):
            raise _Fault('an object such as {unit: second, usd: "0.00015"} or {unit: token, usd_per_million: "0.10"}')
        if not set(value) <= {"unit", "usd", "usd_per_million"} or {"usd", "usd_per_million"} <= set(value):
            raise _Fault("it has unit and either usd or usd_per_million, and nothing else")
        unit = _line(value.get("unit"), 32)
        per_million = "usd_per_million" in value
        usd = _usd(value["usd_per_million"]) / MICRO if per_million else _usd(value["usd"])
        if usd % _LEAST_USD:
            raise _Fault("a price has at most 15 decimal places a unit")
        return Price(sku=sku, unit=unit, usd_per_unit=usd)

    return read


def _table(reader: _Reader, place: str, value: Any) -> PlanTable | None:
    row = reader.fields(place, value, ("version", "effective_at", "plans"))
    if row is None:
        return None
    version = reader.try_read(f"{place}.version", _version, row["version"])
    at = reader.try_read(f"{place}.effective_at", _time, row["effective_at"])
    plans = reader.fields(f"{place}.plans", row["plans"], [name.value for name in PlanName])
    if plans is None:
        return None
    read = {name: _plan(reader, f"{place}.plans.{name}", name, plans[name.value]) for name in PlanName}
    complete = {name: plan for name, plan in read.items() if plan is not None}
    if version is None or at is None or len(complete) < len(read):
        return None
    return PlanTable(version=version, effective_at=at, plans=MappingProxyType(complete))


def _plan(reader: _Reader, place: str, name: PlanName, value: Any) -> Plan | None:
    row = reader.fields(place, value, _PLAN_FIELDS)
    if row is None:
        return None
    n_before = len(reader.faults)

    def read(key: str, parse: Callable[[Any], T]) -> T | None:
        return None if row[key] is None else reader.try_read(f"{place}.{key}", parse, row[key])

    cents, cap, most = (
        read("monthly_usd", _cents),
        read("spend_cap_usd", _microusd),
        read("spend_cap_max_usd", _microusd),
    )
    counts = {key: read(key, _count) for key in _COUNTS}
    title = reader.try_read(f"{place}.title", lambda text: _line(text, 40), row["title"])
    weight = reader.try_read(f"{place}.runner_weight", _count, row["runner_weight"])
    days = reader.try_read(f"{place}.retention_days", _count, row["retention_days"])
    flags = {key: reader.try_read(f"{place}.{key}", _flag, row[key]) for key in ("sso", "audit_log")}
    if most is not None and (cap is None or cap > most):
        reader.faults.append(f"{place}.spend_cap_usd: is more than spend_cap_max_usd")
    if name is PlanName.FREE and cents != 0:
        reader.faults.append(f'{place}.monthly_usd: the free plan costs "0"')
    if len(reader.faults) > n_before or title is None or days is None or weight is None:
        return None
    return Plan(
        name=name,
        title=title,
        monthly_cents=cents,
        cap_default_microusd=cap,
        cap_max_microusd=most,
        runner_weight=weight,
        retention_days=days,
        sso=bool(flags["sso"]),
        audit_log=bool(flags["audit_log"]),
        **counts,
    )


def _version(value: Any) -> str:
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise _Fault('a name in quotes is needed, such as "2026-12-01": small letters, digits, dots, dashes')
    return value


def _time(value: Any) -> datetime:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise _Fault("a time with its zone is needed, such as 2026-12-01T00:00:00Z")
    return at.astimezone(UTC)


def _line(value: Any, most: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > most or not value.isprintable():
        raise _Fault(f"a line of 1 to {most} characters is needed")
    return value


def _usd(value: Any) -> Decimal:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise _Fault('US dollars in quotes are needed, such as "0.15"')
    return Decimal(value)


def _cents(value: Any) -> int:
    return _whole(_usd(value) * 100, "cents")


def _microusd(value: Any) -> int:
    return _whole(_usd(value) * MICROUSD_PER_USD, "millionths of a dollar")


def _whole(amount: Decimal, what: str) -> int:
    if amount != amount.to_integral_value():
        raise _Fault(f"a whole number of {what} is needed")
    return int(amount)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 < value <= 1_000_000:
        raise _Fault("a whole number from 1 on is needed, or null for no limit")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Fault("true or false is needed")
    return value


def faults_beside(file: PriceFile, shipped: Mapping[str, Price], kept: Mapping[str, PriceBook]) -> list[str]:
    """Return what keeps an operator's file from standing in for the shipped one: skus of the newest shipped book that
    a book of it has no price for, or another unit, and a version that another book has."""
    faults = []
    for book in file.books:
        place = f"the book {book.version}"
        faults += [f"{place}: has no price for {sku}" for sku in shipped if sku not in book.prices]
        for sku, price in book.prices.items():
            if sku not in shipped:
                faults.append(f"{place}: {sku} is no sku; {suggestion(sku, list(shipped))}")
            elif price.unit != shipped[sku].unit:
                faults.append(f"{place}: the unit of {sku} is {shipped[sku].unit!r}, not {price.unit!r}")
        if book.version in kept and kept[book.version].sha256 != book.sha256:
            faults.append(f"{place}: kolm ships another book of this version; give yours a name of its own")
    return faults
