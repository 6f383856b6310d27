"""Drafts of relatives: the same slice, or another of its label, however far their hints lie apart."""

import pytest

from backend.domain.drafts.vocabulary import Kinship
from backend.drafts.cache import NearSource, SliceNames, nearest_drafts
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.drafts.rows import make_drafts, scope_of, unit_vector
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db
LABELS = frozenset({"refund", "other"})
DIRECT = SliceNames(name="direct", label="refund", labels=LABELS)


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def found(tenant: Tenant, names: SliceNames, *, n_sources: int = 1, seed: int = 0) -> list[NearSource]:
    scope = scope_of(tenant)
    with tenant_scope(tenant.id):
        (near,) = nearest_drafts(tenant.id, scope, [unit_vector(seed)], n_sources=n_sources, seed=1, names=[names])
    return near


def test_relatives_are_found_far_away_and_stand_before_what_is_near(tenant: Tenant) -> None:
    make_drafts(tenant, "a near stranger", seed=0, names=SliceNames(name="elsewhere", label="other"))
    make_drafts(tenant, "of the slice", seed=1, names=DIRECT)
    make_drafts(tenant, "of the label", seed=2, names=SliceNames(name="late", label="refund"))
    near = found(tenant, DIRECT)
    assert [source.kinship for source in near] == [Kinship.SLICE, Kinship.LABEL, Kinship.OTHER]
    assert near[2].distance < 0.01 < near[0].distance
    assert [draft.kinship for source in near for draft in source.drafts] == [s.kinship for s in near]


def test_the_newest_relatives_are_taken(tenant: Tenant) -> None:
    for n in range(4):
        make_drafts(tenant, f"draft {n}", seed=1, names=DIRECT)
    near = found(tenant, DIRECT, n_sources=2, seed=0)
    texts = {draft.text for source in near for draft in source.drafts}
    assert {"draft 2", "draft 3"} <= texts


@pytest.mark.parametrize(
    ("old", "kinship"),
    [
        (SliceNames(name="direct", label="refund"), Kinship.SLICE),
        (SliceNames(name="direct", label="money_back"), Kinship.SLICE),  # the label was renamed since
        (SliceNames(name="direct", label="other"), Kinship.OTHER),  # the name was given to another label's slice
        (SliceNames(name="direct"), Kinship.SLICE),
        (SliceNames(name="late", label="refund"), Kinship.LABEL),
        (SliceNames(name="late", label="money_back"), Kinship.OTHER),
        (SliceNames(name=""), Kinship.OTHER),  # of a release that kept no names
    ],
)
def test_names_say_what_a_source_is_to_a_slice(tenant: Tenant, old: SliceNames, kinship: Kinship) -> None:
    make_drafts(tenant, "a draft", names=old)
    assert [source.kinship for source in found(tenant, DIRECT)] == [kinship]


def test_without_labels_the_name_is_what_counts(tenant: Tenant) -> None:
    make_drafts(tenant, "a draft", names=SliceNames(name="orders"))
    assert [source.kinship for source in found(tenant, SliceNames(name="orders"))] == [Kinship.SLICE]
    assert [source.kinship for source in found(tenant, SliceNames(name="returns"))] == [Kinship.OTHER]


def test_a_slice_of_another_tenant_is_nobodys_relative(tenant: Tenant) -> None:
    make_drafts(tenant, "mine", seed=3, names=DIRECT)
    stranger = make_tenant()
    make_drafts(stranger, "not mine", seed=1, names=DIRECT)
    texts = {draft.text for source in found(tenant, DIRECT) for draft in source.drafts}
    assert texts == {"mine"}
