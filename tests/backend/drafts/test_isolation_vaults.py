"""What the key of a family is worth when every filter and policy has failed: its texts open with no other key, its
vectors lie at chance from the same text's vectors anywhere else, and within the family no cosine is lost.
"""

import hashlib
from itertools import permutations
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from django.db import transaction
from scipy.stats import beta

from backend.domain.errors import OurError
from backend.drafts.cache import find_scope
from backend.drafts.models import FamilyKey, Source
from backend.drafts.vault import MAX_DIMENSIONS, Vault, make_vault, open_vault
from backend.tenants.isolation import tenant_scope
from tests.backend.drafts.test_isolation_offers import opens, put
from tests.backend.drafts.test_isolation_world import SCOPES, D
from tests.factories import make_tenant

N_VAULTS = 40
N_TEXTS = 100


def vault(n: int) -> Vault:
    """The n-th of some vaults: three families a tenant, each with a key of its own."""
    key = hashlib.sha256(f"key {n}".encode()).digest()
    return Vault(UUID(int=1 + n // 3), f"family {n % 3}", key)


def text_vectors(n: int, d: int = D) -> Any:
    """(n, d) float32 unit rows in ten topics, as sentences' are: within a topic cosines of about 0.7."""
    rng = np.random.default_rng(5)
    topics = rng.standard_normal((10, d))
    rows = topics[rng.integers(10, size=n)] + 0.65 * rng.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def beyond(n_pairs: int, d: int, level: float) -> float:
    """The |cosine| that some of `n_pairs` pairs of random directions exceeds with at most this probability: the square
    of a random cosine is Beta(1/2, (d - 1)/2), and the bound of the union needs no independence."""
    return float(np.sqrt(beta.isf(level / n_pairs, 0.5, (d - 1) / 2)))


def test_vectors_of_different_families_and_tenants_are_no_nearer_than_chance():
    vectors = text_vectors(N_TEXTS)
    turned = [vault(n).rotate(vectors) for n in range(N_VAULTS)]
    largest = same = 0.0
    n_pairs = 0
    for a in range(N_VAULTS):
        others = np.concatenate(turned[a + 1 :]) if a + 1 < N_VAULTS else np.zeros((0, D), dtype=np.float32)
        cosines = np.abs(turned[a] @ others.T)
        n_pairs += cosines.size
        largest = max(largest, float(cosines.max(initial=0.0)))
        of_same_text = np.abs(np.einsum("id,jid->ij", turned[a], others.reshape(-1, N_TEXTS, D)))
        same = max(same, float(of_same_text.max(initial=0.0)))
    chance = beyond(n_pairs, D, 1e-3)
    shown = f"max |cos| {largest:.3f}, of the same text {same:.3f}; chance {chance:.3f}"
    print(f"\n{n_pairs:,} pairs of vectors of {N_VAULTS} vaults: {shown}")
    assert n_pairs == N_VAULTS * (N_VAULTS - 1) // 2 * N_TEXTS**2 >= 7_000_000
    assert same <= largest < chance < 0.35
    assert float(np.abs(vectors @ vectors.T - np.eye(N_TEXTS)).max()) > 0.5, "unrotated, texts of a topic are near"


@pytest.mark.parametrize("d", [384, 768, 1024, MAX_DIMENSIONS])
def test_within_a_family_no_cosine_moves(d):
    """float32: 1e-6. As it is stored, in half precision: 1e-3."""
    vectors = text_vectors(N_TEXTS, d)
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    turned = vault(0).rotate(vectors).astype(np.float64)
    stored = turned.astype(np.float16).astype(np.float64)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    exact = float(np.abs(turned @ turned.T - cosines).max())
    halved = float(np.abs(turned @ stored.T - cosines).max())
    print(f"\nd = {d}: cosine error {exact:.1e} in float32, {halved:.1e} against a stored halfvec")
    assert exact < 1e-6
    assert halved < 1e-3


@pytest.mark.nightly
def test_beyond_what_an_index_holds_cosines_move_by_the_projections_error():
    d = 1536
    vectors = text_vectors(N_TEXTS, d)
    turned = vault(0).rotate(vectors)
    error = np.abs(turned @ turned.T - vectors @ vectors.T)
    assert turned.shape == (N_TEXTS, MAX_DIMENSIONS)
    assert float(error.max()) < 5 / np.sqrt(MAX_DIMENSIONS)
    others = vault(1).rotate(vectors)
    assert float(np.abs(turned @ others.T).max()) < beyond(N_TEXTS**2, MAX_DIMENSIONS, 1e-6)


def test_a_sealed_text_opens_with_its_own_vault_alone():
    vaults = [vault(n) for n in range(N_VAULTS)]
    texts = [f"canary {i}" for i in range(20)]
    sealed = [[v.seal(text) for text in texts] for v in vaults]
    assert [[v.unseal(value) for value in mine] for v, mine in zip(vaults, sealed, strict=True)] == [texts] * N_VAULTS
    pairs = [(reader, value) for reader, writer in permutations(range(N_VAULTS), 2) for value in sealed[writer]]
    opened = sum(opens(vaults[reader], value) for reader, value in pairs)
    print(f"\n{opened} of {len(pairs):,} sealed texts opened with another family's vault")
    assert len(pairs) == N_VAULTS * (N_VAULTS - 1) * len(texts) >= 30_000
    assert opened == 0


def test_the_same_key_under_another_tenant_opens_nothing():
    mine = vault(0)
    sealed = mine.seal("canary")
    assert mine.unseal(sealed) == "canary"
    assert not opens(Vault(UUID(int=9), mine.family, mine._key), sealed)


def test_a_sealed_text_that_was_altered_anywhere_does_not_open():
    mine = vault(0)
    sealed = mine.seal("canary")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert not opens(mine, bytes(changed))
    assert not any(opens(mine, sealed[:n]) for n in range(len(sealed)))


def test_the_same_text_has_another_name_and_another_cipher_text_everywhere():
    texts = [f"canary {i}" for i in range(20)]
    names = {vault(n).mac(text) for n in range(N_VAULTS) for text in texts}
    assert len(names) == N_VAULTS * len(texts)
    assert all(vault(n).mac(text) == vault(n).mac(text) for n in range(3) for text in texts)
    assert len({vault(0).seal("canary") for _ in range(100)}) == 100


def test_a_key_says_nothing_of_itself_where_values_are_printed():
    assert vault(0)._key.hex() not in repr(vault(0))
    assert repr(vault(0)._key) not in repr(vault(0))


@pytest.mark.django_db
def test_a_familys_key_opens_neither_for_another_tenant_nor_under_another_familys_name():
    me, other = make_tenant(), make_tenant()
    for tenant in (me, other):
        with tenant_scope(tenant.id):
            for family in ("router", "triage"):
                make_vault(tenant.id, family)
    with tenant_scope(other.id):
        theirs = bytes(FamilyKey.objects.get(tenant_id=other.id, family="router").sealed)
    with tenant_scope(me.id):
        mine = bytes(FamilyKey.objects.get(tenant_id=me.id, family="router").sealed)
        for put_in_place in (theirs, mine):
            FamilyKey.objects.filter(tenant_id=me.id, family="triage").update(sealed=put_in_place)
            with pytest.raises(OurError, match="does not open"):
                open_vault(me.id, "triage")
        assert open_vault(me.id, "router") is not None


@pytest.mark.django_db
def test_what_is_stored_is_neither_the_text_nor_the_vector():
    tenant = make_tenant()
    (vector,) = text_vectors(1)
    with tenant_scope(tenant.id), transaction.atomic():
        source_id = put(tenant.id, SCOPES[0], vector, "canary-at-rest")
        source = Source.objects.get(tenant_id=tenant.id, id=source_id)
        drafts = list(source.drafts.values())
        assert find_scope(tenant.id, SCOPES[0]).id == source.scope_id
    assert b"canary-at-rest" not in bytes(source.prompt_sealed)
    assert all(
        b"canary-at-rest" not in bytes(value)
        for row in drafts
        for value in row.values()
        if isinstance(value, memoryview | bytes)
    )
    assert abs(float(np.asarray(source.embedding) @ vector)) < beyond(1, D, 1e-6)
