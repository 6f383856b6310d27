"""Looking for near sources: exact in blocks; by an index of the scope's own where the operator built one."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from django.conf import settings as django_settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from backend.drafts import nearest
from backend.drafts.cache import find_scope, nearest_drafts
from backend.drafts.models import Scope
from backend.drafts.nearest import has_index, nearest_sources, source_blocks
from backend.drafts.purging import purge_family
from backend.drafts.vault import open_vault
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from deploy.embedded.home import ROOT
from tests.draft_factories import SCOPE, D, store, unit_rows
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")
N = 80


@pytest.fixture(scope="module")
def stocked(django_db_setup: None, django_db_blocker: Any) -> tuple[Tenant, Scope]:
    """A tenant with N sources of two drafts each, and a small tenant in every part of the table."""
    with django_db_blocker.unblock():
        tenant = make_tenant()
        with tenant_scope(tenant.id):
            for n, row in enumerate(unit_rows(N)):
                store(tenant, [f"text {n} {i}" for i in range(2)], vector=row.tolist())
            scope = find_scope(tenant.id, SCOPE)
        connection.close()
    return tenant, scope


def exact(tenant: Tenant, asked: Any, n: int) -> list[list[int]]:
    return [list(np.argsort(row)[:n]) for row in 1 - asked @ unit_rows(N).T]


def numbers(found: Any) -> list[list[int]]:
    return [[int(source.drafts[0].text.split()[1]) for source in row] for row in found]


@pytest.mark.parametrize("block", [1, 7, 79, 80, 81, 10_000])
def test_the_answer_does_not_depend_on_the_size_of_the_blocks(stocked, block, monkeypatch):
    tenant, scope = stocked
    monkeypatch.setattr(nearest, "source_blocks", lambda *ids: source_blocks(*ids, size=block))
    asked = unit_rows(4, seed=3)
    with tenant_scope(tenant.id):
        found = nearest_drafts(tenant.id, scope, asked, n_sources=9, seed=0)
    assert numbers(found) == exact(tenant, asked, 9)


def test_a_block_has_about_as_many_sources_as_it_was_asked_for_and_all_come_once(stocked):
    tenant, scope = stocked
    with tenant_scope(tenant.id):
        blocks = [(ids.copy(), rows) for ids, rows in source_blocks(tenant.id, scope.id, size=16)]
    assert {len(ids) for ids, _ in blocks} == {16}
    assert len({bytes(id) for ids, _ in blocks for id in ids}) == N
    norms = np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in blocks])
    assert np.abs(norms - 1).max() < 1e-3


def test_an_empty_scope_has_no_blocks_and_no_neighbours(stocked):
    tenant, _ = stocked
    with tenant_scope(tenant.id):
        other = Scope.objects.create(tenant_id=tenant.id, family="empty", teacher="t", embedder="e")
        assert list(source_blocks(tenant.id, other.id)) == []
        assert nearest_sources(tenant.id, other.id, unit_rows(2), 3) == [[], []]


def test_a_look_reads_one_part_by_an_index_and_the_covering_one_is_there(stocked):
    """Which index the planner takes for some dozen rows is its own affair; for thousands make bench-drafts shows it."""
    tenant, scope = stocked
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(
            "EXPLAIN SELECT id, embedding FROM drafts_source WHERE tenant_id = %s AND scope_id = %s",
            [tenant.id, scope.id],
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'source_scope'")
        ((definition,),) = cursor.fetchall()
    assert plan.count(" on drafts_source_") == 1, plan
    assert "Index" in plan
    assert "(tenant_id, scope_id) INCLUDE (id, embedding)" in definition


# --- the index of a large scope --------------------------------------------------------------------------------


@pytest.fixture
def index_large_scopes(embedded_services: Any) -> Any:
    """`manage.py index_large_scopes`, as an operator runs it: another process, the owner."""
    owner = make_conninfo(
        embedded_services.env["DATABASE_OWNER_URL"], dbname=django_settings.DATABASES["default"]["NAME"]
    )
    environment = os.environ | embedded_services.env | {"KOLM_DB_ROLE": "owner", "DATABASE_OWNER_URL": owner}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", "index_large_scopes", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    yield run
    run("--above", "1000000")


@pytest.mark.nightly
def test_a_scope_above_the_threshold_gets_an_index_and_finds_the_same(stocked, index_large_scopes):
    tenant, scope = stocked
    bystander = make_tenant()
    store(bystander, ["small"])
    assert not has_index(scope.id)
    printed = index_large_scopes("--above", str(N - 1))
    assert printed.split() == ["built", nearest.index_name(scope.id), "over", str(N), "sources"]
    assert has_index(scope.id)
    assert index_large_scopes("--above", str(N - 1)) == "", "it is there already"
    asked = unit_rows(6, seed=5)
    with tenant_scope(tenant.id):
        found = nearest_drafts(tenant.id, scope, asked, n_sources=5, seed=0)
    assert numbers(found) == exact(tenant, asked, 5)


@pytest.mark.nightly
def test_the_look_goes_through_the_index_and_through_that_of_the_scope_alone(stocked, index_large_scopes):
    tenant, scope = stocked
    index_large_scopes("--above", str(N - 1))
    statements: list[str] = []

    def explain(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "<=>" in sql:
            with connection.cursor() as cursor:
                cursor.cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
                cursor.cursor.execute(f"EXPLAIN {sql}", params)
                statements.append("\n".join(line for (line,) in cursor.cursor.fetchall()))
        return execute(sql, params, many, context)

    with tenant_scope(tenant.id):
        (turned,) = open_vault(tenant.id, SCOPE.family).rotate(unit_rows(1))
        with connection.execute_wrapper(explain):
            nearest_sources(tenant.id, scope.id, [turned], 3)
    assert len(statements) == 1
    assert f"Index Scan using {nearest.index_name(scope.id)}" in statements[0], statements[0]


@pytest.mark.nightly
def test_what_is_admitted_later_is_found_through_the_index(stocked, index_large_scopes):
    tenant = make_tenant()
    rows = unit_rows(12, D, seed=9)
    for n, row in enumerate(rows[:11]):
        store(tenant, [f"text {n}"], vector=row.tolist())
    index_large_scopes("--above", "10")
    store(tenant, ["text 11"], vector=rows[11].tolist())
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, SCOPE)
        assert has_index(scope.id)
        (found,) = nearest_drafts(tenant.id, scope, rows[11:], n_sources=1, seed=0)
    assert found[0].drafts[0].text == "text 11"


@pytest.mark.nightly
def test_the_index_of_a_scope_that_is_gone_is_dropped(index_large_scopes):
    tenant = make_tenant()
    for n, row in enumerate(unit_rows(5)):
        store(tenant, [f"text {n}"], vector=row.tolist())
    with tenant_scope(tenant.id):
        scope = find_scope(tenant.id, SCOPE)
    assert f"built {nearest.index_name(scope.id)}" in index_large_scopes("--above", "4")
    purge_family(tenant.id, SCOPE.family)
    assert f"dropped {nearest.index_name(scope.id)}" in index_large_scopes("--above", "4")
    assert not has_index(scope.id)
