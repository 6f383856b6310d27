"""The texts that the teacher kept and refused last, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backend.compiles.draft_verdicts import SliceDrafts, asked_drafts
from backend.compiles.models import Compile, Slice
from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.domain.ids import Prefix, encode_id
from backend.drafts.models import Verdict

MAX_SLICES = 3
MAX_TEXTS = 3  # of each verdict, in one slice


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestVerdicts:
    """The newest compile that asked its teacher about drafts: the slices where it refused some come first."""

    id: str
    name: str
    created_at: datetime
    slices: list[SliceDrafts]
    n_slices: int


def newest_verdicts(tenant_id: UUID, scope_ids: Sequence[UUID]) -> NewestVerdicts | None:
    """None where nobody was asked yet, or the compile is gone."""
    asked_last = (
        Verdict.objects.filter(tenant_id=tenant_id, scope_id__in=scope_ids, kind=VerdictKind.VERDICT)
        .exclude(strategy=Strategy.REPEAT)
        .order_by("-id")
        .values_list("compile_id", flat=True)
        .first()
    )
    row = None if asked_last is None else Compile.objects.of_tenant(tenant_id).filter(id=asked_last).first()
    if row is None:
        return None
    slices = Slice.objects.of_tenant(tenant_id).filter(compile=row).defer("embedding", "exemplars", "selection")
    asked = asked_drafts(row, slices)
    with_verdicts = [one for one in slices if one.position in asked.positions]
    mixed_first = sorted(with_verdicts, key=lambda one: (not asked.has_both(one.position), one.position))
    return NewestVerdicts(
        id=encode_id(Prefix.COMPILE, row.id),
        name=row.name,
        created_at=row.created_at,
        slices=asked.of_slices(mixed_first[:MAX_SLICES], most=MAX_TEXTS),
        n_slices=len(mixed_first),
    )
