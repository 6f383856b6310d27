"""The preview of what would be offered for a spec: the answer to `backend.drafts.previews`. Runs what a compile runs
before it asks the teacher anything (`previewed_slices.preview_slices`); nothing is asked, spent or written but the
answer."""

import logging
from uuid import UUID

from backend.domain.errors import KolmError
from backend.domain.spec.parsing import Spec, parse_spec
from backend.drafts.previews import PreviewedSlice, answer, fail, question
from backend.tenants.isolation import tenant_scope
from workers.candidates.slices import declare_slices, slice_text
from workers.embedding.sentence import load_embedder
from workers.live.previewed_slices import preview_slices

log = logging.getLogger("kolm.drafts")


def preview(tenant_id: UUID, preview_id: UUID) -> None:
    """Answer one question, if anybody still waits for it. Whoever asked hears of every failure: nobody asks again by
    himself."""
    document = question(tenant_id, preview_id)
    if document is None:
        return
    try:
        previews = prospects(tenant_id, parse_spec(document))
    except KolmError as error:
        fail(tenant_id, preview_id, error.message)
        return
    except Exception:
        log.exception("preview %s failed", preview_id)
        fail(tenant_id, preview_id, "something broke on our side; it is logged")
        return
    answer(tenant_id, preview_id, previews)


def prospects(tenant_id: UUID, spec: Spec) -> list[PreviewedSlice]:
    """One for each slice that the teacher would fill, in the spec's order; none for captures, which are written
    already."""
    slices = declare_slices(spec)
    embedder = load_embedder(spec.embedder)
    vectors = embedder.embed([slice_text(part) for part in slices])
    for slice_row, vector in zip(slices, vectors, strict=True):
        slice_row.embedding = vector.tobytes()
    with tenant_scope(tenant_id):
        return preview_slices(tenant_id, spec, slices, vectors, embedder=embedder)
