"""Nothing of another tenant is changed, deleted, taken over or written in its name, and no refusal tells that a row of
another tenant is there: an insert under somebody's id goes the way of an insert under an id that nobody has.

Everything is rolled back, so that the world stays as it was.
"""

from itertools import product
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import read_local, set_local, tenant_scope
from tests.backend.drafts.test_isolation_world import (
    LOGS,
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

CHANGEABLE = tuple(table for table in TABLES if table not in LOGS)
PARTED = ("drafts_source", "drafts_draft", "drafts_verdict")
WRITES = {
    "update by every id": "UPDATE {t} SET id = id WHERE id = ANY(%(ids)s) RETURNING id",
    "update without a filter": "UPDATE {t} SET id = id RETURNING id",
    "update through a join": "UPDATE {t} r SET id = r.id FROM unnest(%(ids)s::uuid[]) x WHERE r.id = x RETURNING r.id",
    "merge": "MERGE INTO {t} r USING unnest(%(ids)s::uuid[]) x ON r.id = x WHEN MATCHED THEN DELETE RETURNING r.id",
    "delete by every id": "DELETE FROM {t} WHERE id = ANY(%(ids)s) RETURNING id",
    "delete without a filter": "DELETE FROM {t} RETURNING id",
    "delete in a CTE": "WITH gone AS (DELETE FROM {t} RETURNING id) SELECT id FROM gone",
}
# What must differ for a copy of a row to be another row: column and the SQL of its new value, from the new id `x`.
DISTINCT = {
    "drafts_familykey": {"family": "x::text"},
    "drafts_scope": {"family": "x::text"},
    "drafts_source": {},
    "drafts_draft": {"candidate_id": "x", "text_mac": "uuid_send(x)"},
    "drafts_labeldraft": {"prompt_mac": "uuid_send(x)"},
    "drafts_offer": {"compile_id": "x"},
    "drafts_verdict": {},
    "drafts_outcome": {"compile_id": "x"},
    "drafts_calibration": {"scope_id": "x"},
    "drafts_preview": {},
}


def columns_of(table: str) -> list[str]:
    found = rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' ORDER BY attnum",
        table,
    )
    return [name for (name,) in found]


def copies(table: str, tail: str, **changed: str) -> str:
    """SQL that copies one row of the actor's under each of the given ids `x`."""
    names = columns_of(table)
    values = [({"id": "x"} | DISTINCT[table] | changed).get(name, f"r.{name}") for name in names]
    return (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM unnest(%(ids)s::uuid[]) x,"
        f" (SELECT * FROM {table} WHERE tenant_id = %(me)s LIMIT 1) r {tail}"
    )


def ask(sql: str, ids: list[UUID], actor: Household) -> set[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"ids": ids, "me": actor.tenant_id})
        return {id for (id,) in cursor.fetchall()}


@pytest.fixture
def unchanged(world: World) -> Any:
    """Every row of everybody's is afterwards what it was before, byte for byte."""
    yield
    for household in world.households:
        with tenant_scope(household.tenant_id):
            assert all(ids_of(f"SELECT id FROM {table}") == household.ids[table] for table in TABLES)


@pytest.mark.parametrize("form", WRITES)
def test_no_form_of_writing_reaches_another_tenants_row(world: World, tally: Tally, unchanged: None, form):
    leaked = n = 0
    for actor, table in product(world.households, CHANGEABLE):
        with tenant_scope(actor.tenant_id):
            reached = ask(WRITES[form].format(t=table), world.everybodys(table), actor)
            assert reached >= actor.ids[table], (table, "it must reach what is the actor's own")
            leaked += len(reached - actor.ids[table])
            n += len(world.foreign(table, actor))
            transaction.set_rollback(True)
    tally.add(form, n, leaked)
    assert leaked == 0


@pytest.mark.parametrize("form", ["update by every id", "delete by every id", "merge"])
def test_a_log_of_another_tenant_is_not_even_refused(world: World, tally: Tally, unchanged: None, form):
    """One's own rows of a log refuse to change; another's are not there, so that nothing refuses."""
    for actor, table in product(world.households, LOGS):
        with tenant_scope(actor.tenant_id):
            assert ask(WRITES[form].format(t=table), world.foreign(table, actor), actor) == set()
        with pytest.raises(DatabaseError, match="append-only"), tenant_scope(actor.tenant_id):
            ask(WRITES[form].format(t=table), sorted(actor.ids[table]), actor)
        tally.add(f"{form}, in a log", len(world.foreign(table, actor)))


TRY_FOR_EACH = """
    DO $do$ DECLARE x {kind}; told text := ''; BEGIN
        FOREACH x IN ARRAY {values}::{kind}[] LOOP
            BEGIN
                {sql};
                told := told || 'done' || chr(10);
            EXCEPTION WHEN OTHERS THEN
                told := told || SQLSTATE || ' ' || replace(SQLERRM, x::text, 'ID') || chr(10);
            END;
        END LOOP;
        PERFORM set_config('spy.told', told, true);
    END $do$
"""


def told_for_each(sql: str, values: list[Any], kind: str = "uuid") -> list[str]:
    """What the statement says for each value `x`, tried one by one in one round trip: "done", or code and message with
    the value taken out."""
    listed = "ARRAY[" + ",".join(f"'{value}'" for value in values) + "]"
    set_local("spy.told", "")
    with connection.cursor() as cursor:
        cursor.execute(TRY_FOR_EACH.format(kind=kind, values=listed, sql=sql))
    return read_local("spy.told").splitlines()


def test_no_row_is_written_in_the_name_of_another_tenant_nor_given_to_it(world: World, tally: Tally, unchanged: None):
    for actor, table in product(world.some, TABLES):
        others = [other.tenant_id for other in world.households if other is not actor]
        names = columns_of(table)
        fresh = {"id": "gen_random_uuid()", "tenant_id": "x"} | DISTINCT[table]
        values = ", ".join(fresh.get(name, f"r.{name}") for name in names)
        insert = f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM (SELECT * FROM {table} LIMIT 1) r"
        with tenant_scope(actor.tenant_id):
            told = told_for_each(insert, others)
            told += told_for_each(f"UPDATE {table} SET tenant_id = x", others)
            assert told_for_each(insert, [actor.tenant_id]) == ["done"]
            transaction.set_rollback(True)
        wanted = "append-only" if table in LOGS else "row-level security"
        assert all("row-level security" in words for words in told[: len(others)]), table
        assert all(wanted in words for words in told[len(others) :]), table
        tally.add("insert or give away in another's name", len(told), told.count("done"))


def test_an_insert_under_another_tenants_id_goes_as_under_one_that_nobody_has(world, tally, unchanged):
    """The oracle of the primary key: every id of everybody else is free; one's own is taken."""
    for actor, table in product(world.some, TABLES):
        foreign = world.foreign(table, actor)
        with tenant_scope(actor.tenant_id):
            sql = copies(table, "ON CONFLICT DO NOTHING RETURNING id")
            made = ask(sql, foreign, actor)
            assert ask(sql, sorted(actor.ids[table]), actor) == set(), "one's own id is a conflict"
            transaction.set_rollback(True)
        tally.add("primary key", len(foreign), len(set(foreign) - made))
        assert made == set(foreign), table


def test_the_unique_values_of_another_tenant_are_free(world: World, tally: Tally, unchanged: None):
    """A draft with the candidate and the text's name of each draft of everybody else's goes in; with one's own not."""
    values_of = {}
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            values_of[actor.tenant_id] = rows("SELECT candidate_id, text_mac FROM drafts_draft")
    names = columns_of("drafts_draft")
    changed = {"id": "gen_random_uuid()", "candidate_id": "v.candidate", "text_mac": "v.mac"}
    selected = ", ".join(changed.get(name, f"r.{name}") for name in names)
    sql = (
        f"INSERT INTO drafts_draft ({', '.join(names)}) SELECT {selected} FROM unnest(%s::uuid[], %s::bytea[])"
        " v(candidate, mac), (SELECT * FROM drafts_draft LIMIT 1) r ON CONFLICT DO NOTHING RETURNING id"
    )
    for actor in world.some:
        foreign = [value for id, values in values_of.items() if id != actor.tenant_id for value in values]
        own = values_of[actor.tenant_id]
        with tenant_scope(actor.tenant_id):
            made = rows(sql, *(list(column) for column in zip(*foreign, strict=True)))
            assert rows(sql, [candidate for candidate, _ in own], [b"%d" % n for n in range(len(own))]) == []
            ((source_id,),) = rows("SELECT source_id FROM drafts_draft LIMIT 1")
            macs = [mac for (mac,) in rows("SELECT text_mac FROM drafts_draft WHERE source_id = %s", source_id)]
            assert rows(sql, [new_uuid7() for _ in macs], macs) == []
            transaction.set_rollback(True)
        tally.add("unique values", len(foreign), len(foreign) - len(made))
        assert len(made) == len(foreign)


def test_the_foreign_key_says_of_another_tenants_source_what_it_says_of_none(world, tally, unchanged):
    names = columns_of("drafts_draft")
    changed = {"id": "gen_random_uuid()", "source_id": "x", "candidate_id": "gen_random_uuid()"}
    values = ", ".join(changed.get(name, f"r.{name}") for name in names)
    sql = f"INSERT INTO drafts_draft ({', '.join(names)}) SELECT {values} FROM (SELECT * FROM drafts_draft LIMIT 1) r"
    for actor in world.some:
        foreign = world.foreign("drafts_source", actor)
        with tenant_scope(actor.tenant_id):
            told = set(told_for_each(sql, foreign))
            assert told == set(told_for_each(sql, [new_uuid7() for _ in range(5)]))
            assert all("violates foreign key" in words for words in told)
            mine = told_for_each(sql, sorted(actor.ids["drafts_source"]))
            assert all(words == "done" or "duplicate key" in words for words in mine), "the actor's own are there"
            assert "done" in mine
            transaction.set_rollback(True)
        tally.add("foreign key", len(foreign))


def test_no_part_of_a_table_has_a_door_of_its_own(world: World, tally: Tally, unchanged: None, owner_session):
    parts = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = ANY(%s::regclass[])"
    tables = [name for (name,) in rows(parts, list(PARTED))]
    assert len(tables) == 3 * 32
    for actor, verb in product(world.some, ("SELECT id FROM", "UPDATE", "DELETE FROM", "INSERT INTO")):
        tail = {"UPDATE": " SET id = id", "INSERT INTO": " DEFAULT VALUES"}.get(verb, "")
        with tenant_scope(actor.tenant_id):
            told = told_for_each(f"EXECUTE '{verb} ' || x || '{tail}'", tables, "text")
            assert {words.split(" for ")[0] for words in told} == {"42501 permission denied"}
            whole = told_for_each(f"EXECUTE '{verb} ' || x || '{tail}'", ["drafts_source"], "text")
            assert whole == ["done"] or verb == "INSERT INTO", "through the table itself it is allowed"
            transaction.set_rollback(True)
        tally.add("a part of a table", sum(len(world.foreign(table, actor)) for table in PARTED))
    for part in tables:
        assert owner_session.execute(f"SELECT count(*) FROM {part}").fetchone() == (0,), "to the owner neither"
