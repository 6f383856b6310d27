"""Row-level security on what was tried in the playground, and a sweep that can delete what is older than a day, of all
tenants, and nothing else."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql

# It runs as the owner, whom these policies let see and delete old rows alone; its table is named with its schema.
SWEEP = """
    ALTER POLICY tenant ON serving_playgroundanswer TO kolm_app;
    CREATE POLICY sweep_see ON serving_playgroundanswer FOR SELECT TO kolm_owner
        USING (created_at < now() - interval '1 day');
    CREATE POLICY sweep ON serving_playgroundanswer FOR DELETE TO kolm_owner
        USING (created_at < now() - interval '1 day');
    CREATE FUNCTION kolm_sweep_playground() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE n bigint;
    BEGIN
        DELETE FROM public.serving_playgroundanswer WHERE created_at < now() - interval '1 day';
        GET DIAGNOSTICS n = ROW_COUNT;
        RETURN n;
    END $$;
    REVOKE ALL ON FUNCTION kolm_sweep_playground() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_sweep_playground() TO kolm_app;
"""
NO_SWEEP = """
    DROP FUNCTION kolm_sweep_playground();
    DROP POLICY sweep ON serving_playgroundanswer;
    DROP POLICY sweep_see ON serving_playgroundanswer;
    ALTER POLICY tenant ON serving_playgroundanswer TO PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("serving", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("serving_playgroundanswer")),
        migrations.RunSQL(SWEEP, NO_SWEEP),
    ]
