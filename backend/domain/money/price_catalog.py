"""The price books and tables of plans of this installation: those that ship, or an operator's in their place.

A process installs its catalog once, at its start (`backend.settings`), before anything is priced; nothing changes it
afterwards. Without that it is the shipped one, as in the command-line tools and on runners.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from backend.domain.money.plan_tables import PlanTable
from backend.domain.money.price_books import PriceBook
from backend.domain.money.price_file import BadPriceFile, PriceFile, faults_beside, read_price_file
from backend.domain.strict_json import read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """`books` are in force one after another; `known_books` are all by their version, those too that an operator's
    books came before: what was estimated by one is billed by it."""

    books: tuple[PriceBook, ...]
    known_books: Mapping[str, PriceBook]
    plan_tables: tuple[PlanTable, ...]


@cache
def shipped_catalog() -> Catalog:
    """The catalog that this version of kolm ships."""
    body = resources.files("backend.domain.money").joinpath("prices.json").read_bytes()
    file = read_price_file(read_json(body))
    known = MappingProxyType({book.version: book for book in file.books})
    return Catalog(books=file.books, known_books=known, plan_tables=file.plan_tables)


def catalog_with(file: PriceFile) -> Catalog:
    """The shipped catalog with an operator's file over it: from the first of its books on its books alone are in force,
    and the shipped ones before that; likewise its tables of plans. Raises BadPriceFile."""
    shipped = shipped_catalog()
    faults = faults_beside(file, shipped.books[-1].prices, shipped.known_books)
    if faults:
        raise BadPriceFile("; ".join(faults[:20]))
    books = shipped.books
    if file.books:
        books = (*(book for book in books if book.effective_at < file.books[0].effective_at), *file.books)
    tables = shipped.plan_tables
    if file.plan_tables:
        first = file.plan_tables[0].effective_at
        tables = (*(table for table in tables if table.effective_at < first), *file.plan_tables)
    known = {**shipped.known_books, **{book.version: book for book in file.books}}
    return Catalog(books=books, known_books=MappingProxyType(known), plan_tables=tables)


_installed: list[Catalog] = []


def install(wanted: Catalog) -> None:
    """Take a catalog for this process; at its start."""
    _installed[:] = [wanted]


def catalog() -> Catalog:
    """The catalog of this process."""
    return _installed[0] if _installed else shipped_catalog()
