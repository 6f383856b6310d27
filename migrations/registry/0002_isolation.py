"""Row-level security of contributions, the epochs, which are everybody's, and the one way from the former to the
latter: a function that counts for all tenants and tells of nothing that fewer than five parties share.

A party is a tenant with all others that have a member in common with it, or members of one mail domain (the great
public ones aside): ten workspaces of one person, or of one company, are one party. Only addresses that were verified
say so: with others anybody could make strangers one party, and keep what they share from ever being released.
"""

from django.db import migrations

from backend.tenants.isolation import rls_policy_sql, shared_table_sql

# It runs as the owner, whom these policies let see what it counts; its tables are named with their schema.
SHARED = """
    CREATE POLICY registry_counts ON registry_contribution FOR SELECT TO kolm_owner USING (true);
    CREATE POLICY registry_counts ON tenants_member FOR SELECT TO kolm_owner USING (true);
    CREATE FUNCTION kolm_registry_shared(fewest integer, version text)
        RETURNS TABLE (shape text, run text, parties bigint) LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        public_domains CONSTANT text[] := ARRAY['aol.com', 'fastmail.com', 'gmail.com', 'gmx.de', 'gmx.net',
            'googlemail.com', 'hey.com', 'hotmail.com', 'icloud.com', 'live.com', 'mail.com', 'mail.ru', 'me.com',
            'msn.com', 'outlook.com', 'pm.me', 'proton.me', 'protonmail.com', 'qq.com', 'web.de', 'yahoo.com',
            'yandex.com', 'yandex.ru', '163.com'];
        tenants uuid[];
        above integer[];  -- the place of another tenant of the same party, or the tenant's own
        common record;
        mark_before text;
        a integer;
        b integer;
    BEGIN
        IF fewest IS NULL OR fewest < 5 THEN
            RAISE EXCEPTION 'the registry counts for five parties at least';
        END IF;
        SELECT array_agg(DISTINCT c.tenant_id) INTO tenants FROM public.registry_contribution c
            WHERE c.shape_version = version AND c.seen_at > now() - interval '365 days';
        above := ARRAY(SELECT generate_series(1, coalesce(cardinality(tenants), 0)));
        FOR common IN
            WITH person AS (
                SELECT t.place, m.user_id AS id, lower(split_part(e.email, '@', 2)) AS domain
                FROM unnest(tenants) WITH ORDINALITY AS t(tenant_id, place)
                JOIN public.tenants_member m ON m.tenant_id = t.tenant_id
                LEFT JOIN public.account_emailaddress e ON e.user_id = m.user_id AND e.verified
            )
            SELECT place::integer AS place, 'person ' || id AS mark FROM person
            UNION SELECT place::integer, 'domain ' || domain FROM person
                WHERE domain <> '' AND domain <> ALL (public_domains)
            ORDER BY mark, place
        LOOP
            IF common.mark IS DISTINCT FROM mark_before THEN
                mark_before := common.mark;
                a := common.place;
            END IF;
            WHILE above[a] <> a LOOP a := above[a]; END LOOP;
            b := common.place;
            WHILE above[b] <> b LOOP b := above[b]; END LOOP;
            above[greatest(a, b)] := least(a, b);
        END LOOP;
        FOR i IN 1 .. cardinality(above) LOOP
            above[i] := above[above[i]];  -- above is never behind: in this order one step is enough
        END LOOP;
        RETURN QUERY
            SELECT c.shape::text, c.run::text, count(DISTINCT party.number)
            FROM public.registry_contribution c
            JOIN unnest(tenants, above) AS party(tenant_id, number) USING (tenant_id)
            WHERE c.shape_version = version AND c.seen_at > now() - interval '365 days'
            GROUP BY c.shape, c.run HAVING count(DISTINCT party.number) >= fewest;
    END $$;
    REVOKE ALL ON FUNCTION kolm_registry_shared(integer, text) FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION kolm_registry_shared(integer, text) TO kolm_app;
"""
NOT_SHARED = """
    DROP FUNCTION kolm_registry_shared(integer, text);
    DROP POLICY registry_counts ON tenants_member;
    DROP POLICY registry_counts ON registry_contribution;
"""


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_initial"), ("tenants", "0009_erasing")]

    operations = [
        migrations.RunSQL(*rls_policy_sql("registry_contribution")),
        migrations.RunSQL(*rls_policy_sql("registry_withdrawal")),
        migrations.RunSQL(*shared_table_sql("registry_epoch")),
        migrations.RunSQL(SHARED, NOT_SHARED),
    ]
