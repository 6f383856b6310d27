"""The public shape of a selection, and of its rows."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers as s

from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.selections import tables
from backend.selections.models import Selection, SelectionStatus
from backend.selections.options import OptionsRequest
from backend.selections.retention import KEEP
from backend.selections.rows import MAX_SCORE, MAX_TEXT, MAX_WIDTH

FIRST_PICKS = 100


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "id": {"type": ["string", "integer", "null"]},
                "text": {"type": ["string", "null"], "maxLength": MAX_TEXT},
                "embedding": {"type": ["array", "null"], "items": {"type": "number"}, "maxItems": MAX_WIDTH},
                "score": {"type": ["number", "null"], "minimum": -MAX_SCORE, "maximum": MAX_SCORE},
                "label": {"type": ["string", "integer", "null"]},
            },
        },
    }
)
class RowsField(s.ListField):
    """Objects that `selections.rows` judges, with better words than a field has."""


class SelectRequest(OptionsRequest):
    rows = RowsField(help_text="Each a text or an embedding; all with `score` and `label`, or none.")


class SelectProgressShape(s.Serializer[object]):
    stage = s.CharField(allow_null=True, help_text="embedding, neighbours, clustering or selecting.")
    done = s.IntegerField()
    total = s.IntegerField()


class SelectFailureShape(s.Serializer[object]):
    code = s.CharField()
    message = s.CharField()


class PickShape(s.Serializer[object]):
    rank = s.IntegerField(help_text="1 is the best.")
    id = s.CharField()
    score = s.FloatField(allow_null=True, help_text="As it was sent.")
    cluster = s.IntegerField(allow_null=True)
    nearest_pick_ppm = s.IntegerField(
        allow_null=True, help_text="Cosine distance to the nearest other pick, in parts per million."
    )


class SelectRowShape(s.Serializer[object]):
    id = s.CharField()
    state = s.ChoiceField(["picked", "dropped", "below_floor"])
    rank = s.IntegerField(allow_null=True)
    score = s.FloatField(allow_null=True)
    label = s.CharField(allow_null=True)
    cluster = s.IntegerField(allow_null=True)


class PicksShape(s.Serializer[object]):
    object = s.ChoiceField(["list"])
    data = s.ListField(child=PickShape())
    has_more = s.BooleanField()
    next_cursor = s.CharField(allow_null=True)


class SelectionShape(s.Serializer[object]):
    id = s.CharField()
    object = s.ChoiceField(["selection"])
    status = s.ChoiceField([status.value for status in SelectionStatus])
    n = s.IntegerField()
    input = s.ChoiceField(["texts", "embeddings"])
    width = s.IntegerField(allow_null=True, help_text="Numbers in an embedding; null for texts.")
    k = s.IntegerField()
    options = s.JSONField(help_text="Every option with its value, as `select` was called.")
    progress = SelectProgressShape(allow_null=True)
    report = s.DictField(allow_null=True, help_text="The SelectionReport without its columns of one entry a row.")
    cohesion_log = s.CharField(allow_null=True)
    embedder = s.CharField(allow_null=True, help_text="What made embeddings of texts: name and sha256 of its weights.")
    failure = SelectFailureShape(allow_null=True)
    cost_microusd = s.IntegerField()
    created_at = s.DateTimeField()
    started_at = s.DateTimeField(allow_null=True)
    ended_at = s.DateTimeField(allow_null=True)
    expires_at = s.DateTimeField(allow_null=True, help_text="When it will be deleted with its rows.")
    picks = PicksShape(required=False, allow_null=True, help_text=f"The first {FIRST_PICKS}; not in lists.")


def selection_shape(row: Selection, job: RunnerJob | None, *, with_picks: bool = True) -> dict[str, Any]:
    """`row` is settled; `job` is at work or None."""
    is_running = job is not None and job.status == RunnerJobStatus.LEASED
    started_at = job.started_at if job is not None and is_running else row.started_at
    failure = {"code": row.failure_code, "message": row.failure_message} if row.failure_code else None
    shape: dict[str, Any] = {
        "id": encode_id(Prefix.SELECTION, row.id),
        "object": "selection",
        "status": SelectionStatus.RUNNING.value if is_running else row.status,
        "n": row.n,
        "input": "embeddings" if row.width else "texts",
        "width": row.width or None,
        "k": row.k,
        "options": row.options,
        "progress": _progress(job) if is_running else None,
        "report": row.report,
        "cohesion_log": row.cohesion_log or None,
        "embedder": row.embedder or None,
        "failure": failure,
        "cost_microusd": row.cost_microusd,
        "created_at": rfc3339(row.created_at),
        "started_at": rfc3339(started_at),
        "ended_at": rfc3339(row.ended_at),
        "expires_at": None if row.ended_at is None else rfc3339(row.ended_at + KEEP),
    }
    if not with_picks:
        return shape
    has_result = row.status == SelectionStatus.SUCCEEDED
    return shape | {"picks": tables.picks_of(row).page(0, FIRST_PICKS) if has_result else None}


def _progress(job: RunnerJob | None) -> dict[str, Any] | None:
    if job is None:
        return None
    return {"stage": job.stage or None, "done": job.done, "total": job.total}
