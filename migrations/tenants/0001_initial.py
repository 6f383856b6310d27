"""Tenants, and the function that every table's row-level security asks who is asking.

The function and its key come first, because the policies of every later migration name it. kolm_app may do only what a
migration grants by name: a bootstrap that gives it every new table by default would hand it the key, so such defaults
are taken back here.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import backend.rest.new_ids

NO_DEFAULT_GRANTS = """
    ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM kolm_app;
    ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM kolm_app;
    REVOKE ALL ON ALL TABLES IN SCHEMA public FROM kolm_app;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM kolm_app;
"""

# The two pads of HMAC (RFC 2104) instead of the key: sha256() is built in, pgcrypto's hmac() is not.
TENANT_KEY = """
    CREATE TABLE public.kolm_tenant_key (
        ipad bytea PRIMARY KEY CHECK (length(ipad) = 64),
        opad bytea NOT NULL CHECK (length(opad) = 64),
        installed_at timestamptz NOT NULL DEFAULT now()
    );
    REVOKE ALL ON public.kolm_tenant_key FROM PUBLIC, kolm_app;
"""

# SECURITY DEFINER, to read the key that its callers may not; the search path is fixed, so that no caller's table or operator takes the
# place of ours. STABLE: once per statement. A setting that was never set raises in current_setting; one whose transaction has
# ended reads as an empty string and raises here.
TENANT_FUNCTION = """
    CREATE FUNCTION public.kolm_tenant() RETURNS uuid
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        token text := current_setting('app.tenant');
        claim text;
    BEGIN
        IF token !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.][0-9]{1,12}[.][0-9a-f]{64}$' THEN
            RAISE EXCEPTION 'no tenant is set for this transaction' USING ERRCODE = 'insufficient_privilege';
        END IF;
        claim := left(token, -65);
        PERFORM 1 FROM public.kolm_tenant_key k
            WHERE sha256(k.opad || sha256(k.ipad || convert_to(claim, 'UTF8'))) = decode(right(token, 64), 'hex');
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the tenant of this transaction is not signed by this deployment'
                USING ERRCODE = 'insufficient_privilege';
        END IF;
        IF split_part(token, '.', 2)::bigint <= extract(epoch FROM clock_timestamp()) THEN
            RAISE EXCEPTION 'the tenant of this transaction has expired' USING ERRCODE = 'insufficient_privilege';
        END IF;
        RETURN left(token, 36)::uuid;
    END
    $$;
    REVOKE ALL ON FUNCTION public.kolm_tenant() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION public.kolm_tenant() TO kolm_app;
"""

APPEND_ONLY = """
    CREATE FUNCTION public.kolm_append_only() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
    END
    $$;
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.RunSQL(NO_DEFAULT_GRANTS, migrations.RunSQL.noop),
        migrations.RunSQL(TENANT_KEY, "DROP TABLE public.kolm_tenant_key"),
        migrations.RunSQL(TENANT_FUNCTION, "DROP FUNCTION public.kolm_tenant()"),
        migrations.RunSQL(APPEND_ONLY, "DROP FUNCTION public.kolm_append_only()"),
        migrations.CreateModel(
            name="Tenant",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("key_hash", models.CharField(max_length=64, unique=True)),
                ("prefix", models.CharField(max_length=12)),
                ("last4", models.CharField(max_length=4)),
                ("is_live", models.BooleanField()),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=64), size=None),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
            ],
            options={"indexes": [models.Index(fields=["tenant_id", "created_at", "id"], name="api_key_by_time")]},
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("key", models.CharField(max_length=255)),
                ("request_hash", models.CharField(max_length=64)),
                ("status", models.SmallIntegerField()),
                ("headers", models.JSONField()),
                ("body", models.BinaryField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                "indexes": [models.Index(fields=["tenant_id", "created_at"], name="idempotency_key_by_time")],
                "constraints": [models.UniqueConstraint(fields=("tenant_id", "key"), name="idempotency_key_once")],
            },
        ),
        migrations.CreateModel(
            name="Member",
            fields=[
                ("tenant_id", models.UUIDField(editable=False)),
                (
                    "id",
                    models.UUIDField(
                        default=backend.rest.new_ids.new_uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("tenant_id", "user"), name="member_once")]},
        ),
    ]
