"""The registry's page: everybody's epochs, one's own entries, and taking them back."""

import pytest

from backend.domain.roles import Role
from backend.registry import epochs
from backend.registry.models import Contribution
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.backend.registry.worlds import KEY_NEXT, contributor, contributors
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

CITY, OWN = (KEY_NEXT, ' "city": "'), (KEY_NEXT, ' "ours_alone": "')


def n_rows(tenant):
    with tenant_scope(tenant.id):
        return Contribution.objects.of_tenant(tenant.id).count()


def test_who_put_nothing_in_sees_how_to_and_nothing_to_withdraw():
    text = get(logged_in(make_tenant()), "/app/registry")
    assert "No epoch yet" in text
    assert "Withdraw everything" not in text


def test_one_sees_the_epochs_and_ones_own_entries_alone(settings):
    settings.KOLM_REGISTRY_MARGIN = 0
    contributors(9, CITY)
    ours, theirs = contributor(CITY, OWN), make_tenant()
    epoch = epochs.build()
    for tenant, sees in ((ours, True), (theirs, False)):
        text = get(logged_in(tenant), "/app/registry")
        assert epoch.merkle_root[:16] in text
        assert ("ours_alone" in text) is sees


def test_the_word_must_be_typed_by_somebody_who_may():
    tenant = contributor(CITY, OWN)
    post(logged_in(tenant, Role.VIEWER), "/app/registry/withdraw", {"confirm": "withdraw"}, status=403)
    owner = logged_in(tenant)
    post(owner, "/app/registry/withdraw", {"confirm": "yes"}, status=400)
    assert n_rows(tenant) == 2
    post(owner, "/app/registry/withdraw", {"confirm": "withdraw"})
    assert n_rows(tenant) == 0
