"""A deleted tenant's rows go from append-only tables too. A transaction that carries `app.erase`, signed like the tenant's
own token and for this purpose alone, may delete (never change) that tenant's rows; everything else is refused as before."""

from django.db import migrations

ERASING_FUNCTION = """
    CREATE FUNCTION public.kolm_erasing() RETURNS uuid
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        token text := coalesce(current_setting('app.erase', true), '');
        claim text;
    BEGIN
        IF token !~ '^erase-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.][0-9]{1,12}[.][0-9a-f]{64}$' THEN
            RETURN NULL;
        END IF;
        claim := left(token, -65);
        PERFORM 1 FROM public.kolm_tenant_key k
            WHERE sha256(k.opad || sha256(k.ipad || convert_to(claim, 'UTF8'))) = decode(right(token, 64), 'hex');
        IF NOT FOUND OR split_part(token, '.', 2)::bigint <= extract(epoch FROM clock_timestamp()) THEN
            RETURN NULL;
        END IF;
        RETURN substr(token, 7, 36)::uuid;
    END
    $$;
    REVOKE ALL ON FUNCTION public.kolm_erasing() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION public.kolm_erasing() TO kolm_app;
"""

APPEND_ONLY = """
    CREATE OR REPLACE FUNCTION public.kolm_append_only() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND TG_LEVEL = 'ROW' AND coalesce(current_setting('app.erase', true), '') <> '' THEN
            IF to_jsonb(OLD) ->> 'tenant_id' = public.kolm_erasing()::text THEN
                RETURN OLD;
            END IF;
        END IF;
        RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
    END
    $$;
"""
WITHOUT_ERASING = """
    CREATE OR REPLACE FUNCTION public.kolm_append_only() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
    END
    $$;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_team_isolation")]

    operations = [
        migrations.RunSQL(ERASING_FUNCTION, "DROP FUNCTION public.kolm_erasing()"),
        migrations.RunSQL(APPEND_ONLY, WITHOUT_ERASING),
    ]
