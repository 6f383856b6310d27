"""Row-level security of the ledger's tables, what is append-only, the trigger that keeps every transaction balanced, and
an account for every tenant: those there are, and those to come.

A transaction's lines are written in one statement and must sum to 0 there, so that no reader and no trigger order ever
sees half of one. (A deferred trigger would run at the commit, when the tenant of a nested scope is already unset.)
"""

from django.db import migrations

from backend.tenants.isolation import append_only_sql, rls_policy_sql, shared_table_sql

OWNED = ("account", "hold", "grant", "budget", "budgetnotice", "ledgertx", "ledgerline", "draftsaving")
LOGS = ("ledgertx", "ledgerline", "budgetnotice", "draftsaving")

BALANCED = """
    CREATE FUNCTION public.kolm_ledger_balanced() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        IF EXISTS (SELECT FROM new_lines GROUP BY tenant_id, tx_id HAVING sum(amount_microusd) <> 0) THEN
            RAISE EXCEPTION 'the lines of a ledger transaction do not sum to 0' USING ERRCODE = 'check_violation';
        END IF;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER balanced AFTER INSERT ON usage_ledgerline REFERENCING NEW TABLE AS new_lines
        FOR EACH STATEMENT EXECUTE FUNCTION public.kolm_ledger_balanced();
"""
UNBALANCED = """
    DROP TRIGGER balanced ON usage_ledgerline;
    DROP FUNCTION public.kolm_ledger_balanced();
"""

# Months of UTC, half open. What a deployment's settings say of new accounts is in usage_accountdefault.
ACCOUNTS = """
    CREATE FUNCTION public.kolm_open_account() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        starts timestamptz := date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
        ends timestamptz := (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
    BEGIN
        INSERT INTO public.usage_account (tenant_id, id, plan, cap_microusd, held_microusd, spent_microusd,
            credit_microusd, period_start, period_end, created_at)
        SELECT NEW.id, gen_random_uuid(), coalesce(d.plan, 'free'),
            CASE WHEN d.plan IS NULL THEN 25000000 ELSE d.cap_microusd END, 0, 0, 0, starts, ends, now()
        FROM (SELECT 1) one LEFT JOIN public.usage_accountdefault d ON d.id = 1;
        INSERT INTO public.usage_billingdue (tenant_id, due_at) VALUES (NEW.id, ends);
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER open_account AFTER INSERT ON tenants_tenant
        FOR EACH ROW EXECUTE FUNCTION public.kolm_open_account();
    CREATE FUNCTION public.kolm_close_account() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        DELETE FROM public.usage_billingdue WHERE tenant_id = OLD.id;
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER close_account AFTER DELETE ON tenants_tenant
        FOR EACH ROW EXECUTE FUNCTION public.kolm_close_account();
"""
NO_ACCOUNTS = """
    DROP TRIGGER close_account ON tenants_tenant;
    DROP FUNCTION public.kolm_close_account();
    DROP TRIGGER open_account ON tenants_tenant;
    DROP FUNCTION public.kolm_open_account();
"""

# The owner too is bound by the wall around tenants; it is lifted for this one statement, in this transaction alone.
OLDER_TENANTS = """
    ALTER TABLE tenants_tenant NO FORCE ROW LEVEL SECURITY;
    INSERT INTO usage_account (tenant_id, id, plan, cap_microusd, held_microusd, spent_microusd, credit_microusd,
        period_start, period_end, created_at)
    SELECT id, gen_random_uuid(), 'free', 25000000, 0, 0, 0,
        date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
        (date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC', now()
    FROM tenants_tenant;
    INSERT INTO usage_billingdue (tenant_id, due_at) SELECT tenant_id, period_end FROM usage_account;
    ALTER TABLE tenants_tenant FORCE ROW LEVEL SECURITY;
"""

# Prices and defaults are published by the owner (post_migrate); everybody else reads them.
READ_ONLY = "GRANT SELECT ON usage_pricebookrow, usage_accountdefault TO kolm_app;"
NOT_READ = "REVOKE ALL ON usage_pricebookrow, usage_accountdefault FROM kolm_app;"


class Migration(migrations.Migration):
    dependencies = [("usage", "0003_money"), ("tenants", "0009_erasing")]

    operations = [
        migrations.RunSQL(*shared_table_sql("usage_billingdue")),
        migrations.RunSQL(READ_ONLY, NOT_READ),
        migrations.RunSQL(*append_only_sql("usage_pricebookrow")),
        migrations.RunSQL(BALANCED, UNBALANCED),
        migrations.RunSQL(OLDER_TENANTS, migrations.RunSQL.noop),
        migrations.RunSQL(ACCOUNTS, NO_ACCOUNTS),
        *(migrations.RunSQL(*rls_policy_sql(f"usage_{table}")) for table in OWNED),
        *(migrations.RunSQL(*append_only_sql(f"usage_{table}")) for table in LOGS),
        *(
            migrations.RunSQL(f"REVOKE UPDATE ON usage_{table} FROM kolm_app", migrations.RunSQL.noop)
            for table in (*LOGS, "usagefact")
        ),
    ]
