"""The learning curve of an upload's examples: the answer to `backend.compiles.uploads.curves`. Seconds of one core."""

import logging
from uuid import UUID

import numpy as np

from backend.blobs import get_jsonl
from backend.compiles.uploads.curves import keep_curve, keep_reason, rows_to_measure
from backend.domain.errors import InvalidInput, KolmError
from backend.domain.planning.own_curves import OwnCurve, measure_curve, rows_for_curve
from workers.embedding.sentence import load_embedder

log = logging.getLogger("kolm.uploads")


def answer_curve(tenant_id: UUID, upload_id: UUID) -> None:
    """Measure one upload, unless that has been done. A failure is kept as the reason why there is no curve."""
    digest = rows_to_measure(tenant_id, upload_id)
    if digest is None:
        return
    try:
        keep_curve(tenant_id, upload_id, _measure(tenant_id, digest))
    except InvalidInput as error:
        keep_reason(tenant_id, upload_id, error.message)
    except KolmError as error:
        log.warning("the curve of upload %s was not measured: %s", upload_id, error.code)
        keep_reason(tenant_id, upload_id, f"The curve could not be measured: {error.message}")
    except Exception:
        log.exception("the curve of upload %s failed", upload_id)
        keep_reason(tenant_id, upload_id, "Something broke on our side while it was measured; it is logged.")


def _measure(tenant_id: UUID, digest: str) -> OwnCurve:
    rows = rows_for_curve(get_jsonl(tenant_id, digest))
    return measure_curve(rows, np.asarray(load_embedder(None).embed(list(rows.texts)), dtype=np.float64))
