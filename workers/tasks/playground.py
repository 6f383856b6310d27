"""The Celery task of the playground: ids in. One that is lost is told to who waits; one that is doubled asks once."""

from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.queue import TaskName
from workers.live.playground import answer_playground


@shared_task(name=TaskName.PLAYGROUND_ASK.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def ask_teacher(tenant_id: str, answer_id: str) -> None:
    """Acknowledged when it starts: whoever asked waits for seconds only."""
    close_old_connections()
    try:
        answer_playground(UUID(tenant_id), UUID(answer_id))
    finally:
        close_old_connections()
