"""Epochs as the database counts them and the deployment signs them."""

import json
import random
from datetime import timedelta
from itertools import pairwise

import pytest
from allauth.account.models import EmailAddress
from django.db import DatabaseError, transaction
from django.utils import timezone

from backend.artifacts.signing import keyring
from backend.blobs import get_blob
from backend.domain.recipes.registry.epochs import Entry, read_epoch
from backend.domain.recipes.registry.structural import Structure
from backend.registry import contributing, epochs
from backend.registry.contributing import contribute, withdraw
from backend.registry.epochs import epoch_blob
from backend.registry.models import Contribution, Epoch
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from tests.backend.registry.worlds import KEY_NEXT, LONG_AGO, contributor, contributors, structures
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.django_db

CITY = (KEY_NEXT, ' "city": "')
DATE = (KEY_NEXT, ' "date": "')
PARTS = {"date", "city", "sum", "name", "kind"}


@pytest.fixture(autouse=True)
def bare_threshold(settings):
    """k alone, so that a test can say how many are enough; the margin has tests of its own."""
    settings.KOLM_REGISTRY_MARGIN = 0


def entries() -> set[tuple[str, str]]:
    """Of the next epoch, or of the last one where nothing changed."""
    epochs.build()
    last = epochs.newest()
    return set() if last is None else {(e.shape, e.run) for e in read_epoch(bytes(last.data)).entries}


def test_what_ten_tenants_share_leaves_and_what_nine_share_does_not():
    contributors(9, CITY, DATE)
    assert entries() == set()
    contributor(DATE)
    assert entries() == {DATE}


def test_a_tenant_that_contributes_twenty_times_counts_once():
    ours = contributors(9, CITY)
    for _ in range(20):
        contributor(CITY, tenant=ours[0])
    assert entries() == set()
    with tenant_scope(ours[0].id):
        assert Contribution.objects.count() == 1


def test_ten_workspaces_of_one_person_are_one_party():
    for _ in range(10):
        contributor(CITY, email="one@person.example")
    assert entries() == set()
    contributors(9, CITY)
    assert entries() == {CITY}, "and together with nine others they are ten"


def test_ten_workspaces_of_one_company_are_one_party():
    for n in range(10):
        contributor(CITY, email=f"p{n}@company.example")
    contributors(8, CITY)
    assert entries() == set()


def test_people_of_the_public_mail_services_are_parties_of_their_own():
    for n in range(10):
        contributor(CITY, email=f"p{n}@gmail.com")
    assert entries() == {CITY}


def test_an_address_that_was_not_verified_makes_nobody_one_party():
    """Somebody claims addresses of ten companies, to keep what they share from ever being released."""
    tenants = [contributor(CITY, email=f"p@firm{n}.example") for n in range(10)]
    claimer = make_member(tenants[0], email="claimer@elsewhere.example")
    for n in range(10):
        EmailAddress.objects.create(user=claimer, email=f"claimer@firm{n}.example", verified=False)
    assert entries() == {CITY}


def test_workspaces_in_a_chain_are_one_party():
    """Each shares a person with the next alone, in an order that is not that of their ids."""
    ours = contributors(12, CITY)
    order = random.Random(7).sample(ours, 12)
    for n, (one, other) in enumerate(pairwise(order)):
        for tenant in (one, other):
            make_member(tenant, email=f"between{n}@bridge{n}.example")
    assert entries() == set()


def test_who_joins_a_second_workspace_after_contributing_makes_them_one_party():
    ours = contributors(10, CITY)
    for tenant in ours[:2]:
        make_member(tenant, email="late@joiner.example")
    assert entries() == set()


@pytest.mark.parametrize("seed", range(3))
def test_the_database_counts_as_the_definition_says(seed):
    """Random tenants, people and entries, against a reference that walks the graph."""
    rng = random.Random(seed)
    people = [f"p{n}@{'gmail.com' if n % 3 == 0 else f'firm{n % 5}.example'}" for n in range(14)]
    worlds = []
    for _ in range(24):
        mine = {(KEY_NEXT, f' "{name}": "') for name in rng.sample(sorted(PARTS), 3)}
        of = rng.sample(people, rng.choice((0, 1, 1, 2)))
        tenant = make_tenant()
        for email in of:
            make_member(tenant, email=email)
        contributor(*mine, tenant=tenant)
        marks = set(of) | {email.split("@")[1] for email in of if not email.endswith("gmail.com")}
        worlds.append((mine, marks))
    party = list(range(len(worlds)))
    for _ in worlds:
        for i, (_, ours) in enumerate(worlds):
            for j, (_, theirs) in enumerate(worlds):
                if ours & theirs:
                    party[i] = party[j] = min(party[i], party[j])
    wanted = {}
    for entry in {entry for mine, _ in worlds for entry in mine}:
        wanted[entry] = len({party[i] for i, (mine, _) in enumerate(worlds) if entry in mine})
    found = {(row.entry.shape, row.entry.run): row.n_parties for row in epochs.count_shared(5)}
    assert found == {entry: n for entry, n in wanted.items() if n >= 5}


def test_the_database_counts_for_no_fewer_than_five_whoever_asks():
    contributors(4, CITY)
    for k in (4, 1, 0, -1, None):
        with pytest.raises(DatabaseError, match="five parties"), transaction.atomic():
            epochs.count_shared(k)
    assert epochs.count_shared(5) == []


def test_what_was_not_seen_for_a_year_counts_no_more():
    ours = contributors(10, CITY)
    with tenant_scope(ours[0].id):
        Contribution.objects.update(seen_at=timezone.now() - timedelta(days=366))
    assert entries() == set()
    contributor(CITY, tenant=ours[0])
    assert entries() == {CITY}


def test_what_is_withdrawn_is_not_in_the_next_epoch_and_does_not_come_back():
    ours = contributors(10, CITY)
    assert entries() == {CITY}
    assert withdraw(ours[0].id, actor=SYSTEM) == 1
    assert entries() == set()
    assert contribute(ours[0].id, structures(CITY), submitted_at=LONG_AGO) == 0, "a compile that was under way"
    assert entries() == set()
    assert contribute(ours[0].id, structures(CITY), submitted_at=timezone.now()) == 1, "who opts in again is in again"
    assert entries() == {CITY}


def test_a_row_is_structure_whoever_says_so_and_nothing_else():
    tenant = make_tenant()
    forged = [
        Structure(shape=KEY_NEXT, run=' "city": "Bern, Marktgasse 12"', words=("city",)),
        Structure(shape='json d1 key "patient" | STR : STR ,', run=' "', words=()),
        Structure(shape="json d1 in value #0 | ID", run='", "', words=()),
        Structure(shape=KEY_NEXT, run=' "city": "', words=("another",)),
    ]
    assert contribute(tenant.id, forged, submitted_at=timezone.now()) == 0
    assert contribute(tenant.id, [*forged, *structures(CITY, CITY)], submitted_at=timezone.now()) == 1
    with tenant_scope(tenant.id):
        (row,) = Contribution.objects.all()
        assert (row.shape, row.run) == CITY
        columns = {field.name for field in Contribution._meta.concrete_fields}
    assert columns == {"id", "tenant_id", "shape_version", "shape", "run", "created_at", "seen_at"}


def test_a_tenant_has_a_bounded_part_of_the_table(monkeypatch):
    monkeypatch.setattr(contributing, "MAX_OF_A_TENANT", 2)
    tenant = contributor(CITY)
    contributor((KEY_NEXT, ' "kind": "'), (KEY_NEXT, ' "name": "'), (KEY_NEXT, ' "sum": '), tenant=tenant)
    with tenant_scope(tenant.id):
        assert set(Contribution.objects.values_list("run", flat=True)) == {' "kind": "', ' "name": "'}


def test_a_margin_keeps_the_k_minus_first_planted_guess_from_being_an_answer(settings):
    """Nine planted workspaces and one victim: with a bare threshold the entry comes out and tells of the victim."""
    settings.KOLM_REGISTRY_MARGIN = 6
    settings.SECRET_KEY = "the draw goes by it: the same one in every run"
    guesses = [(KEY_NEXT, f' "{a}{b}{c}": "') for a in "abc" for b in "defg" for c in "hij"]
    contributors(10, *guesses)
    told = len(entries())
    assert told <= 4, "one in 42 on average"
    contributors(6, *guesses)
    assert len(entries()) == len(guesses)


def test_epochs_are_chained_and_verified_by_the_deployments_keys():
    ours = contributors(10, CITY)
    first = epochs.build()
    assert first is not None
    contributors(10, DATE)
    second = epochs.build()
    assert second is not None
    assert second.number == first.number + 1
    read = [read_epoch(bytes(row.data)) for row in (first, second)]
    assert read[1].head["prev"] == read[0].head_sha256
    assert read[1].doubts(keyring()) == ()
    assert read[1].doubts(None) != ()
    assert read[1].entries == (Entry(shape=CITY[0], run=CITY[1]), Entry(shape=DATE[0], run=DATE[1]))
    assert get_blob(ours[0].id, epoch_blob(ours[0].id)) == bytes(second.data)


def test_the_file_tells_of_no_tenant_no_count_and_no_token():
    contributors(11, CITY)
    epochs.build()
    document = json.loads(bytes(Epoch.objects.get().data))
    assert set(document) == {"entries", "format", "head"}
    assert document["entries"] == [{"run": CITY[1], "shape": CITY[0]}]


def test_nothing_new_makes_no_epoch_and_upkeep_waits_for_its_days(settings, monkeypatch):
    assert epochs.build() is None, "nothing yet"
    contributors(10, CITY)
    monkeypatch.setattr(epochs, "_next_look", 0.0)
    assert epochs.build_due() == 1
    assert epochs.build() is None
    contributors(10, DATE)
    monkeypatch.setattr(epochs, "_next_look", 0.0)
    assert epochs.build_due() == 0
    Epoch.objects.update(created_at=timezone.now() - timedelta(days=settings.KOLM_REGISTRY_EPOCH_DAYS, minutes=1))
    assert epochs.build_due() == 0, "it looked just now"
    monkeypatch.setattr(epochs, "_next_look", 0.0)
    assert epochs.build_due() == 1


def test_without_days_there_are_no_epochs(settings, monkeypatch):
    settings.KOLM_REGISTRY_EPOCH_DAYS = 0
    monkeypatch.setattr(epochs, "_next_look", 0.0)
    contributors(10, CITY)
    assert epochs.build_due() == 0
