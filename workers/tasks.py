"""The Celery tasks: ids in, one function called. A task that is doubled changes nothing.

A lost one of a compile or of billing is sent again by upkeep, and a family's next compile asks again for drafts that
are to be embedded anew. Whoever waits for a preview or for the playground learns that no answer came; a lost shadow
is a comparison less. These three are acknowledged when they start.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from celery import shared_task
from django.db import close_old_connections

from backend.billing import cycle, stripe_events
from backend.drafts.reembedding import move_sources
from backend.queue import TaskName, enqueue
from workers.embedding.sentence import load_embedder
from workers.live.draft_preview import preview
from workers.live.playground import answer_playground
from workers.live.preflight import answer_preflight
from workers.live.shadow import compare_answer
from workers.live.upload_curve import answer_curve
from workers.pipeline import advance

TURN_S = 120.0  # well below the time after which the broker gives a message to another worker


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Leave no database connection of an earlier task to this one, and none of this one behind."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@shared_task(  # type: ignore[untyped-decorator]
    name=TaskName.ADVANCE.value, acks_late=True, reject_on_worker_lost=True, ignore_result=True
)
def advance_compile(tenant_id: str, compile_id: str) -> None:
    """Carry a compile as far as it goes now."""
    with _fresh_connections():
        advance(UUID(compile_id))


@shared_task(name=TaskName.BILLING_EVENTS.value, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def process_events() -> None:
    """Process the events that Stripe has sent."""
    with _fresh_connections():
        stripe_events.process_due()


@shared_task(name=TaskName.BILLING_TURN.value, acks_late=True, ignore_result=True)  # type: ignore[untyped-decorator]
def take_turn(tenant_id: str) -> None:
    """Run one tenant's billing cycle."""
    with _fresh_connections():
        cycle.run_cycle(UUID(tenant_id))


@shared_task(  # type: ignore[untyped-decorator]
    name=TaskName.DRAFTS_REEMBED.value, acks_late=True, reject_on_worker_lost=True, ignore_result=True
)
def reembed_drafts(tenant_id: str, scope_id: str, embedder: str = "") -> None:
    """Embed the sources of a scope again for this embedder, "": the installation's default. After a turn the rest is
    another task; should that wake-up be lost, the family's next compile gives one."""
    with _fresh_connections():
        new = load_embedder(embedder or None)
        until = time.monotonic() + TURN_S
        while move_sources(UUID(tenant_id), UUID(scope_id), new.embed, new.identity):
            if time.monotonic() > until:
                enqueue(TaskName.DRAFTS_REEMBED, tenant_id=tenant_id, scope_id=scope_id, embedder=embedder)
                return


@shared_task(name=TaskName.DRAFTS_PREVIEW.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def preview_drafts(tenant_id: str, preview_id: str) -> None:
    """Answer what would be offered for a spec: whoever asked waits for seconds only."""
    with _fresh_connections():
        preview(UUID(tenant_id), UUID(preview_id))


@shared_task(name=TaskName.PREFLIGHT_ASK.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def ask_in_preflight(tenant_id: str, check_id: str) -> None:
    """Ask one model of a preflight one tiny call: whoever asked waits for seconds only."""
    with _fresh_connections():
        answer_preflight(UUID(tenant_id), UUID(check_id))


@shared_task(name=TaskName.UPLOAD_CURVE.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def measure_upload(tenant_id: str, upload_id: str) -> None:
    """Measure the learning curve of an upload: whoever looks asks again after a while."""
    with _fresh_connections():
        answer_curve(UUID(tenant_id), UUID(upload_id))


@shared_task(name=TaskName.PLAYGROUND_ASK.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def ask_teacher(tenant_id: str, answer_id: str) -> None:
    """Ask the teacher for the playground: whoever asked waits for seconds only."""
    with _fresh_connections():
        answer_playground(UUID(tenant_id), UUID(answer_id))


@shared_task(name=TaskName.SHADOW_COMPARE.value, acks_late=False, ignore_result=True)  # type: ignore[untyped-decorator]
def compare(tenant_id: str, answer_id: str) -> None:
    """Compare an answer with the teacher's. Nobody waits for it, and the text goes within the hour whatever happens."""
    with _fresh_connections():
        compare_answer(UUID(tenant_id), UUID(answer_id))
