"""`prepare_database [--only]`: `migrate`, `install_tenant_key` and `install_signing_key` in one process, which is what
every release runs first, as the owner. Running it again changes nothing."""

from typing import Any, ClassVar

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    help = "Bring the tables up to date and store the keys that belong to them (as the owner: KOLM_DB_ROLE=owner)."
    requires_system_checks: ClassVar[list[str]] = []  # of addresses and templates: the web process makes them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--only", action="store_true", help="accept no other tenant key; see install_tenant_key")

    def handle(self, *args: Any, only: bool, **options: Any) -> None:
        shown = {"verbosity": options["verbosity"], "stdout": self.stdout}
        call_command("migrate", interactive=False, **shown)
        call_command("install_tenant_key", only=only, **shown)
        call_command("install_signing_key", **shown)
