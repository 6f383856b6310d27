"""Row-level security: every tenant sees its own rows, and nobody sees any without a tenant."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql, shared_table_sql


class Migration(migrations.Migration):
    dependencies = [("compiles", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("compiles_upload")),
        migrations.RunSQL(*rls_policy_sql("compiles_teacherkey")),
        migrations.RunSQL(*rls_policy_sql("compiles_compile")),
        migrations.RunSQL(*rls_policy_sql("compiles_steprun")),
        migrations.RunSQL(*rls_policy_sql("compiles_slice")),
        migrations.RunSQL(*rls_policy_sql("compiles_candidate")),
        migrations.RunSQL(*rls_policy_sql("compiles_teachercall")),
        migrations.RunSQL(*rls_policy_sql("compiles_compileevent")),
        migrations.RunSQL(*shared_table_sql("compiles_compilelease")),
        migrations.RunSQL(*shared_table_sql("compiles_outbox")),
    ]
