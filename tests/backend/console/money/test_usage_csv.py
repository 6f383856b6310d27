"""The file of usage under ASGI, as production serves it: in pieces, and without a connection kept between them."""

import asyncio
import csv
import io

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient

from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def test_a_long_file_comes_in_pieces():
    tenant = make_tenant()
    user = make_member(tenant)
    facts = [
        Fact(sku="x", quantity=1, unit="call", amount_microusd=1, price_version="v", source_key=f"k{i}")
        for i in range(1_250)
    ]
    with tenant_scope(tenant.id):
        record(tenant.id, facts, compile_id=None, step="run")

    async def read() -> list[bytes]:
        client = AsyncClient()
        await client.aforce_login(user)
        answer = await client.get("/app/bills/usage.csv")
        assert answer.status_code == 200
        pieces = [piece async for piece in answer]
        await sync_to_async(connections.close_all)()  # of the thread that the client's views ran in
        return pieces

    pieces = asyncio.run(read())
    assert len(pieces) == 3  # of 500 lines
    rows = list(csv.reader(io.StringIO(b"".join(pieces).decode())))
    assert len(rows) == 1_251
