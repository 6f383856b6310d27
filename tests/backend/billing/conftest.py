"""A Stripe on loopback whose webhooks arrive at the real address, and tenants that use things on its clock."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from backend.billing import catalog
from backend.billing.models import CatalogEntry
from tests.doubles.stripe_server import StripeDouble

SECRET = "whsec_" + "s" * 32


@pytest.fixture
def stripe_double(committed_db: None, settings: Any) -> Iterator[StripeDouble]:
    """It is 2027-02-03 10:20 at Stripe; our prices are set up there."""
    now = int(datetime(2027, 2, 3, 10, 20, tzinfo=UTC).timestamp())
    with StripeDouble(now=now, seed=7, secret=SECRET) as double:
        settings.KOLM_STRIPE_KEY = "sk_test_double"
        settings.KOLM_STRIPE_WEBHOOK_SECRET = SECRET
        settings.KOLM_STRIPE_API = double.address
        client = Client()  # one: each loads the middleware anew
        double.world.send = lambda body, signature: post_webhook(client, body, signature)
        CatalogEntry.objects.all().delete()
        catalog.set_up()
        yield double


def post_webhook(client: Client, body: bytes, signature: str) -> int:
    headers = {"Stripe-Signature": signature}
    return client.post("/v1/stripe/webhook", body, content_type="application/json", headers=headers).status_code
