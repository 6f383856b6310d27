"""/app/compiles/<id>/data.jsonl: every candidate of a filter, streamed a chunk at a time."""

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import AsyncClient

from backend.console.compiles import data
from backend.domain.roles import Role
from tests.compile_factories import make_candidate, make_compile, make_slice, public_id
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


def downloaded(user: Any, path: str) -> tuple[int, list[dict[str, Any]]]:
    async def scenario() -> tuple[int, bytes]:
        client = AsyncClient()
        await client.aforce_login(user)
        answer = await client.get(path)
        body = b"".join([part async for part in answer]) if answer.streaming else b""
        await sync_to_async(lambda: connection.close())()
        return answer.status_code, body

    status, body = asyncio.run(scenario())
    return status, [json.loads(line) for line in body.splitlines()]


@pytest.fixture(autouse=True)
def no_connection_stays_open(committed_db: None) -> Any:
    yield
    connection.close()


def test_each_candidate_of_the_filter_is_a_line_however_many_chunks_it_takes(monkeypatch):
    monkeypatch.setattr(data, "CHUNK", 3)
    tenant = make_tenant()
    row = make_compile(tenant)
    pool = make_slice(row)
    texts = [f"text {i} \u2028 \n" for i in range(10)]
    for text in texts:
        make_candidate(pool, text=text, state="dropped")
    make_candidate(pool, text="kept", state="trained", label="refund")
    user = make_member(tenant, Role.VIEWER)
    path = f"/app/compiles/{public_id(row)}/data.jsonl"
    status, lines = downloaded(user, f"{path}?state=dropped")
    assert (status, [line["text"] for line in lines]) == (200, texts)
    _, all_lines = downloaded(user, path)
    assert len(all_lines) == 11
    assert all_lines[-1] | {"slice": "refund", "label": "refund", "state": "trained"} == all_lines[-1]
    stranger = make_member(make_tenant(), Role.OWNER)
    assert downloaded(stranger, path)[0] == 404
