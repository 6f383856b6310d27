"""The drafts that would be offered for a spec: asked for by the web process, which loads no model, answered by a
worker, which can embed the slices (`workers/live/draft_preview`). The question is a row that both can see; it is
deleted as soon as whoever asked has the answer or has given up."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from rest_framework import serializers as s

from backend.domain.drafts.vocabulary import Arm, Strategy
from backend.domain.errors import Unavailable
from backend.domain.spec.parsing import Spec, canonical_spec
from backend.drafts.models import Preview, Scope
from backend.drafts.shapes import Ppm, Rounded, Whole
from backend.queue import TaskName, enqueue
from backend.rest.async_queries import let_go
from backend.rest.shapes import Shape
from backend.tenants.isolation import tenant_scope
from backend.wakeups import announce, listening

LOOK_AGAIN_S = 1.0
QUEUED, ANSWERED, FAILED = "queued", "answered", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedSlice:
    """The drafts that one slice could expect. Money in micro-USD, expectations; `acceptance_low` and `acceptance_high`
    hold with 95 % credibility. `reason` says in a sentence why nothing, or what, would be shown."""

    name: str
    strategy: Strategy | None
    arm: Arm
    n_sources: int
    nearest_distance: float | None
    n_drafts: int
    n_shown: int
    expected_accepted: float
    acceptance_low: float | None
    acceptance_high: float | None
    fresh_microusd: float | None
    expected_avoided_microusd: float
    expected_verification_microusd: float
    expected_net_microusd: float
    break_even: float | None
    reason: str


class PreviewSliceShape(Shape[PreviewedSlice]):
    slice = s.CharField(source="name")
    strategy = s.ChoiceField([strategy.value for strategy in Strategy], allow_null=True)
    arm = s.ChoiceField([arm.value for arm in Arm], help_text="What would happen to the slice.")
    n_sources = s.IntegerField(help_text="Slices of earlier compiles that are near.")
    nearest_distance_ppm = Ppm(source="nearest_distance", allow_null=True)
    n_drafts = s.IntegerField(help_text="Their live drafts.")
    n_shown = s.IntegerField(help_text="How many would be offered to the teacher.")
    expected_accepted = Rounded(2)
    acceptance_low_ppm = Ppm(
        source="acceptance_low", allow_null=True, help_text="95 % credible interval of the acceptance."
    )
    acceptance_high_ppm = Ppm(source="acceptance_high", allow_null=True)
    fresh_microusd = Rounded(3, allow_null=True, help_text="What one fresh candidate costs.")
    expected_avoided_microusd = Whole()
    expected_verification_microusd = Whole()
    expected_net_microusd = Whole()
    break_even_ppm = Ppm(source="break_even", allow_null=True, help_text="The acceptance above which a draft pays.")
    reason = s.CharField()


class PreviewTotalShape(Shape[Any]):
    n_slices = s.IntegerField()
    n_slices_offered = s.IntegerField()
    n_drafts = s.IntegerField()
    n_shown = s.IntegerField()
    expected_accepted = Rounded(2)
    expected_avoided_microusd = Whole()
    expected_verification_microusd = Whole()
    expected_net_microusd = Whole()


class PreviewShape(s.Serializer[Any]):  # {"object": ..., "family": ...} | the worker's answer
    object = s.ChoiceField(["draft_preview"])
    family = s.CharField()
    slices = PreviewSliceShape(many=True)
    total = PreviewTotalShape()


_SUMS = [name for name in PreviewTotalShape().fields if not name.startswith("n_slices")]


def total_of(slices: Sequence[PreviewedSlice]) -> dict[str, Any]:
    """Summed before it is rounded: a slice may save less than a micro-dollar."""
    sums = {name: math.fsum(getattr(part, name) for part in slices) for name in _SUMS}
    counts = {"n_slices": len(slices), "n_slices_offered": sum(part.n_shown > 0 for part in slices)}
    return PreviewTotalShape.of(counts | sums)


def expected_saving(tenant_id: UUID, spec: Spec, *, wait_s: float) -> dict[str, Any]:
    """Return an estimate's figures of the cache: the preview's total, or nulls and a `reason`. A family that has no
    drafts takes no worker to tell. Outside a transaction."""
    with tenant_scope(tenant_id):
        is_known = Scope.objects.filter(tenant_id=tenant_id, family=spec.family).exists()
    if not spec.draft_cache.enabled or spec.draft_cache.verify == "off":
        return total_of(()) | {"reason": "This spec offers no drafts (draft_cache.enabled, draft_cache.verify)."}
    if not is_known:
        return total_of(()) | {"reason": f"There are no drafts of the family {spec.family!r} yet."}
    try:
        answer = preview(tenant_id, canonical_spec(spec), wait_s=wait_s)
    except Unavailable as away:
        return dict.fromkeys(total_of(()), None) | {"reason": away.message}
    total: dict[str, Any] = answer["total"]
    reasons = list(dict.fromkeys(part["reason"] for part in answer["slices"]))
    return total | {"reason": None if total["n_shown"] else " ".join(reasons)}


def preview(tenant_id: UUID, spec: dict[str, Any], *, wait_s: float) -> dict[str, Any]:
    """Ask, and wait for the answer: `{"slices": [...], "total": {...}}`. Outside a transaction. Raises Unavailable when
    no worker answers in time (no_worker) or the answering one failed (preview_failed)."""
    with tenant_scope(tenant_id):
        asked = Preview.objects.create(tenant_id=tenant_id, spec=spec, status=QUEUED)
    try:
        with listening(asked.id) as wait:
            if not enqueue(TaskName.DRAFTS_PREVIEW, tenant_id=str(tenant_id), preview_id=str(asked.id)):
                raise Unavailable("The workers cannot be reached just now; try again.", code="no_worker")
            until = time.monotonic() + wait_s
            while True:
                row = _look(tenant_id, asked.id)
                left_s = until - time.monotonic()
                if row.status != QUEUED or left_s <= 0:
                    return _answer_of(row, wait_s)
                let_go()  # a request that waits must not hold a connection of the pool
                wait(min(left_s, LOOK_AGAIN_S))
    finally:
        with tenant_scope(tenant_id):
            Preview.objects.filter(tenant_id=tenant_id, id=asked.id).delete()


def _look(tenant_id: UUID, preview_id: UUID) -> Preview:
    with tenant_scope(tenant_id):
        return Preview.objects.get(tenant_id=tenant_id, id=preview_id)


def _answer_of(row: Preview, wait_s: float) -> dict[str, Any]:
    if row.status == ANSWERED:
        answer: dict[str, Any] = row.result
        return answer
    if row.status == FAILED:
        raise Unavailable(f"The preview failed: {row.result}", code="preview_failed")
    raise Unavailable(
        f"No worker answered within {wait_s:g} s: all are busy, or none is running. Try again.", code="no_worker"
    )


def question(tenant_id: UUID, preview_id: UUID) -> dict[str, Any] | None:
    """Return the spec that is asked about, for the worker; None when nobody waits for the answer any more."""
    with tenant_scope(tenant_id):
        row = Preview.objects.filter(tenant_id=tenant_id, id=preview_id, status=QUEUED).first()
    return None if row is None else row.spec


def answer(tenant_id: UUID, preview_id: UUID, slices: Sequence[PreviewedSlice]) -> None:
    result = {"slices": [PreviewSliceShape.of(part) for part in slices], "total": total_of(slices)}
    _close(tenant_id, preview_id, ANSWERED, result)


def fail(tenant_id: UUID, preview_id: UUID, message: str) -> None:
    _close(tenant_id, preview_id, FAILED, message)


def _close(tenant_id: UUID, preview_id: UUID, status: str, result: Any) -> None:
    with tenant_scope(tenant_id):
        Preview.objects.filter(tenant_id=tenant_id, id=preview_id, status=QUEUED).update(status=status, result=result)
    announce(preview_id)
