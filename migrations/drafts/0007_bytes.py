"""What a row takes, so that a tenant's sum is a scan of small index entries; and where the texts are that began as
another draft."""

from django.db import migrations, models
from django.db.models import F, Func, IntegerField, Value
from django.db.models.expressions import CombinedExpression


def length(column: str) -> Func:
    return Func(F(column), function="octet_length", output_field=IntegerField())


def n_bytes(expression: CombinedExpression) -> models.GeneratedField:
    return models.GeneratedField(db_persist=True, expression=expression, output_field=IntegerField())


LABEL_BYTES = CombinedExpression(Value(400), "+", length("answers_sealed"))
VECTOR_BYTES = CombinedExpression(
    Func(F("embedding"), function="vector_dims", output_field=IntegerField()), "*", Value(4)
)
SOURCE_BYTES = CombinedExpression(CombinedExpression(Value(400), "+", length("prompt_sealed")), "+", VECTOR_BYTES)


class Migration(migrations.Migration):
    dependencies = [("drafts", "0006_cache_isolation")]

    operations = [
        migrations.AddField("labeldraft", "n_bytes", n_bytes(LABEL_BYTES)),
        migrations.AddField("source", "n_bytes", n_bytes(SOURCE_BYTES)),
        migrations.RemoveIndex("draft", "draft_by_time"),
        migrations.AddIndex(
            "draft", models.Index(fields=["tenant_id", "created_at", "id"], include=("n_bytes",), name="draft_by_time")
        ),
        migrations.AddIndex(
            "draft",
            models.Index(fields=["tenant_id", "root_id"], name="draft_by_root", condition=~models.Q(root_id=None)),
        ),
        migrations.AddIndex(
            "labeldraft", models.Index(fields=["tenant_id"], include=("n_bytes",), name="label_draft_bytes")
        ),
        migrations.AddIndex("source", models.Index(fields=["tenant_id"], include=("n_bytes",), name="source_bytes")),
    ]
