"""What a page shows as an API request is one that the API answers: each line of the resource and money pages that reads
something is sent, with a key of the team."""

import html
import re
from urllib.parse import urlsplit

import pytest
from django.test import Client

from backend.domain.ids import Prefix, encode_id
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from tests.backend.console.money.test_pages import make_invoice
from tests.backend.console.pages import get, logged_in
from tests.backend.drafts.rows import make_drafts
from tests.compile_factories import make_artifact, make_compile, make_receipts, public_id
from tests.factories import bearer, make_api_key, make_tenant
from tests.webhook_factories import deliveries_of, make_endpoint, make_event

pytestmark = pytest.mark.usefixtures("committed_db")

LINE = re.compile(r"<code>(curl [^<]*)</code>", re.DOTALL)
ADDRESS = re.compile(r"https?://[^\s\"'\\]+/v1/[^\s\"'\\]*")


@pytest.fixture
def team(committed_db):
    tenant = make_tenant()
    row = make_compile(tenant)
    make_receipts(row)
    artifact = make_artifact(row)
    make_drafts(tenant, "give it back")
    fact = Fact(sku="x", quantity=1, unit="call", amount_microusd=5, price_version="v", source_key="k")
    with tenant_scope(tenant.id):
        record(tenant.id, [fact], compile_id=row.id, step="synthesis")
    endpoint = make_endpoint(tenant, "https://example.com/hook")
    make_event(tenant)
    (delivery,) = deliveries_of(tenant)
    pages = [
        "artifacts",
        f"artifacts/{public_id(artifact)}",
        "drafts",
        "drafts?family=router",
        "registry",
        "bills",
        "bills?by=day",
        "bills?by=api_key",
        "bills/ledger",
        f"bills/invoices/{make_invoice(tenant)}",
        "budgets",
        "plan",
        "webhooks",
        f"webhooks/{encode_id(Prefix.WEBHOOK_ENDPOINT, endpoint.id)}",
        f"webhooks/deliveries/{encode_id(Prefix.WEBHOOK_DELIVERY, delivery.id)}",
        "api_keys",
    ]
    return tenant, pages


def test_every_reading_line_that_a_page_shows_is_answered(team):
    tenant, pages = team
    person, program = logged_in(tenant), Client()
    headers = bearer(make_api_key(tenant))
    n = 0
    for page in pages:
        lines = [html.unescape(line) for line in LINE.findall(get(person, f"/app/{page}"))]
        assert lines, page
        for line in lines:
            found = ADDRESS.search(line)
            assert found, line
            if "-X" in line or "-d" in line or "--data" in line:
                continue
            parts = urlsplit(found[0])
            answer = program.get(f"{parts.path}?{parts.query}", headers=headers)
            assert answer.status_code == 200, (page, line, answer.content[:300])
            n += 1
    assert n >= len(pages)
