"""Whatever a tenant's own SQL asks of the draft cache's tables, the rows of the nineteen others are not in the answer,
not in what a predicate sees, not in an error, not in a plan that was made for somebody else.

Every statement asks for the actor's own rows too, and must find exactly those.
"""

from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import read_local, set_local, tenant_scope
from tests.backend.drafts.test_isolation_world import (
    TABLES,
    Household,
    Tally,
    World,
    ids_of,
    rows,
    the_owner_session,  # noqa: F401
    the_tally,  # noqa: F401
    the_world,  # noqa: F401
)

# every place there is: 291 rows of the least size fit into a page
PAGES = "greatest(pg_relation_size('{t}'), (SELECT max(pg_relation_size(relid)) FROM pg_partition_tree('{t}'))) / 8192"
ADDRESSES = (
    f"SELECT format('(%%s,%%s)', page, line)::tid FROM generate_series(0, {PAGES}) page, generate_series(1, 291) line"
)
READS = {
    "by every id": "SELECT id FROM {t} WHERE id = ANY(%(ids)s)",
    "by every tenant": "SELECT id FROM {t} WHERE tenant_id = ANY(%(tenants)s)",
    "without a filter": "SELECT id FROM {t}",
    "with a filter that is always true": "SELECT id FROM {t} WHERE tenant_id = %(me)s OR true",
    "joined to the ids": "SELECT id FROM unnest(%(ids)s::uuid[]) x(id) JOIN {t} USING (id)",
    "a sub-query for each id": "SELECT x FROM unnest(%(ids)s::uuid[]) x WHERE EXISTS (SELECT FROM {t} WHERE id = x)",
    "in a CTE": "WITH r AS MATERIALIZED (SELECT * FROM {t}) SELECT id FROM r",
    "whole rows as JSON": "SELECT (to_jsonb(r) ->> 'id')::uuid FROM {t} r",
    "gathered in an aggregate": "SELECT unnest(array_agg(id)) FROM {t}",
    "by their place in the file": f"SELECT id FROM {{t}} WHERE ctid IN ({ADDRESSES})",
    "as a sample of the whole": "SELECT id FROM {t} TABLESAMPLE SYSTEM (100)",
    "locked": "SELECT id FROM {t} FOR UPDATE",
}
SPY = "set_config('spy.seen', current_setting('spy.seen') || id::text || ' ', true) <> ''"  # tells what it sees


def arguments(world: World, table: str, actor: Household) -> dict[str, Any]:
    tenants = [household.tenant_id for household in world.households]
    return {"ids": world.everybodys(table), "tenants": tenants, "me": actor.tenant_id}


def ask(sql: str, values: dict[str, Any]) -> set[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return {id for (id,) in cursor.fetchall()}


@pytest.mark.parametrize("form", READS)
def test_no_form_of_reading_gives_another_tenants_row(world: World, tally: Tally, form):
    leaked = 0
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            for table in TABLES:
                found = ask(READS[form].format(t=table), arguments(world, table, actor))
                assert found >= actor.ids[table], (table, "the statement must find what is the actor's own")
                leaked += len(found - actor.ids[table])
    n = sum(world.n_foreign(table) for table in TABLES)
    tally.add(f"read {form}", n, leaked)
    assert leaked == 0
    assert n >= 74_000


def test_with_the_wall_taken_down_the_same_forms_give_everybodys_rows(world: World, owner_session):
    """The owner takes row-level security off in a transaction that is rolled back: what the zeros above would be."""
    for table in TABLES:
        owner_session.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    for form, table in product(READS, TABLES):
        values = arguments(world, table, world.households[0])
        found = {id for (id,) in owner_session.execute(READS[form].format(t=table), values)}
        assert found >= set(world.everybodys(table)), form
    owner_session.rollback()


def test_a_join_without_a_key_multiplies_ones_own_rows_alone(world: World, tally: Tally):
    leaked = 0
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            ((pairs, drafts, sources),) = rows(
                "SELECT count(*), count(DISTINCT d.id), count(DISTINCT s.id) FROM drafts_draft d, drafts_source s"
            )
        n = len(actor.ids["drafts_draft"]), len(actor.ids["drafts_source"])
        assert drafts >= n[0]
        assert sources >= n[1]
        leaked += pairs - n[0] * n[1]
    tally.add("join without a key", world.n_foreign("drafts_draft") + world.n_foreign("drafts_source"), leaked)
    assert leaked == 0


def test_counts_of_others_are_zero(world: World, tally: Tally):
    for table in TABLES:
        for actor in world.households:
            with tenant_scope(actor.tenant_id):
                counted = dict(
                    rows(
                        f"WITH r AS MATERIALIZED (SELECT tenant_id FROM {table}) SELECT x, (SELECT count(*) FROM r"
                        " WHERE tenant_id = x) FROM unnest(%s::uuid[]) x",
                        [household.tenant_id for household in world.households],
                    )
                )
            mine = counted.pop(actor.tenant_id)
            assert mine == len(actor.ids[table])
            assert sum(counted.values()) == 0
        tally.add("count in a CTE", world.n_foreign(table))


@pytest.mark.parametrize("scans", ["", "SET LOCAL enable_indexscan = off", "SET LOCAL enable_seqscan = off"])
def test_a_predicate_that_tells_what_it_sees_sees_ones_own_rows_alone(world: World, tally: Tally, scans):
    leaked = 0
    for actor in world.households:
        with tenant_scope(actor.tenant_id), connection.cursor() as cursor:
            cursor.execute(scans or "SELECT 1")
            for table in TABLES:
                set_local("spy.seen", "")
                cursor.execute(f"SELECT count(*) FROM {table} WHERE {SPY}")
                seen = {UUID(word) for word in read_local("spy.seen").split()}
                assert seen >= actor.ids[table]
                leaked += len(seen - actor.ids[table])
                set_local("spy.seen", "")
                cursor.execute(f"SELECT count(*) FROM {table} WHERE {SPY} AND tenant_id <> %s", [actor.tenant_id])
                leaked += len({UUID(word) for word in read_local("spy.seen").split()} - actor.ids[table])
    tally.add("predicate with an effect", 2 * sum(world.n_foreign(table) for table in TABLES), leaked)
    assert leaked == 0


def test_no_error_tells_of_another_tenants_row(world: World, tally: Tally):
    for actor in world.households:
        for table in TABLES:
            with tenant_scope(actor.tenant_id):
                one_if_mine = f"SELECT id FROM {table} WHERE 1 / (tenant_id = %s)::int = 1"
                assert ids_of(one_if_mine, actor.tenant_id) == actor.ids[table]
                with pytest.raises(DatabaseError, match="division by zero"), transaction.atomic():
                    rows(one_if_mine, new_uuid7())  # on the actor's own rows: the predicate would tell
        tally.add("error in a predicate", sum(len(world.foreign(table, actor)) for table in TABLES))


@pytest.mark.parametrize("plan", ["force_generic_plan", "auto"])
def test_a_prepared_plan_gives_each_tenant_its_own_rows(world: World, tally: Tally, plan):
    """One session, the tenant switched at every call, twice round: the plan was made for another one."""
    leaked = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {plan}")
        for table in TABLES:
            cursor.execute(f"PREPARE look_{table} (uuid[]) AS SELECT id FROM {table} WHERE id = ANY($1)")
        for actor in (*world.households, *world.households):
            for table in TABLES:
                with tenant_scope(actor.tenant_id):
                    found = ids_of(f"EXECUTE look_{table} (%s::uuid[])", world.everybodys(table))
                assert found >= actor.ids[table]
                leaked += len(found - actor.ids[table])
        cursor.execute("DEALLOCATE ALL")
    tally.add("prepared plan", 2 * sum(world.n_foreign(table) for table in TABLES), leaked)
    assert leaked == 0


def copied(sql: str) -> set[UUID]:
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        return {UUID(bytes(line).decode().strip()) for line in copy}


def test_copy_gives_ones_own_rows_alone(world: World, tally: Tally):
    leaked = n = 0
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            for table in TABLES:
                found = copied(f"COPY (SELECT id FROM {table}) TO STDOUT")
                if table not in ("drafts_source", "drafts_draft", "drafts_verdict"):  # in parts: only as a query
                    found |= copied(f"COPY {table} (id) TO STDOUT")
                assert found >= actor.ids[table]
                leaked += len(found - actor.ids[table])
                n += len(world.foreign(table, actor))
    tally.add("COPY TO", n, leaked)
    assert leaked == 0


@pytest.mark.parametrize("table", TABLES)
def test_copy_writes_nothing_past_the_wall(world: World, table):
    actor = world.households[0]
    for sql in (f"COPY {table} FROM STDIN", f"COPY {table} FROM PROGRAM 'true'", f"COPY {table} TO '/tmp/x'"):
        with (
            pytest.raises((DatabaseError, psycopg.Error)),
            tenant_scope(actor.tenant_id),
            connection.cursor() as cursor,
            cursor.copy(sql) as copy,
        ):
            copy.write("")


@pytest.mark.parametrize("scans", ["on", "off"])
def test_the_nearest_vectors_are_ones_own(world: World, tally: Tally, scans):
    leaked = 0
    vector = str(world.vectors[0].tolist())
    for actor in world.households:
        with tenant_scope(actor.tenant_id), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL enable_seqscan = {scans}")
            for tail in ("ORDER BY embedding <=> %(v)s LIMIT 2000", "WHERE embedding <=> %(v)s::halfvec < 3"):
                found = ask(f"SELECT id FROM drafts_source {tail}", {"v": vector})
                assert found >= actor.ids["drafts_source"]
                leaked += len(found - actor.ids["drafts_source"])
    tally.add("ORDER BY and WHERE with <=>", 2 * world.n_foreign("drafts_source"), leaked)
    assert leaked == 0
