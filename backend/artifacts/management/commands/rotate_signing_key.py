"""`rotate_signing_key [--prepare | --finish] [--leaked KEYID]`: docs/keys.md says when and what happens to whom."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from backend.artifacts import rotating
from backend.artifacts.signing_documents import is_owner
from backend.domain.artifact.keyrings import BadKeyring
from backend.domain.errors import CustomerError


class Command(BaseCommand):
    help = "Replace the signing key; artifacts of the old one stay trusted (as the owner: KOLM_DB_ROLE=owner)."

    def add_arguments(self, parser: CommandParser) -> None:
        part = parser.add_mutually_exclusive_group()
        part.add_argument(
            "--prepare", action="store_true", help="only make and publish the new key; it signs nothing yet"
        )
        part.add_argument("--finish", action="store_true", help="only retire all keys but the one that is in place now")
        parser.add_argument("--leaked", metavar="KEYID", help="revoke this key, and replace it if it signs")
        parser.add_argument(
            "--next", type=Path, metavar="FILE", help="where the new key is written; default: beside the old"
        )

    def handle(
        self, *args: Any, prepare: bool, finish: bool, leaked: str | None, next: Path | None, **options: Any
    ) -> None:
        current = Path(settings.KOLM_SIGNING_KEY_FILE)
        next_file = next or current.with_name(f"{current.stem}.next{current.suffix}")
        if not is_owner():
            raise CommandError("Only the owner of the tables writes keys down: KOLM_DB_ROLE=owner.")
        try:
            with rotating.alone():
                if prepare:
                    rotating.prepare(next_file, self.stdout.write)
                elif finish:
                    rotating.finish(leaked=leaked, say=self.stdout.write)
                else:
                    rotating.rotate(next_file, leaked=leaked, say=self.stdout.write)
        except CustomerError as fault:
            raise CommandError(fault.message) from None
        except (OSError, ValueError, TypeError, BadKeyring) as fault:
            raise CommandError(
                f"{fault}. Nothing that was signed is lost; see docs/keys.md, and run it again."
            ) from None
