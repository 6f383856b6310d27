"""The Celery application: `celery -A workers.main worker`. Settings as measured in research: messages are wake-ups,
nothing is kept in Redis."""

import os
import socket

import django
from celery import Celery
from celery.signals import worker_init, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.settings")
django.setup()

from django.conf import settings  # noqa: E402

from backend.domain.log_text import guard_logs  # noqa: E402
from backend.queue import QUEUE  # noqa: E402

guard_logs()

# Linux alone has all three names; elsewhere a cut without a reset is noticed as late as the system's settings have it
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, name)
}
app = Celery("kolm", broker=settings.REDIS_URL, include=["workers.tasks"])
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 300,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_keepalive": True,
        "socket_keepalive_options": _KEEPALIVE,
    },
    task_default_queue=QUEUE,
)


@worker_init.connect  # type: ignore[untyped-decorator]
def _beat(**_: object) -> None:
    """Say from now on that the process moves: before the broker is asked, which may be away for longer than a part has
    to start."""
    from workers.heartbeat import of_process

    of_process().start()


@worker_ready.connect  # type: ignore[untyped-decorator]
def _load_embedder(**_: object) -> None:
    """Load the embedder before the first compile waits for it."""
    import threading

    from workers.embedding.sentence import load_embedder

    threading.Thread(target=load_embedder, name="load-embedder", daemon=True).start()
