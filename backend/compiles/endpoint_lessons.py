"""Lessons from what the endpoints of a tenant's teachers refused, kept by address and model, so that the next call is
made right from the start. Another tenant's lessons are its own: an endpoint may answer two accounts differently."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from backend.compiles.models import EndpointLessons, TeacherBatch
from backend.domain.dialects.dialect import Lesson, Option, lessons_from_json

MAX_LESSONS = 40  # of one endpoint and model; a request has a dozen options
KEPT_DAYS = 30  # then the option is tried again, at the price of a refusal: vendors change


def lessons_of(tenant_id: UUID, base_url: str, model: str) -> tuple[Lesson, ...]:
    """The lessons of the last KEPT_DAYS in the order in which they were learnt."""
    row = EndpointLessons.objects.of_tenant(tenant_id).filter(endpoint=_endpoint(base_url), model=model).first()
    return () if row is None else _fresh(row)


def lessons_of_batches(tenant_id: UUID, compile_id: UUID, model: str) -> tuple[Lesson, ...]:
    """The lessons by which the batches of a compile were made, and those of their refusals, in the order in which they
    were learnt. Some are on trial, and not kept for others."""
    rows = TeacherBatch.objects.of_tenant(tenant_id).filter(compile_id=compile_id, model=model).order_by("created_at")
    learnt = [lessons_from_json(row or ()) for row in rows.values_list("lessons", flat=True)]
    return tuple(dict.fromkeys(lesson for lessons in learnt for lesson in lessons))


def keep_lessons(tenant_id: UUID, base_url: str, model: str, lessons: Sequence[Lesson]) -> None:
    """Add these lessons to what is kept. The caller is in a transaction; who learns at the same time waits for it."""
    row, _ = EndpointLessons.objects.of_tenant(tenant_id).get_or_create(
        endpoint=_endpoint(base_url), model=model, defaults={"tenant_id": tenant_id}
    )
    row = EndpointLessons.objects.of_tenant(tenant_id).select_for_update().get(id=row.id)
    today = timezone.now().date().isoformat()
    learnt = [replace(lesson, is_guess=False, learnt_on=lesson.learnt_on or today) for lesson in lessons]
    row.lessons = [lesson.to_json() for lesson in _fitting(dict.fromkeys((*_fresh(row), *learnt)))]
    row.save()


def _fresh(row: EndpointLessons) -> tuple[Lesson, ...]:
    """The lessons of a row that are not too old; those of an older release have no day and are as old as the row. That
    a model thinks was learnt by a call that cost money, and stays."""
    oldest = (timezone.now() - timedelta(days=KEPT_DAYS)).date().isoformat()
    last = row.updated_at.date().isoformat()
    dated = [replace(one, learnt_on=one.learnt_on or last) for one in lessons_from_json(row.lessons)]
    return tuple(one for one in dated if one.learnt_on >= oldest or one.option is Option.THOUGHTS)


def _fitting(lessons: Iterable[Lesson]) -> list[Lesson]:
    """The lessons that hold for every request, and the newest of those for one schema that there is room for."""
    known = list(lessons)
    every = [lesson for lesson in known if not lesson.scope][:MAX_LESSONS]
    of_schemas = [lesson for lesson in known if lesson.scope]
    return [*every, *of_schemas[max(0, len(of_schemas) + len(every) - MAX_LESSONS) :]]


def _endpoint(base_url: str) -> str:
    return hashlib.sha256(base_url.rstrip("/").encode()).hexdigest()
