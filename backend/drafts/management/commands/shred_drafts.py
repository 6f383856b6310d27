"""`KOLM_DB_ROLE=owner shred_drafts`: after a purge, the deleted keys are taken out of the data files."""

from typing import Any

from django.core.management.base import BaseCommand
from django.db import ProgrammingError, connection

from backend.drafts.models import FamilyKey

GONE = "Keys of purged families are no longer in the table's file."
CHECKPOINTED = "A checkpoint was written: the server may remove or reuse write-ahead log from before it."
NOT_CHECKPOINTED = (
    "No checkpoint was written, since this role may not (GRANT pg_checkpoint lets it):"
    " the table's old file is removed at the server's next one."
)
REMAINS = """\
What remains: the sealed keys lie in write-ahead log segments until the server recycles them (and in an archive of
them), on replicas until they have replayed this, in backups and file-system snapshots until those are thrown away, and
in free blocks of the disk. Whoever has one of those and KOLM_SEALING_KEY can open the purged texts that are on it.
Sealed texts and rotated vectors of deleted rows stay in the data files until vacuum lets their places be reused."""


class Command(BaseCommand):
    help = "Rewrite the table of family keys without its deleted rows, and say what that does not reach."

    def handle(self, *args: Any, **options: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"VACUUM (FULL) {FamilyKey._meta.db_table}")
        self.stdout.write(GONE)
        self.stdout.write(CHECKPOINTED if _checkpoint() else NOT_CHECKPOINTED)
        self.stdout.write(REMAINS)


def _checkpoint() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")
    except ProgrammingError:  # insufficient privilege
        return False
    return True
