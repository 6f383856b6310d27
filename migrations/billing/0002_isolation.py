"""The wall around invoices and subscriptions, and a turn for every tenant: it is made with the tenant, so that no month
of anybody's is forgotten."""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql, shared_table_sql

TURNS = """
    CREATE FUNCTION public.kolm_billing_turn() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        INSERT INTO public.billing_billingturn (tenant_id, due_at) VALUES (NEW.id, now()) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER billing_turn AFTER INSERT ON tenants_tenant FOR EACH ROW EXECUTE FUNCTION kolm_billing_turn();
    ALTER TABLE tenants_tenant NO FORCE ROW LEVEL SECURITY;
    INSERT INTO billing_billingturn (tenant_id, due_at) SELECT id, now() FROM tenants_tenant ON CONFLICT DO NOTHING;
    ALTER TABLE tenants_tenant FORCE ROW LEVEL SECURITY;
"""
NO_TURNS = """
    DROP TRIGGER billing_turn ON tenants_tenant;
    DROP FUNCTION public.kolm_billing_turn();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial"), ("tenants", "0006_own_memberships")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("billing_customer")),
        migrations.RunSQL(*rls_policy_sql("billing_subscription")),
        migrations.RunSQL(*rls_policy_sql("billing_invoice")),
        migrations.RunSQL(*rls_policy_sql("billing_invoiceline")),
        migrations.RunSQL(*append_only_sql("billing_invoiceline")),
        migrations.RunSQL(*rls_policy_sql("billing_stripepush")),
        migrations.RunSQL(*shared_table_sql("billing_catalogentry")),
        migrations.RunSQL(*shared_table_sql("billing_stripeevent")),
        migrations.RunSQL(*shared_table_sql("billing_billingturn")),
        migrations.RunSQL(*shared_table_sql("billing_incident")),
        migrations.RunSQL(TURNS, NO_TURNS),
    ]
