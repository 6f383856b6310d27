"""A receiver whose origin is allowed, for every test of webhooks."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.webhook_receiver import Receiver, receiving


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    with receiving() as receiver:
        settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = (receiver.origin,)
        yield receiver


@pytest.fixture
def nothing_due(committed_db: None) -> None:
    """`DeliveryDue` is one queue for all tenants: a test that empties it begins with it empty."""
    from backend.webhooks.models import DeliveryDue

    DeliveryDue.objects.all().delete()
