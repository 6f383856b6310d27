"""The newest sources of a name or a label are read from the end of an index."""

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
    ]
