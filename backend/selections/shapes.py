"""Requests to select, and the answers about a selection and its rows."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time
from backend.runner_jobs.models import RunnerJob
from backend.selections.models import Selection, SelectionStatus
from backend.selections.options import OptionsRequest
from backend.selections.retention import KEEP
from backend.selections.rows import MAX_SCORE, MAX_TEXT, MAX_WIDTH
from backend.selections.tables import ResultRow, picks_of

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


class SelectProgressShape(Shape[RunnerJob]):
    stage = TextOrNull(help_text="embedding, neighbours, clustering or selecting.")
    done = s.IntegerField()
    total = s.IntegerField()


class SelectFailureShape(Shape[Selection]):
    code = s.CharField(source="failure_code")
    message = s.CharField(source="failure_message")


class PickShape(Shape[ResultRow]):
    rank = s.IntegerField(help_text="1 is the best.")
    id = s.CharField()
    score = s.FloatField(allow_null=True, help_text="As it was sent.")
    cluster = s.IntegerField(allow_null=True)
    nearest_pick_ppm = s.IntegerField(
        allow_null=True, help_text="Cosine distance to the nearest other pick, in parts per million."
    )


class SelectRowShape(Shape[ResultRow]):
    id = s.CharField()
    state = s.ChoiceField(["picked", "dropped", "below_floor"])
    rank = s.IntegerField(allow_null=True)
    score = s.FloatField(allow_null=True)
    label = s.CharField(allow_null=True)
    cluster = s.IntegerField(allow_null=True)


class PicksShape(Shape[dict[str, Any]]):  # of a page of a table
    object = Constant("list")
    data = s.ListField(child=PickShape())
    has_more = s.BooleanField()
    next_cursor = s.CharField(allow_null=True)


class SelectionSummary(Shape[Selection]):  # as lists have it, of a row that `conclude` brought up to date
    id = PublicId(Prefix.SELECTION)
    object = Constant("selection")
    status = s.ChoiceField([status.value for status in SelectionStatus])
    n = s.IntegerField()
    input = s.ChoiceField(["texts", "embeddings"])
    width = s.IntegerField(allow_null=True, help_text="Numbers in an embedding; null for texts.")
    k = s.IntegerField()
    options = s.JSONField(help_text="Every option with its value, as `select` was called.")
    progress = SelectProgressShape(allow_null=True)
    report = s.DictField(allow_null=True, help_text="The SelectionReport without its columns of one entry a row.")
    cohesion_log = TextOrNull()
    embedder = TextOrNull(help_text="What made embeddings of texts: name and sha256 of its weights.")
    failure = SelectFailureShape(allow_null=True)
    cost_microusd = s.IntegerField()
    created_at = Time()
    started_at = Time(allow_null=True)
    ended_at = Time(allow_null=True)
    expires_at = Time(allow_null=True, help_text="When it will be deleted with its rows.")

    def get_status(self, row: Selection) -> str:
        return row.status if row.running_job is None else SelectionStatus.RUNNING

    def get_input(self, row: Selection) -> str:
        return "embeddings" if row.width else "texts"

    def get_width(self, row: Selection) -> int | None:
        return row.width or None

    def get_progress(self, row: Selection) -> RunnerJob | None:
        return row.running_job

    def get_failure(self, row: Selection) -> Selection | None:
        return row if row.failure_code else None

    def get_started_at(self, row: Selection) -> datetime | None:
        return (row.running_job or row).started_at

    def get_expires_at(self, row: Selection) -> datetime | None:
        return None if row.ended_at is None else row.ended_at + KEEP


class SelectionShape(SelectionSummary):
    picks = PicksShape(required=False, allow_null=True, help_text=f"The first {FIRST_PICKS}; not in lists.")

    def get_picks(self, row: Selection) -> dict[str, Any] | None:
        has_result = row.status == SelectionStatus.SUCCEEDED
        return picks_of(row).page(0, FIRST_PICKS) if has_result else None
