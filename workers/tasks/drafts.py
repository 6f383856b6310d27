"""Celery tasks of the draft cache: ids in. One that is lost or doubled changes nothing."""

import time
from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.drafts.reembedding import move_sources
from backend.queue import TaskName, enqueue
from workers.embedding.sentence import load_embedder
from workers.live.draft_preview import preview

TURN_S = 120.0  # well below the time after which the broker gives a message to another worker


@shared_task(  # type: ignore[untyped-decorator]
    name=TaskName.DRAFTS_REEMBED.value, acks_late=True, reject_on_worker_lost=True, ignore_result=True
)
def reembed_drafts(tenant_id: str, scope_id: str) -> None:
    """Embed the sources of a scope again for this deployment's embedder. After a turn the rest is another task; should
    that hint be lost, the family's next compile gives one."""
    close_old_connections()
    try:
        embedder = load_embedder()
        until = time.monotonic() + TURN_S
        while move_sources(UUID(tenant_id), UUID(scope_id), embedder.embed, embedder.identity):
            if time.monotonic() > until:
                enqueue(TaskName.DRAFTS_REEMBED, tenant_id=tenant_id, scope_id=scope_id)
                return
    finally:
        close_old_connections()


@shared_task(name=TaskName.DRAFTS_PREVIEW.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def preview_drafts(tenant_id: str, preview_id: str) -> None:
    """Answer what would be offered for a spec. Acknowledged when it starts: whoever asked waits for seconds only."""
    close_old_connections()
    try:
        preview(UUID(tenant_id), UUID(preview_id))
    finally:
        close_old_connections()
