"""Row-level security; what hangs on an event goes with it; old rows may be deleted by a function that can do nothing
else (it runs as the owner, whom the policies let see and delete expired rows alone)."""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql, shared_table_sql

TABLES = ("webhookendpoint", "webhookevent", "webhookdelivery", "webhookattempt")
KEPT = {"webhookdelivery": "30 days", "webhookevent": "90 days"}
CASCADES = (
    ("webhookdelivery", "event_id", "webhookevent"),
    ("webhookattempt", "delivery_id", "webhookdelivery"),
)

CASCADE = "".join(
    f"""
    ALTER TABLE webhooks_{table} ADD CONSTRAINT webhooks_{table}_{column}_cascade FOREIGN KEY ({column})
        REFERENCES webhooks_{target} (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
    """
    for table, column, target in CASCADES
)
NO_CASCADE = "".join(
    f"ALTER TABLE webhooks_{table} DROP CONSTRAINT webhooks_{table}_{column}_cascade;" for table, column, _ in CASCADES
)

SWEEP = (
    "".join(
        f"""
        ALTER POLICY tenant ON webhooks_{table} TO kolm_app;
        CREATE POLICY sweep_see ON webhooks_{table} FOR SELECT TO kolm_owner
            USING (created_at < now() - interval '{age}');
        CREATE POLICY sweep ON webhooks_{table} FOR DELETE TO kolm_owner
            USING (created_at < now() - interval '{age}');
        """
        for table, age in KEPT.items()
    )
    + """
    CREATE FUNCTION kolm_sweep_webhooks(most integer) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE swept bigint := 0; n bigint; kept record;
    BEGIN
        FOR kept IN SELECT * FROM (VALUES ('webhooks_webhookdelivery', interval '30 days'),
                                          ('webhooks_webhookevent', interval '90 days')) AS t (name, age)
        LOOP
            EXECUTE format('DELETE FROM public.%I WHERE id IN (SELECT id FROM public.%I'
                ' WHERE created_at < now() - $1 ORDER BY created_at LIMIT $2)', kept.name, kept.name)
                USING kept.age, most;
            GET DIAGNOSTICS n = ROW_COUNT;
            swept := swept + n;
        END LOOP;
        RETURN swept;
    END $$;
    REVOKE ALL ON FUNCTION kolm_sweep_webhooks(integer) FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_sweep_webhooks(integer) TO kolm_app;
    """
)
NO_SWEEP = "DROP FUNCTION kolm_sweep_webhooks(integer);" + "".join(
    f"DROP POLICY sweep ON webhooks_{table}; DROP POLICY sweep_see ON webhooks_{table};"
    f"ALTER POLICY tenant ON webhooks_{table} TO PUBLIC;"
    for table in KEPT
)


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0001_initial"), ("tenants", "0002_isolation")]

    operations = [
        migrations.RunSQL(CASCADE, NO_CASCADE),
        *(migrations.RunSQL(*rls_policy_sql(f"webhooks_{table}")) for table in TABLES),
        migrations.RunSQL(*shared_table_sql("webhooks_deliverydue")),
        migrations.RunSQL(SWEEP, NO_SWEEP),
    ]
