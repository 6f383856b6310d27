"""Which tenant a session acts for cannot be moved by SQL that is injected into it: not by a token that was made up, not
by one that was read off another session, not by code of the caller's that runs as somebody else, not by what a session
leaves behind for the next one.
"""

import threading
import time
from collections.abc import Callable
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from backend.domain.errors import OurError
from backend.drafts.cache import DraftScope, find_scope, load_drafts, nearest_drafts, prompts_of
from backend.drafts.models import Scope
from backend.drafts.vault import open_vault
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import read_local, set_local, tenant_scope, tenant_token
from tests.backend.drafts.test_isolation_offers import put
from tests.backend.drafts.test_isolation_world import (
    SCOPES,
    TABLES,
    Tally,
    World,
    ids_of,
    rows,
    the_owner_session,  # noqa: F401
    the_tally,  # noqa: F401
    the_world,  # noqa: F401
)

FORGERIES: dict[str, Callable[[UUID, UUID], str]] = {  # of the actor and of the one it would like to be
    "the bare id": lambda me, other: str(other),
    "no signature": lambda me, other: f"{other}.9999999999",
    "a made-up signature": lambda me, other: f"{other}.9999999999.{'0' * 64}",
    "an empty signature": lambda me, other: f"{other}.9999999999.",
    "one's own signature": lambda me, other: str(other) + tenant_token(me)[36:],
    "one's own token behind the id": lambda me, other: f"{other}.{tenant_token(me)}",
    "a longer life": lambda me, other: f"{other}.9999999999.{tenant_token(other).rpartition('.')[2]}",
    "expired": lambda me, other: tenant_token(other, expires_at=int(time.time()) - 1),
    "expired long ago": lambda me, other: tenant_token(other, expires_at=0),
    "a negative time": lambda me, other: tenant_token(other, expires_at=-1),
    "upper case": lambda me, other: tenant_token(other).upper(),
    "cut short": lambda me, other: tenant_token(other)[:-1],
    "a letter more": lambda me, other: tenant_token(other) + "0",
    "a line break behind": lambda me, other: tenant_token(other) + "\n",
    "a space in front": lambda me, other: " " + tenant_token(other),
    "two tokens": lambda me, other: f"{tenant_token(me)}\n{tenant_token(other)}",
    "empty": lambda me, other: "",
    "a wildcard": lambda me, other: "%",
    "an injection": lambda me, other: "' OR true --",
}


def test_a_forged_or_missing_token_opens_no_table(world: World, tally: Tally):
    actor = world.households[0]
    for (kind, forge), table in product(FORGERIES.items(), TABLES):
        for other in world.households[1:4]:
            with pytest.raises(DatabaseError), transaction.atomic():  # noqa: PT012
                set_local("app.tenant", forge(actor.tenant_id, other.tenant_id))
                rows(f"SELECT count(*) FROM {table}")
            tally.add(f"forged token: {kind}", len(other.ids[table]))
    assert len(FORGERIES) >= 9
    for table in TABLES:
        set_local("app.tenant", "")
        with pytest.raises(DatabaseError, match="no tenant is set"), transaction.atomic():
            rows(f"SELECT count(*) FROM {table}")
        with tenant_scope(actor.tenant_id):
            assert rows(f"SELECT count(*) FROM {table}") == [(len(actor.ids[table]),)]


def test_row_security_off_refuses_every_table(world: World, tally: Tally):
    for actor, table in product(world.households, TABLES):
        with pytest.raises(DatabaseError, match="row-level security"), tenant_scope(actor.tenant_id):  # noqa: PT012
            rows("SELECT set_config('row_security', 'off', true)")
            rows(f"SELECT count(*) FROM {table}")
        tally.add("row_security = off", len(world.foreign(table, actor)))


def injections(other: UUID) -> list[str]:
    switch = f"set_config('app.tenant', '{other}.9999999999.{'0' * 64}', false)"
    return [
        f"'; SELECT {switch}; --",
        f"' || {switch} || '",
        f"'); SELECT {switch}; --",
        f"' UNION SELECT {switch} --",
        f"\\'; SELECT {switch}; --",
        f"$$; SELECT {switch}; --",
        f'"; SELECT {switch}; --',
        f"%s'; SELECT {switch}; --",
        f"%(tenant)s; SELECT {switch}",
        f"'; SET app.tenant = '{other}'; --",
        f"/*'*/; RESET app.tenant; SELECT {switch}; --",
        f"E'\\'; SELECT {switch}",
        f"ʼ; SELECT {switch}; --",
    ]


def test_words_with_sql_in_them_are_words_wherever_they_go(world: World, tally: Tally):
    """Every value that goes into the cache's SQL: in the place of names they are stored as they are, in the place of
    ids they are refused; the tenant stays who it was."""
    me, other = world.households[0], world.households[1]
    vector = world.vectors[0]
    for word in injections(other.tenant_id):
        for field in ("family", "teacher", "embedder"):
            scope = DraftScope(**{"family": "f", "teacher": "t", "embedder": "e", field: word[:100]})
            with tenant_scope(me.tenant_id):
                token = read_local("app.tenant")
                assert put(me.tenant_id, scope, vector, word) is not None
                row = find_scope(me.tenant_id, scope)
                assert getattr(row, field) == word[:100]
                (near,) = nearest_drafts(me.tenant_id, row, [vector], n_sources=3, seed=1)
                assert [draft.text for source in near for draft in source.drafts] == [word]
                assert prompts_of(me.tenant_id, scope.family, [near[0].source_id]) != {}
                assert open_vault(me.tenant_id, scope.family) is not None
                assert read_local("app.tenant") == token
                assert ids_of("SELECT DISTINCT tenant_id FROM drafts_draft") == {me.tenant_id}
                transaction.set_rollback(True)
            tally.add("SQL in a name or a text", 5)
        calls = [
            lambda word=word: nearest_drafts(
                word, Scope(id=word, family=SCOPES[0].family), [vector], n_sources=3, seed=1
            ),
            lambda word=word: nearest_drafts(
                me.tenant_id, Scope(id=word, family="router"), [vector], n_sources=3, seed=1
            ),
            lambda word=word: find_scope(word, SCOPES[0]),
            lambda word=word: load_drafts(me.tenant_id, "router", {word: 0.0}),
            lambda word=word: prompts_of(me.tenant_id, "router", [word]),
            lambda word=word: put(word, SCOPES[0], vector),
        ]
        for call in calls:
            with tenant_scope(me.tenant_id):
                token = read_local("app.tenant")
                with pytest.raises(Exception) as refused, transaction.atomic():
                    call()
                assert not isinstance(refused.value, OurError), "refused before anything was found"
                assert read_local("app.tenant") == token
                assert ids_of("SELECT DISTINCT tenant_id FROM drafts_draft") == {me.tenant_id}
            tally.add("SQL in the place of an id", 1)


# --- what a session can reach beside its rows -----------------------------------------------------------------


def test_no_session_reads_the_statements_of_another(world: World, tally: Tally):
    """The statements of other sessions have tokens and texts in them, and pg_stat_activity shows them to the role."""
    me, other = world.households[0], world.households[1]
    canary, asked, seen = "canary-in-a-statement", threading.Event(), threading.Event()

    def work() -> None:
        with tenant_scope(other.tenant_id):
            rows("SELECT count(*) FROM drafts_scope WHERE family = %s", canary)
            asked.set()
            seen.wait(10)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert asked.wait(10)
        with tenant_scope(me.tenant_id):
            shown = str(rows("SELECT * FROM pg_stat_activity")) + str(rows("SELECT * FROM pg_prepared_statements"))
            sessions = rows("SELECT count(*) FROM pg_stat_activity WHERE usename = current_user")
    finally:
        seen.set()
        thread.join()
    assert sessions[0][0] >= 2, "the other session is there"
    assert canary not in shown
    assert str(other.tenant_id) not in shown
    tally.add("statements of another session", 1)


def test_the_token_goes_beside_the_statement_and_not_into_its_text(world: World):
    """Django's cursors write parameters into the text, which logs and views of the server show."""
    texts = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        texts.append(str(params))
        return execute(sql, params, many, context)

    me = world.households[0]
    with connection.execute_wrapper(watch), tenant_scope(me.tenant_id):
        assert ids_of("SELECT id FROM drafts_preview WHERE id <> %s", new_uuid7()) == me.ids["drafts_preview"]
    assert len(texts) == 1, "the wrapper sees what Django's cursor sends"
    assert str(me.tenant_id) not in texts[0]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TEMP TABLE drafts_source (LIKE public.drafts_source)",
        "CREATE TEMP VIEW drafts_source AS SELECT * FROM public.drafts_source",
        "CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'infinity'::timestamptz $$",
        "CREATE TABLE public.drafts_sources (x int)",
        "CREATE SCHEMA mine",
        "CREATE TRIGGER t BEFORE INSERT ON drafts_draft FOR EACH ROW EXECUTE FUNCTION kolm_append_only()",
        "ALTER TABLE drafts_draft DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON drafts_draft",
        "SET ROLE kolm_owner",
        "SET SESSION AUTHORIZATION kolm_owner",
        "SET session_replication_role = replica",
        "SET track_activities = on",
        "SELECT * FROM kolm_tenant_key",
        "SELECT * FROM pg_statistic",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT lo_import('/etc/hostname')",
    ],
)
def test_nothing_is_made_that_would_catch_anothers_rows_or_run_as_another(world: World, sql):
    """A temporary table in a pooled session would take the next tenant's rows, and one with a trigger would run the
    caller's code as the owner, had the sweep met it."""
    with pytest.raises(DatabaseError), tenant_scope(world.households[0].tenant_id), connection.cursor() as cursor:
        cursor.execute(sql)


def test_what_runs_as_the_owner_looks_at_no_object_of_the_callers(world: World):
    """pg_temp is searched first for tables unless it is named last."""
    found = rows(
        "SELECT p.proname, p.proconfig, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE p.prosecdef AND n.nspname = 'public'"
    )
    assert {name for name, _, _ in found} >= {"kolm_tenant", "kolm_sweep_drafts"}
    for name, options, source in found:
        assert "search_path=pg_catalog, pg_temp" in (options or []), name
        assert source.replace("public.", "").count("drafts_") == 0 or "public.%I" in source, name


def test_the_statistics_of_columns_are_not_shown(world: World, tally: Tally, owner_session):
    for table in TABLES:
        owner_session.execute(f"ANALYZE {table}")
    owner_session.commit()
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            for view in ("pg_stats", "pg_stats_ext", "pg_stats_ext_exprs"):
                assert rows(f"SELECT * FROM {view} WHERE tablename LIKE 'drafts%%'") == []
                tally.add("statistics of columns", sum(len(world.foreign(table, actor)) for table in TABLES))


def test_a_tenant_that_nobody_has_sees_as_little_as_any_other(world: World):
    with tenant_scope(new_uuid7()):
        assert all(ids_of(f"SELECT id FROM {table}") == set() for table in TABLES)
