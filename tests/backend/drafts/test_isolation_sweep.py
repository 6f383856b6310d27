"""The sweep serves all tenants and runs as the owner: it takes expired rows, says how many, and nothing else of
anybody's comes out of it or is seen by the role that it runs as."""

import re
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from backend.drafts.models import Draft, LabelDraft, Source
from backend.tenants.isolation import tenant_scope
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
from tests.factories import make_tenant

EXPIRING = (LabelDraft, Draft, Source)


def seen_by(session: psycopg.Connection[Any], table: str) -> int:
    return session.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_the_owner_sees_expired_rows_of_the_swept_tables_and_otherwise_none(world: World, tally: Tally, owner_session):
    """Not even without a filter, nor in the parts. Which scopes there are it may see, to know which need an index."""
    n_rows = {table: sum(len(household.ids[table]) for household in world.households) for table in TABLES}
    rows("SELECT kolm_sweep_drafts(1000000)")
    for table in TABLES:
        if table == "drafts_scope":
            continue
        try:
            with owner_session.transaction():
                found = seen_by(owner_session, table)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject):
            # the policy asks for the tenant, and no tenant is set
            found = 0
        tally.add("row seen by the owner", n_rows[table], found)
    assert tally.leaks["row seen by the owner"] == 0
    me = world.households[0]
    with tenant_scope(me.tenant_id):
        assert ids_of("SELECT id FROM drafts_draft") >= me.ids["drafts_draft"]


def test_a_sweep_takes_what_has_expired_of_every_tenant_and_leaves_the_rest(world: World, tally: Tally):
    rows("SELECT kolm_sweep_drafts(1000000)")
    tenants = [make_tenant() for _ in range(3)]
    for tenant in tenants:
        with tenant_scope(tenant.id):
            for scope in SCOPES[:4]:
                put(tenant.id, scope, world.vectors[0])
            expired = Source.objects.filter(tenant_id=tenant.id, scope__embedder=SCOPES[0].embedder)
            past = timezone.now() - timedelta(seconds=1)
            Draft.objects.filter(tenant_id=tenant.id, source__in=expired).update(expires_at=past)
            expired.update(expires_at=past)
    with tenant_scope(tenants[0].id):
        answer = rows("SELECT * FROM kolm_sweep_drafts(1000000)")
    assert answer == [(3 * 2 * 2,)], "two sources of each, with a draft each: one number and no more"
    for tenant in tenants:
        with tenant_scope(tenant.id):
            assert Source.objects.filter(tenant_id=tenant.id).count() == 2
            assert Draft.objects.filter(tenant_id=tenant.id).count() == 2
    for household in world.households:
        with tenant_scope(household.tenant_id):
            for table in TABLES:
                tally.add(
                    "unexpired row swept",
                    len(household.ids[table]),
                    len(household.ids[table] - ids_of(f"SELECT id FROM {table}")),
                )
    assert tally.leaks["unexpired row swept"] == 0
    assert rows("SELECT kolm_sweep_drafts(1000000)") == [(0,)]


@pytest.mark.parametrize("most", ["0", "1", "NULL", "2147483647", "-1", "'1; SELECT 1'", "1e99"])
def test_whatever_it_is_called_with_a_sweep_says_a_number_or_refuses(world: World, most):
    with tenant_scope(world.households[0].tenant_id):
        try:
            with transaction.atomic():
                answer = str(rows(f"SELECT * FROM kolm_sweep_drafts({most})"))
        except DatabaseError as refused:
            answer = str(refused)
    says_a_number = re.fullmatch(r"\[\(\d+,\)\]", answer)
    refuses = re.match(
        r"LIMIT must not be negative|invalid input syntax|function .* does not exist|integer out", answer
    )
    assert says_a_number or refuses, answer
    assert "canary" not in answer


def test_a_tenant_cannot_make_the_sweep_take_another_tenants_row(world: World, tally: Tally):
    """By giving its rows an end: they are not there to be given one."""
    for actor, table in product(world.households, ("drafts_source", "drafts_draft", "drafts_labeldraft")):
        foreign = world.foreign(table, actor)
        with tenant_scope(actor.tenant_id):
            ended = ids_of(
                f"UPDATE {table} SET expires_at = now() - interval '1 day' WHERE id = ANY(%s) RETURNING id",
                [*foreign, *actor.ids[table]],
            )
            assert ended == actor.ids[table]
            transaction.set_rollback(True)
        tally.add("an end given to another's row", len(foreign), len(ended - actor.ids[table]))
