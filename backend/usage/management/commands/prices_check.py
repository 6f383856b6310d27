"""`prices_check [FILE]`"""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from backend.domain.money.price_catalog import Catalog
from backend.domain.money.pricing import PriceBook
from backend.environment import parse_catalog
from backend.usage.models import PriceBookRow


class Command(BaseCommand):
    help = (
        "Check a file of price books and plans before an installation is started with it (KOLM_PRICES); without a FILE "
        "say what is in force here. Exits with 1 where the file cannot be used."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, help="YAML or JSON; docs/prices.md says what is in it")

    def handle(self, *args: Any, file: Path | None, **options: Any) -> None:
        try:
            wanted = settings.KOLM_PRICES if file is None else parse_catalog(str(file))
        except ValueError as fault:
            raise CommandError(f"The value {fault}") from None
        self._print(wanted)
        faults = [fault for book in wanted.known_books.values() for fault in published_otherwise(book)]
        if faults:
            raise CommandError("; ".join(faults))

    def _print(self, wanted: Catalog) -> None:
        now = timezone.now()
        newest = max((book for book in wanted.books if book.effective_at <= now), key=lambda book: book.effective_at)
        for book in wanted.books:
            state = "in force" if book is newest else "to come" if book.effective_at > now else "before"
            self.stdout.write(f"book   {book.version:<20} {book.effective_at:%Y-%m-%d %H:%M} UTC  {state}")
        for table in wanted.plan_tables:
            state = "in force" if table is wanted.plan_tables[-1] else "before"
            self.stdout.write(f"plans  {table.version:<20} {table.effective_at:%Y-%m-%d %H:%M} UTC  {state}")


def published_otherwise(book: PriceBook) -> list[str]:
    """A book that was published is never another one: what was billed by it must stay checkable."""
    rows = PriceBookRow.objects.filter(version=book.version).exclude(sha256=book.sha256)
    message = (
        f"The price book {book.version} was published here with other prices; give the new ones a version of their own"
    )
    return [message] if rows.exists() else []
