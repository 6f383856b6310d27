"""Texts of customers and models on every page that shows them: they stay text, whatever they are."""

import pytest

from backend.domain.lifecycle import CompileStatus
from backend.domain.roles import Role
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from tests.backend.console.compiles.test_pages import judged, trained
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import (
    LABELS,
    change,
    make_artifact,
    make_candidate,
    make_compile,
    make_receipts,
    make_slice,
    public_id,
)
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{7*7}}{% debug %}", "javascript:alert(3)//")


def check(text: str) -> None:
    assert "<script>alert" not in text
    assert "<img" not in text
    assert 'href="javascript' not in text
    assert "49{" not in text


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_texts_stay_texts_on_every_page_that_shows_them(evil):
    tenant = make_tenant(evil)
    row = make_compile(tenant, task=evil)
    pool = make_slice(row, name=evil[:60], hint=evil, label=evil[:60], exemplars=[{"input": evil, "output": evil}])
    for n in range(4):
        make_candidate(pool, text=f"{evil} {n}", label=evil[:60])
    trained(row)
    judged(row, [evil if n < 9 else LABELS[n % 2] for n in range(60)])
    change(row, name=evil, family=evil, status=CompileStatus.SUCCEEDED)
    make_receipts(row)
    artifact = make_artifact(row)
    other = make_compile(tenant)
    with tenant_scope(tenant.id):
        actor = Actor(kind="user", id="usr_1", label=evil)
        audit.note(tenant.id, actor=actor, action="thing.changed", target=evil[:60], data={"name": evil})
        price = {"sku": f"teacher.{evil}"[:60], "quantity": 1_000, "unit": "token"}
        fact = Fact(**price, price_version="2026-11-26", source_key=evil, amount_microusd=1_204_000)
        record(tenant.id, [fact], compile_id=row.id, step="synthesis")
    client, id = logged_in(tenant, Role.OWNER), public_id(row)
    for path in (
        "/app/",
        "/app/compiles",
        f"/app/compiles/{id}?tab=all",
        f"/app/compiles/{id}?slice=0",
        f"/app/compiles/{id}/data",
        f"/app/compiles/{id}/answers",
        f"/app/compiles/new?from={id}",
        f"/app/compiles/compare?ids={id},{public_id(other)}",
        "/app/artifacts",
        f"/app/artifacts/{public_id(artifact)}",
        f"/app/playground?artifact={public_id(artifact)}",
        "/app/bills",
        "/app/bills/ledger",
        "/app/audit",
        "/app/settings",
    ):
        check(get(client, path))
