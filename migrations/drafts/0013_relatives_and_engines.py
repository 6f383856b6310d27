"""The newest sources of a name or a label are read from the end of an index; what an engine made of drafts."""

from django.db import migrations, models

SLICE, LABEL = "source_by_slice", "source_by_label"


def by(column: str, name: str) -> migrations.AddIndex:
    return migrations.AddIndex("source", models.Index(fields=["tenant_id", "scope", column, "id"], name=name))


class Migration(migrations.Migration):
    dependencies = [("drafts", "0012_delegated")]

    operations = [
        migrations.RemoveIndex("source", SLICE),
        migrations.RemoveIndex("source", LABEL),
        by("slice_mac", SLICE),
        by("label_mac", LABEL),
        *(
            migrations.AddField("offer", f"engine_{name}", models.BigIntegerField(db_default=0, default=0))
            for name in ("written", "proposed", "kept")
        ),
    ]
