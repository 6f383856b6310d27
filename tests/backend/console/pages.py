"""What the tests of pages share: a person logged in, and what every page owes to its readers."""

import re
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from backend.domain.roles import Role
from backend.tenants.models import Tenant
from tests.factories import make_member

MOST_QUERIES = 30
_OF_TRANSACTIONS = ("set_config", "SAVEPOINT", "BEGIN", "COMMIT")
MOST_WITH_DRAFTS = 36  # of pages that set the draft cache's log, or sums of a month, beside lists
MOST_BYTES = 130_000
MOST_BYTES_OF_EXAMPLE = 600_000  # the editor with the json example of a thousand mails
INLINE = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|\sstyle=|\son[a-z]+=\"", re.IGNORECASE)


def logged_in(tenant: Tenant, role: Role = Role.OWNER) -> Client:
    client = Client()
    client.force_login(make_member(tenant, role))
    return client


def get(client: Client, path: str, status: int = 200, **headers: Any) -> str:
    """The page, which holds to the limits: queries, bytes, nothing inline."""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        answer = client.get(path, **headers)
    text = answer.content.decode()
    assert answer.status_code == status, (answer.status_code, text[:2000])
    own = [query for query in queries if not any(word in query["sql"] for word in _OF_TRANSACTIONS)]
    most = (
        MOST_WITH_DRAFTS
        if path == "/app/"
        or path.startswith(("/app/compiles/cmp_", "/app/compiles/compare", "/app/drafts", "/app/bills"))
        else MOST_QUERIES
    )
    assert len(own) <= most, [query["sql"][:150] for query in own]
    most = MOST_BYTES_OF_EXAMPLE if "?example=" in path else MOST_BYTES
    assert len(answer.content) < most, len(answer.content)
    assert not INLINE.search(text), INLINE.search(text)
    return text


def plain(page: str) -> str:
    """The page's text with its amounts as they are read: without the element that carries the exact one."""
    return re.sub(r"</?data\b[^>]*>", "", page)


def post(client: Client, path: str, data: dict[str, Any] | None = None, status: int = 302) -> Any:
    answer = client.post(path, data or {})
    assert answer.status_code == status, (answer.status_code, answer.content.decode()[:2000])
    return answer
