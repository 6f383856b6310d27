"""The Celery task of the shadow: ids in. One that is lost is a comparison less; one that is doubled asks once."""

from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.queue import TaskName
from workers.live.shadow import compare_answer


@shared_task(name=TaskName.SHADOW_COMPARE.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def compare(tenant_id: str, answer_id: str) -> None:
    """Acknowledged when it starts: nobody waits for it, and the text goes within the hour whatever happens."""
    close_old_connections()
    try:
        compare_answer(UUID(tenant_id), UUID(answer_id))
    finally:
        close_old_connections()
