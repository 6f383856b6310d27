"""`install_signing_key`: gives the key in KOLM_SIGNING_KEY_FILE its document, where it has none. Run as the owner,
after every migrate; running it again changes nothing."""

from typing import Any

from django.core.management.base import BaseCommand

from backend.artifacts import signing_documents
from backend.artifacts.signing import public_raw
from backend.domain.artifact.receipts import keyid


class Command(BaseCommand):
    help = "Write down the dates of the signing key (as the owner: KOLM_DB_ROLE=owner)."

    def handle(self, *args: Any, **options: Any) -> None:
        if signing_documents.install(public_raw()):
            self.stdout.write(f"The signing key {keyid(public_raw())} has a document now: valid from always.")
