"""The learning curve of an upload: asked for by whoever shows it, measured once by a worker, kept in the upload's row:
`{"asked_at": seconds}` while nobody has answered, `{"reason": ...}` where there is no curve, else the curve."""

import time
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from backend.compiles.models import Upload
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.planning.own_curves import OwnCurve
from backend.domain.planning.quality_forecast import curve_from, curve_json
from backend.queue import TaskName, enqueue
from backend.tenants.isolation import tenant_scope

ASK_AGAIN_S = 60.0
ASKED_AT, REASON = "asked_at", "reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveAnswer:
    """A curve, a `reason` why there is none, or neither while a worker measures."""

    curve: OwnCurve | None = None
    reason: str = ""

    @property
    def is_pending(self) -> bool:
        return self.curve is None and not self.reason


def curve_of(upload: Upload) -> CurveAnswer:
    """The answer for an upload; a worker is asked where it has none yet. In the caller's transaction."""
    if upload.purpose != UploadPurpose.EXAMPLES:
        return CurveAnswer(reason="A learning curve is measured on examples: inputs with their answers.")
    known = upload.learning_curve or {}
    if REASON in known:
        return CurveAnswer(reason=known[REASON])
    if "points" in known:
        return CurveAnswer(curve=curve_from(known))
    now = time.time()
    if now - known.get(ASKED_AT, 0.0) > ASK_AGAIN_S:
        _rows(upload.tenant_id, upload.id).update(learning_curve={ASKED_AT: now})
        ids = {"tenant_id": str(upload.tenant_id), "upload_id": str(upload.id)}
        transaction.on_commit(partial(enqueue, TaskName.UPLOAD_CURVE, **ids))
    return CurveAnswer()


def rows_to_measure(tenant_id: UUID, upload_id: UUID) -> str | None:
    """The digest of the upload's rows, for the worker; None where there is nothing left to measure."""
    with tenant_scope(tenant_id):
        row = _rows(tenant_id, upload_id).first()
    known = {} if row is None else row.learning_curve or {}
    return None if row is None or REASON in known or "points" in known else row.sha256


def keep_curve(tenant_id: UUID, upload_id: UUID, curve: OwnCurve) -> None:
    _keep(tenant_id, upload_id, curve_json(curve))


def keep_reason(tenant_id: UUID, upload_id: UUID, reason: str) -> None:
    _keep(tenant_id, upload_id, {REASON: reason})


def _keep(tenant_id: UUID, upload_id: UUID, value: dict[str, object]) -> None:
    with tenant_scope(tenant_id):
        _rows(tenant_id, upload_id).update(learning_curve=value)


def _rows(tenant_id: UUID, upload_id: UUID) -> QuerySet[Upload]:
    return Upload.objects.of_tenant(tenant_id).filter(id=upload_id)
