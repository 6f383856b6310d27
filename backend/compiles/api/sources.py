"""Answers about a file that was looked at: `POST /v1/uploads/inspect`."""

from typing import Any

from rest_framework import serializers as s

from backend.compiles.uploads.files import purpose_of
from backend.compiles.uploads.rows import UploadPurpose
from backend.domain.source_data.columns import ColumnMapping, cell_text
from backend.domain.source_data.conversations import RecordShape
from backend.domain.source_data.profile import Conflict, LabelCount, ProblemGroup, TaskKind
from backend.domain.source_data.records import SourceFormat
from backend.domain.source_data.source import Source
from backend.rest.shapes import Constant, Shape

PREVIEW_CHARS = 500
MOST_LABELS = 1_000


class MappingShape(Shape[ColumnMapping]):
    inputs = s.ListField(child=s.CharField(), help_text="Joined, a line each, where there are several.")
    output = s.CharField(allow_null=True)
    group = s.CharField(allow_null=True)
    split = s.CharField(allow_null=True)


class LabelCountShape(Shape[LabelCount]):
    name = s.CharField()
    n = s.IntegerField()
    share_ppm = s.IntegerField()
    example = s.CharField()


class RowExampleShape(s.Serializer[Any]):
    number = s.IntegerField(help_text="The line where the row begins.")
    excerpt = s.CharField()


class ProblemGroupShape(Shape[ProblemGroup]):
    reason = s.CharField()
    n = s.IntegerField()
    examples = RowExampleShape(many=True)

    def get_examples(self, group: ProblemGroup) -> list[dict[str, Any]]:
        return [{"number": row.number, "excerpt": row.excerpt} for row in group.examples]


class AnswerCountShape(s.Serializer[Any]):
    answer = s.CharField()
    n = s.IntegerField()


class ConflictShape(Shape[Conflict]):
    input = s.CharField()
    answers = AnswerCountShape(many=True)

    def get_answers(self, conflict: Conflict) -> list[dict[str, Any]]:
        return [{"answer": answer, "n": n} for answer, n in conflict.answers]


class SourceShape(Shape[Source]):
    object = Constant("source")
    format = s.ChoiceField([kind.value for kind in SourceFormat], source="records.format")
    shape = s.ChoiceField([shape.value for shape in RecordShape])
    columns = s.ListField(child=s.CharField())
    mapping = MappingShape()
    purpose = s.ChoiceField([purpose.value for purpose in UploadPurpose])
    kind = s.ChoiceField([kind.value for kind in TaskKind], source="profile.kind")
    n_rows = s.IntegerField(source="records.n_rows", help_text="Of the file.")
    n_usable = s.IntegerField(source="profile.n_usable", help_text="Rows that an upload would hold.")
    n_unusable = s.IntegerField(source="profile.n_unusable")
    n_duplicates = s.IntegerField(source="profile.n_duplicates")
    n_conflicting = s.IntegerField(source="profile.n_conflicting")
    n_heldout = s.IntegerField(source="profile.n_heldout", help_text="Rows that the file itself holds out.")
    n_leaks = s.IntegerField(help_text="Held-out rows that the training rows give away.")
    labels = LabelCountShape(many=True)
    problems = ProblemGroupShape(many=True, source="profile.problems", help_text="One entry a reason.")
    conflicts = ConflictShape(many=True, source="profile.conflicts")
    warnings = s.ListField(child=s.CharField(), source="profile.warnings")
    notes = s.ListField(child=s.CharField())
    preview = s.ListField(child=s.JSONField(), help_text="The first rows, a text a column.")

    def get_purpose(self, source: Source) -> str:
        return purpose_of(source).value

    def get_n_leaks(self, source: Source) -> int:
        return 0 if source.profile.leaks is None else source.profile.leaks.n_heldout_touched

    def get_labels(self, source: Source) -> list[LabelCount]:
        return list(source.profile.labels[:MOST_LABELS])

    def get_preview(self, source: Source) -> list[dict[str, str]]:
        return [
            {name: cell_text(record.values.get(name))[:PREVIEW_CHARS] for name in source.columns}
            for record in source.preview
        ]
