"""The savings of drafts, as a line of the bill: written with the account of the slice that it is of, never changed."""

from uuid import UUID

from backend.domain.drafts.vocabulary import Saving
from backend.usage.models import DraftSaving


def note_saving(
    tenant_id: UUID, compile_id: UUID, *, step: str, source_key: str, saving: Saving, price_version: str
) -> None:
    """Note a saving in the caller's transaction; the same `source_key` again changes nothing. What verifying cost
    counts whatever it was spent on: verdicts, look-ups, audits or exploration."""
    DraftSaving.objects.bulk_create(
        [
            DraftSaving(
                tenant_id=tenant_id,
                compile_id=compile_id,
                step=step,
                source_key=source_key,
                avoided_microusd=saving.avoided,
                verification_microusd=saving.avoided - saving.net,
                net_microusd=saving.net,
                price_version=price_version,
            )
        ],
        ignore_conflicts=True,
    )
