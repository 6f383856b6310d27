"""The feedback of servers on artifacts' recipe packs, by tenant: kept for the next compile of the task, then gone.

A report is believed as far as its grant goes, as usage is: tenant and artifact stand there. Text is believed to be
allowed only where the compile's own spec says so, whatever a server sends.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.compiles.models import Compile
from backend.domain.errors import NotFound, OurError
from backend.domain.ids import Prefix, decode_id
from backend.domain.recipes.feedback import PackFeedback, checked_feedback
from backend.domain.serving.wire import BadGrant, FeedbackBatch, FeedbackRow, Grant, grant_key, read_grant
from backend.serving.models import PACK_REPORT, PackReport
from backend.tenants.isolation import tenant_scope
from backend.tenants.sealing import seal, unseal
from backend.usage.models import Account

logger = logging.getLogger("kolm.serving")

MAX_REPORTS = 100  # of one batch
KEPT = 32  # reports of one artifact, the latest
_PACK_FILE = "recipes.json"


class _Refused(Exception):
    """A report that is not kept; its text is the server's to read."""


@dataclass(slots=True, kw_only=True)
class Kept:
    n_kept: int = 0
    refused: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"kept": self.n_kept, "refused": self.refused}


def keep(batch: FeedbackBatch) -> Kept:
    """Each report in a transaction of its own: one that is refused keeps no other from its place."""
    kept, key = Kept(), grant_key(settings.KOLM_RUNNER_TOKEN)
    for index, raw in enumerate(batch.rows):
        try:
            grant, log, feedback = _read(raw, key)
            with tenant_scope(UUID(hex=grant.tenant)):
                _store(UUID(hex=grant.tenant), grant, log, feedback)
        except _Refused as refused:
            kept.refused.append({"row": index, "detail": str(refused)})
        else:
            kept.n_kept += 1
    if kept.refused:
        logger.warning("%s of %s pack reports refused", len(kept.refused), len(batch.rows))
    return kept


def feedback_of(tenant_id: UUID, artifact_sha256s: Sequence[str]) -> list[PackFeedback]:
    """Return what is known of these artifacts' packs, a report of a server each, latest first."""
    rows = PackReport.objects.of_tenant(tenant_id).filter(artifact_sha256__in=list(artifact_sha256s))
    return [_feedback(row) for row in rows.order_by("-told_at", "-id")[: KEPT * max(1, len(artifact_sha256s))]]


def forget_pack_reports() -> int:
    """Delete reports that no server renewed for thirty days, of all tenants. Upkeep calls this."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kolm_sweep_pack_reports()")
        return int(cursor.fetchone()[0])


def _read(raw: Any, key: bytes) -> tuple[Grant, str, PackFeedback]:
    """Raises _Refused."""
    try:
        row = FeedbackRow.from_json(raw)
        grant = read_grant(row.grant, key, now=None)
        feedback = checked_feedback(row.feedback)
        log = UUID(hex=row.log).hex
        UUID(hex=grant.tenant)
    except BadGrant as bad:
        raise _Refused(bad.message) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _Refused(f"not a report: {error}"[:300]) from None
    if feedback.artifact_sha256 != grant.sha256:
        raise _Refused("its artifact is not the one of its grant")
    return grant, log, feedback


def _store(tenant_id: UUID, grant: Grant, log: str, report: PackFeedback) -> None:
    """Raises _Refused. An older telling that arrives late changes nothing."""
    artifact = _artifact(tenant_id, grant)
    if report.pack_sha256 not in (m["sha256"] for m in artifact.manifest["members"] if m["path"] == _PACK_FILE):
        raise _Refused("its pack is not the one of its artifact")
    learned = report.learned if _learns(tenant_id, artifact) else []
    values = {
        "n_answers": report.n_answers,
        "n_tokens": report.n_tokens,
        "tried": report.tried,
        "missed": report.missed,
        "sealed": seal(tenant_id, json.dumps(learned).encode(), purpose=PACK_REPORT) if learned else None,
        "told_at": timezone.now(),
    }
    names = {"artifact_id": artifact.id, "artifact_sha256": artifact.sha256, "pack_sha256": report.pack_sha256}
    row, is_new = PackReport.objects.of_tenant(tenant_id).get_or_create(
        tenant_id=tenant_id, log=log, defaults=values | names
    )
    if is_new:
        _drop_oldest(tenant_id, artifact.sha256)
    elif {name: getattr(row, name) for name in names} != names:
        raise _Refused("its log is another pack's")
    else:
        PackReport.objects.of_tenant(tenant_id).filter(id=row.id, n_answers__lte=report.n_answers).update(**values)


def _artifact(tenant_id: UUID, grant: Grant) -> Artifact:
    try:
        artifact_id = decode_id(Prefix.ARTIFACT, grant.artifact)
    except NotFound:
        raise _Refused("the grant names what cannot be") from None
    row = Artifact.objects.of_tenant(tenant_id).filter(id=artifact_id, sha256=grant.sha256).first()
    if row is None or not Account.objects.of_tenant(tenant_id).exists():
        raise _Refused("there is no such artifact any more")
    return row


def _learns(tenant_id: UUID, artifact: Artifact) -> bool:
    row = Compile.objects.of_tenant(tenant_id).filter(id=artifact.compile_id).first()
    recipes = (row.spec if row is not None else {}).get("recipes")
    return isinstance(recipes, dict) and recipes.get("learn_text") is True


def _drop_oldest(tenant_id: UUID, artifact_sha256: str) -> None:
    rows = PackReport.objects.of_tenant(tenant_id).filter(artifact_sha256=artifact_sha256).order_by("-told_at", "-id")
    beyond = list(rows.values_list("id", flat=True)[KEPT : KEPT + MAX_REPORTS])
    if beyond:
        PackReport.objects.of_tenant(tenant_id).filter(id__in=beyond).delete()


def _feedback(row: PackReport) -> PackFeedback:
    return PackFeedback(
        artifact_sha256=row.artifact_sha256,
        pack_sha256=row.pack_sha256,
        n_answers=row.n_answers,
        n_tokens=row.n_tokens,
        tried=row.tried,
        missed=row.missed,
        learned=_learned_texts(row),
    )


def _learned_texts(row: PackReport) -> list[dict[str, Any]]:
    if row.sealed is None:
        return []
    try:
        texts: list[dict[str, Any]] = json.loads(unseal(row.tenant_id, bytes(row.sealed), purpose=PACK_REPORT))
    except OurError as error:
        logger.error("the answers of a pack report do not open: %s", error.code)
        return []
    return texts
