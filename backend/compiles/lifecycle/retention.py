"""Forgetting by age, as a team has set it: captures (uploads of that purpose), and what compiles wrote on their way
(candidates, teacher calls' answers, slices' examples).

What stays: the compile with its counts, costs, gate and receipts, which hold digests; and the artifact. A compile whose
candidates are gone cannot be resumed, and says so. An upload that a running compile names stays until it has ended.
"""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from backend.blobs import probe_store, sweep_blob
from backend.compiles.lifecycle.transitions import FORGOTTEN
from backend.compiles.models import Candidate, Compile, Slice, StepRun, TeacherBatch, TeacherCall, Upload
from backend.compiles.states import BatchState
from backend.compiles.uploads.deletion import specs_under_way
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus, StepName
from backend.tenants import audit
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import RetentionDue
from backend.tenants.team.team_settings import SWEEP_EVERY, settings_of

COMPILES_AT_ONCE = 50
_MADE_OF_CANDIDATES = ("dataset", "completions", "observations", "rules")


def sweep_due(*, limit: int = 20) -> int:
    """Forget old compiles and uploads of the tenants whose turn it is; return how many. Upkeep calls this."""
    now = timezone.now()
    n_gone = 0
    for tenant_id in list(RetentionDue.objects.filter(due_at__lte=now).values_list("tenant_id", flat=True)[:limit]):
        with transaction.atomic():
            row = RetentionDue.objects.select_for_update(skip_locked=True).filter(tenant_id=tenant_id).first()
            if row is None or row.due_at > now:
                continue
            n_gone += forget(tenant_id)
            row.due_at = now + SWEEP_EVERY
            row.save(update_fields=["due_at"])
    return n_gone


def forget(tenant_id: UUID) -> int:
    """Everything of the tenant that is older than it wants to keep. Raises Unavailable where blobs cannot be deleted
    just now, before a row is."""
    probe_store()
    with tenant_scope(tenant_id):
        kept = settings_of(tenant_id)
        n_uploads = _forget_captures(tenant_id, kept.captures_days) if kept.captures_days else 0
        n_compiles = _forget_candidates(tenant_id, kept.candidates_days) if kept.candidates_days else 0
        if n_uploads or n_compiles:
            data = {"n_uploads": n_uploads, "n_compiles": n_compiles}
            audit.note(tenant_id, actor=SYSTEM, action="retention.forgotten", data=data)
    return n_uploads + n_compiles


def _forget_captures(tenant_id: UUID, days: int) -> int:
    before = timezone.now() - timedelta(days=days)
    rows = Upload.objects.of_tenant(tenant_id).filter(purpose=UploadPurpose.CAPTURES, created_at__lt=before)
    running = specs_under_way(tenant_id)
    gone = [row for row in rows if encode_id(Prefix.UPLOAD, row.id) not in running]
    Upload.objects.of_tenant(tenant_id).filter(id__in=[row.id for row in gone]).delete()
    kept = set(
        Upload.objects.of_tenant(tenant_id).filter(sha256__in=[r.sha256 for r in gone]).values_list("sha256", flat=True)
    )
    for digest in {row.sha256 for row in gone} - kept:
        transaction.on_commit(lambda digest=digest: sweep_blob(tenant_id, digest))
    return len(gone)


def _forget_candidates(tenant_id: UUID, days: int) -> int:
    """Compiles that ended before then, a batch a sweep."""
    before = timezone.now() - timedelta(days=days)
    ended = Compile.objects.of_tenant(tenant_id).filter(status__in=TERMINAL, ended_at__lt=before)
    with_rows = Candidate.objects.of_tenant(tenant_id).values("compile_id")
    ids = list(ended.filter(id__in=with_rows).order_by("ended_at").values_list("id", flat=True)[:COMPILES_AT_ONCE])
    Candidate.objects.of_tenant(tenant_id).filter(compile_id__in=ids).delete()
    ended.filter(id__in=ids).exclude(status=CompileStatus.SUCCEEDED).update(failure_code=FORGOTTEN)
    _forget_datasets(tenant_id, ids)
    _forget_batches(tenant_id, ids)
    TeacherCall.objects.of_tenant(tenant_id).filter(compile_id__in=ids).update(choices=[])
    Slice.objects.of_tenant(tenant_id).filter(compile_id__in=ids).update(exemplars=[], hint="", embedding=None)
    return len(ids)


def _forget_datasets(tenant_id: UUID, compile_ids: list[UUID]) -> None:
    """The training sets that were made of the candidates, unless a compile that is kept has the same."""
    steps = StepRun.objects.of_tenant(tenant_id).filter(name=StepName.LABELING)
    mine = _datasets(steps.filter(compile_id__in=compile_ids))
    others = _datasets(steps.exclude(compile_id__in=compile_ids)) if mine else set()
    for digest in mine - others:
        transaction.on_commit(lambda digest=digest: sweep_blob(tenant_id, digest))


def _forget_batches(tenant_id: UUID, compile_ids: list[UUID]) -> None:
    """The files of batches that had no end when their compile failed."""
    rows = TeacherBatch.objects.of_tenant(tenant_id).exclude(state=BatchState.ENDED)
    mine = rows.filter(compile_id__in=compile_ids)
    others = rows.exclude(compile_id__in=compile_ids).values_list("file_sha256", flat=True)
    for digest in set(mine.values_list("file_sha256", flat=True)) - set(others):
        transaction.on_commit(lambda digest=digest: sweep_blob(tenant_id, digest))
    mine.update(state=BatchState.ENDED, ended_at=timezone.now())


def _datasets(steps: QuerySet[StepRun]) -> set[str]:
    datasets = [output.get("digests", {}) for output in steps.values_list("output", flat=True)]
    return {digests[name] for digests in datasets for name in _MADE_OF_CANDIDATES if name in digests}
