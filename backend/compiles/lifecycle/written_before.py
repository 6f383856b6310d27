"""Read what a teacher wrote for the same task in an earlier compile: the next candidates will be about as long."""

from uuid import UUID

from backend.compiles.models import Candidate, Compile
from backend.domain.spec.parsing import Spec

RECENT = 50  # compiles that are looked through
ENOUGH, MOST = 20, 200  # texts, below which a compile says nothing, and that are read of one
FRESH = "fresh"  # the origin of what a teacher wrote for the compile itself


def written_before(tenant_id: UUID, spec: Spec) -> list[str]:
    """Return texts that the spec's model wrote for its task, with slices or without as here, in the latest of the
    tenant's compiles that has enough of them; [] where none of the recent ones has."""
    recent = (
        Compile.objects.of_tenant(tenant_id)
        .filter(ablation_of__isnull=True)
        .order_by("-created_at", "-id")
        .values_list("id", "spec__task", "spec__teacher__model", "spec__slices")[:RECENT]
    )
    wanted = (spec.task, spec.teacher.model, bool(spec.slices))
    for compile_id, task, model, slices in recent:
        if (task, model, bool(slices)) != wanted:
            continue
        rows = Candidate.objects.of_tenant(tenant_id).filter(compile_id=compile_id, origin=FRESH).order_by("text_key")
        texts = list(rows.values_list("text", flat=True)[:MOST])
        if len(texts) >= ENOUGH:
            return texts
    return []
