"""`KOLM_DB_ROLE=owner index_large_scopes [--above N]`: indexes for scopes that take too long to be read whole."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from backend.drafts.large_scopes import ABOVE, build_index, built_indexes, drop_index, large_scopes
from backend.drafts.nearest import index_name


class Command(BaseCommand):
    help = "Build the vector index of every scope above a size, and drop those of scopes that are not (any more)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--above", type=int, default=ABOVE, help="sources in a scope (default: 100000)")

    def handle(self, *args: Any, above: int, **options: Any) -> None:
        large = large_scopes(above)
        built = built_indexes()
        for name in sorted(set(built) - {index_name(scope.scope_id) for scope in large}):
            drop_index(name)
            self.stdout.write(f"dropped {name}")
        for scope in large:
            if not built.get(index_name(scope.scope_id)):
                self.stdout.write(f"built {build_index(scope)} over {scope.n_sources} sources")
