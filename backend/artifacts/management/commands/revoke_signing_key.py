"""`revoke_signing_key KEYID`: a retired key whose private half got into other hands."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.artifacts import rotating
from backend.artifacts.signing_documents import is_owner
from backend.domain.errors import CustomerError


class Command(BaseCommand):
    help = "Revoke a signing key that is not in use any more (as the owner: KOLM_DB_ROLE=owner)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("keyid", help="64 hexadecimal digits, as /.well-known/kolm-keys.json has them")

    def handle(self, *args: Any, keyid: str, **options: Any) -> None:
        if not is_owner():
            raise CommandError("Only the owner of the tables writes keys down: KOLM_DB_ROLE=owner.")
        try:
            rotating.revoke(keyid, self.stdout.write)
        except CustomerError as fault:
            raise CommandError(fault.message) from None
