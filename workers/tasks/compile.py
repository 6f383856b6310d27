"""Celery tasks of compiles: ids in, the pipeline called. A task that is lost or doubled changes nothing."""

from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.queue import TaskName
from workers.pipeline import advance


@shared_task(  # type: ignore[untyped-decorator]
    name=TaskName.ADVANCE.value, acks_late=True, reject_on_worker_lost=True, ignore_result=True
)
def advance_compile(tenant_id: str, compile_id: str) -> None:
    close_old_connections()
    try:
        advance(UUID(compile_id))
    finally:
        close_old_connections()
