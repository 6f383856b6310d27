"""A logged-in person sees his own memberships, in all tenants, before one is chosen: a transaction that carries his signed
token reads the rows with his id, and may change none of them by it."""

from django.db import migrations

USER_FUNCTION = """
    CREATE FUNCTION public.kolm_user() RETURNS integer
    LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
    DECLARE
        token text := coalesce(current_setting('app.user', true), '');
        claim text;
    BEGIN
        IF token = '' THEN
            RETURN NULL;
        END IF;
        IF token !~ '^user-[0-9]{1,10}[.][0-9]{1,12}[.][0-9a-f]{64}$' THEN
            RAISE EXCEPTION 'no user is set for this transaction' USING ERRCODE = 'insufficient_privilege';
        END IF;
        claim := left(token, -65);
        PERFORM 1 FROM public.kolm_tenant_key k
            WHERE sha256(k.opad || sha256(k.ipad || convert_to(claim, 'UTF8'))) = decode(right(token, 64), 'hex');
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the user of this transaction is not signed by this deployment'
                USING ERRCODE = 'insufficient_privilege';
        END IF;
        IF split_part(token, '.', 2)::bigint <= extract(epoch FROM clock_timestamp()) THEN
            RAISE EXCEPTION 'the user of this transaction has expired' USING ERRCODE = 'insufficient_privilege';
        END IF;
        RETURN split_part(substr(token, 6), '.', 1)::integer;
    END
    $$;
    REVOKE ALL ON FUNCTION public.kolm_user() FROM PUBLIC;
    GRANT EXECUTE ON FUNCTION public.kolm_user() TO kolm_app;
"""

# A policy for reading of its own beside the tenant's would be asked too, and raises where no tenant is set: so one policy
# for reading, that asks for the person first.
POLICIES = """
    DROP POLICY tenant ON tenants_member;
    CREATE POLICY tenant_or_oneself ON tenants_member FOR SELECT USING (
        CASE WHEN (SELECT kolm_user()) IS NOT NULL THEN user_id = (SELECT kolm_user())
             ELSE tenant_id = (SELECT kolm_tenant()) END
    );
    CREATE POLICY tenant_inserts ON tenants_member FOR INSERT WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_updates ON tenants_member FOR UPDATE
        USING (tenant_id = (SELECT kolm_tenant())) WITH CHECK (tenant_id = (SELECT kolm_tenant()));
    CREATE POLICY tenant_deletes ON tenants_member FOR DELETE USING (tenant_id = (SELECT kolm_tenant()));
"""
NO_POLICIES = """
    DROP POLICY tenant_or_oneself ON tenants_member;
    DROP POLICY tenant_inserts ON tenants_member;
    DROP POLICY tenant_updates ON tenants_member;
    DROP POLICY tenant_deletes ON tenants_member;
    CREATE POLICY tenant ON tenants_member
        USING (tenant_id = (SELECT kolm_tenant())) WITH CHECK (tenant_id = (SELECT kolm_tenant()));
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_member_role")]

    operations = [
        migrations.RunSQL(USER_FUNCTION, "DROP FUNCTION public.kolm_user()"),
        migrations.RunSQL(POLICIES, NO_POLICIES),
    ]
