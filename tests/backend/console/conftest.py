"""Log-in limits are counted in Redis by address, and all tests come from one: each begins with none used."""

import pytest

from deploy.embedded.stack import EmbeddedServices


@pytest.fixture(autouse=True)
def _no_limits_used(embedded_services: EmbeddedServices) -> None:
    from django.core.cache import cache

    cache.clear()
