"""Row-level security on what servers found out about recipe packs, and a sweep that can delete what no server renewed
for thirty days, of all tenants, and nothing else."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql

# It runs as the owner, whom these policies let see and delete old rows alone; its table is named with its schema.
SWEEP = """
    ALTER POLICY tenant ON serving_packreport TO kolm_app;
    CREATE POLICY sweep_see ON serving_packreport FOR SELECT TO kolm_owner
        USING (told_at < now() - interval '30 days');
    CREATE POLICY sweep ON serving_packreport FOR DELETE TO kolm_owner
        USING (told_at < now() - interval '30 days');
    CREATE FUNCTION kolm_sweep_pack_reports() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE n bigint;
    BEGIN
        DELETE FROM public.serving_packreport WHERE told_at < now() - interval '30 days';
        GET DIAGNOSTICS n = ROW_COUNT;
        RETURN n;
    END $$;
    REVOKE ALL ON FUNCTION kolm_sweep_pack_reports() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_sweep_pack_reports() TO kolm_app;
"""
NO_SWEEP = """
    DROP FUNCTION kolm_sweep_pack_reports();
    DROP POLICY sweep ON serving_packreport;
    DROP POLICY sweep_see ON serving_packreport;
    ALTER POLICY tenant ON serving_packreport TO PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0007_pack_reports")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("serving_packreport")),
        migrations.RunSQL(SWEEP, NO_SWEEP),
    ]
