"""The keys that `kolm_tenant()` and its sisters accept: the pads of HMAC-SHA256 in `kolm_tenant_key`, which the owner
alone reads and writes. Several are accepted at once, so that processes can be changed over one by one.

Pads travel as parameters of the wire: Django writes parameters into the text, which a server may log.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from django.db import connection, transaction

BLOCK = 64  # of SHA-256, in bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedKeys:
    """`since` is when a key was installed, None where it is not; `n_others` are accepted beside it."""

    since: datetime | None
    n_others: int


def accept(key: bytes) -> None:
    """Tokens of this key pass from here on, beside those of the keys that are there."""
    sql = "INSERT INTO public.kolm_tenant_key (ipad, opad) VALUES (%s, %s) ON CONFLICT (ipad) DO NOTHING"
    _execute(sql, [*pads(key)])


@transaction.atomic
def accept_only(key: bytes) -> int:
    """Tokens of this key pass and no others; how many keys went."""
    accept(key)
    return int(_execute("DELETE FROM public.kolm_tenant_key WHERE ipad <> %s", [pads(key)[0]]).rowcount)


def accepted_keys(key: bytes) -> AcceptedKeys:
    """Return what is accepted, seen from one key."""
    sql = (
        "SELECT min(installed_at) FILTER (WHERE ipad = %(mine)s), count(*) FILTER (WHERE ipad <> %(mine)s)"
        " FROM public.kolm_tenant_key"
    )
    row = _execute(sql, {"mine": pads(key)[0]}).fetchone()
    assert row is not None
    return AcceptedKeys(since=row[0], n_others=row[1])


def _execute(sql: Any, parameters: Any) -> "psycopg.Cursor[Any]":
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return psycopg.Cursor(connection.connection).execute(sql, parameters)


def pads(key: bytes) -> tuple[bytes, bytes]:
    """The inner and outer key of HMAC-SHA256 (RFC 2104, section 2) for a key of at most one block."""
    block = key.ljust(BLOCK, b"\0")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)
