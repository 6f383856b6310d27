"""What `nearest_drafts` offers is of the one scope that it was asked for, though every scope of every tenant holds the
very same slices; `admit` writes into the asking tenant's scope alone. And again with the queries' own filters taken
out: then the database holds tenants apart, and the family's key holds families apart.
"""

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from django.apps import apps
from django.db import DatabaseError, transaction
from psycopg import Cursor, ServerCursor
from scipy.stats import beta

from backend.domain.errors import OurError
from backend.drafts.cache import (
    Admitted,
    DraftScope,
    SourcePrompt,
    admit,
    find_scope,
    load_drafts,
    nearest_drafts,
    prompts_of,
)
from backend.drafts.models import Draft, Scope, Source
from backend.drafts.nearest import nearest_sources
from backend.drafts.vault import open_vault
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from tests.backend.drafts.test_isolation_world import (
    N_DRAFTS,
    N_SOURCES,
    SCOPES,
    TABLES,
    D,
    Tally,
    World,
    ids_of,
    the_tally,  # noqa: F401
    the_world,  # noqa: F401
)

ALL = 10_000  # sources: as many as there are
SCOPED = ("tenant_id", "scope_id", "family", "teacher", "embedder")


def offered(tenant_id: Any, row: Scope, world: World, n_sources: int = ALL) -> set[str]:
    found = nearest_drafts(tenant_id, row, world.vectors, n_sources=n_sources, seed=1)
    return {draft.text for near in found for source in near for draft in source.drafts}


def test_no_draft_of_another_tenant_family_teacher_or_embedder_is_offered(world: World, tally: Tally):
    drafts = sum(len(texts) for household in world.households for texts in household.texts.values())
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            for scope, row in actor.scopes.items():
                found = offered(actor.tenant_id, row, world)
                mine = actor.texts[scope]
                assert found >= mine
                assert len(mine) == N_SOURCES * N_DRAFTS
                tally.add("offer of another scope", drafts - len(mine), len(found - mine))
    assert tally.attempts["offer of another scope"] >= 100_000
    assert tally.leaks["offer of another scope"] == 0


def test_with_anothers_scope_in_hand_nothing_is_found(world: World, tally: Tally):
    """The stored scope of another tenant, asked for under one's own id and under its owner's."""
    for n, (actor, other) in enumerate(product(world.some, world.households)):
        if actor is other:
            continue
        scope = SCOPES[n % len(SCOPES)]
        sources = sorted(other.ids["drafts_source"])
        with tenant_scope(actor.tenant_id):
            for tenant_id in (actor.tenant_id, other.tenant_id):
                found = offered(tenant_id, other.scopes[scope], world)
                tally.add("offer for another's scope", len(other.texts[scope]), len(found))
                prompts = prompts_of(tenant_id, scope.family, sources)
                tally.add("prompt of another's source", len(sources), len(prompts))
                loaded = load_drafts(tenant_id, scope.family, dict.fromkeys(other.ids["drafts_draft"], 0.0))
                tally.add("draft of another by its id", len(other.ids["drafts_draft"]), len(loaded))
            assert find_scope(other.tenant_id, scope) is None
    for name in ("offer for another's scope", "prompt of another's source", "draft of another by its id"):
        assert tally.attempts[name] > 0 == tally.leaks[name]


def test_the_same_calls_find_what_is_the_actors_own(world: World):
    for actor in world.some:
        with tenant_scope(actor.tenant_id):
            for scope, row in actor.scopes.items():
                ids = Source.objects.filter(tenant_id=actor.tenant_id, scope_id=row.id).values_list("id", flat=True)
                drafts = Draft.objects.filter(tenant_id=actor.tenant_id, scope_id=row.id).values_list("id", flat=True)
                assert len(prompts_of(actor.tenant_id, scope.family, list(ids))) == N_SOURCES
                loaded = load_drafts(actor.tenant_id, scope.family, dict.fromkeys(drafts, 0.0))
                assert {draft.text for draft in loaded.values()} == actor.texts[scope]


def one_candidate(text: str) -> Admitted:
    return Admitted(
        candidate_id=new_uuid7(),
        text=text,
        score=None,
        signal="none",
        logprob=None,
        n_tokens=1,
        cost_microusd=1,
        is_kept=False,
    )


def put(tenant_id: Any, scope: DraftScope, vector: Any, text: str = "written by another") -> Any:
    prompt = SourcePrompt(slice_text=text, messages=(("user", text),))
    return admit(
        tenant_id, new_uuid7(), [one_candidate(text)], scope=scope, prompt=prompt, slice_vector=vector.tolist()
    )


def test_nothing_is_admitted_into_another_tenants_scope(world: World, tally: Tally):
    vector = world.vectors[0]
    for n, (actor, other) in enumerate(product(world.some, world.households)):
        if actor is other:
            continue
        with tenant_scope(actor.tenant_id):
            with pytest.raises(DatabaseError, match="row-level security"), transaction.atomic():
                put(other.tenant_id, SCOPES[n % len(SCOPES)], vector)
            tally.add("admit for another", 1)
    for household in world.households:
        with tenant_scope(household.tenant_id):
            assert all(ids_of(f"SELECT id FROM {table}") == household.ids[table] for table in TABLES)
    actor = world.households[0]
    with tenant_scope(actor.tenant_id):
        assert put(actor.tenant_id, SCOPES[0], vector) is not None
        transaction.set_rollback(True)


# --- the filters taken out -----------------------------------------------------------------------------------


class Mutation:
    """Every statement that is sent, of the ORM or of our own, loses its conditions on these columns."""

    def __init__(self, *columns: str) -> None:
        self.condition = re.compile(rf'(?:"?\w+"?\.)?"?(?:{"|".join(columns)})"? = (%s|%\(\w+\)s)')
        self.n_removed = 0

    def __enter__(self) -> "Mutation":
        self.patch = pytest.MonkeyPatch()
        for cursor, name in ((Cursor, "execute"), (Cursor, "copy"), (ServerCursor, "execute")):
            self.patch.setattr(cursor, name, self._forgetful(getattr(cursor, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def _forgetful(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def send(cursor: Any, statement: str, *args: Any, **options: Any) -> Any:
            statement, n = self.condition.subn(r"\1 IS NOT NULL", statement)
            self.n_removed += n
            return method(cursor, statement, *args, **options)

        return send


def test_with_the_tenant_filters_gone_the_offers_stay_ones_own(world: World, tally: Tally):
    name = "offer, tenant filters removed"
    for actor in world.some:
        n_foreign = len(world.foreign("drafts_draft", actor))
        with Mutation("tenant_id") as mutation, tenant_scope(actor.tenant_id):
            for scope, row in actor.scopes.items():
                found = offered(actor.tenant_id, row, world)
                assert found >= actor.texts[scope]
                tally.add(name, n_foreign, len(found - actor.texts[scope]))
        assert mutation.n_removed >= 4 * len(SCOPES), "the queries are no longer the ones that this mutation knows"
    assert tally.attempts[name] >= 100_000
    assert tally.leaks[name] == 0


def test_with_every_filter_gone_no_other_tenants_row_comes(world: World, tally: Tally):
    name = "row, every filter removed"
    for actor, other in zip(world.households, (*world.households[1:], world.households[0]), strict=True):
        with Mutation(*SCOPED), tenant_scope(actor.tenant_id):
            turned = np.eye(1, D, dtype=np.float32)
            (near,) = nearest_sources(other.tenant_id, new_uuid7(), turned, ALL)
            assert {id for id, _ in near} >= actor.ids["drafts_source"], "the look-up's own SQL has lost its filter too"
            tally.add(name, len(world.foreign("drafts_source", actor)), len(near) - len(actor.ids["drafts_source"]))
            for model in apps.get_app_config("drafts").get_models():
                table = model._meta.db_table
                found = set(model._default_manager.filter(tenant_id=other.tenant_id).values_list("id", flat=True))
                assert found >= actor.ids[table], "one's own, though another's were asked for: the filter is gone"
                tally.add(name, len(world.foreign(table, actor)), len(found - actor.ids[table]))
    assert tally.leaks[name] == 0


@pytest.mark.parametrize("n_sources", [N_SOURCES, ALL])
def test_with_every_filter_gone_no_draft_of_another_scope_is_offered(world: World, tally: Tally, n_sources):
    """Of one's own tenant: another family's does not open, another teacher's or embedder's stops the look-up."""
    name = "offer of another scope, every filter removed"
    n_stopped = 0
    for actor in world.some:
        drafts = sum(map(len, actor.texts.values())) + len(world.foreign("drafts_draft", actor))
        with Mutation(*SCOPED), tenant_scope(actor.tenant_id):
            for scope, row in actor.scopes.items():
                try:
                    found = offered(actor.tenant_id, row, world, n_sources)
                except OurError:
                    found, n_stopped = set(), n_stopped + 1
                tally.add(name, drafts - len(actor.texts[scope]), len(found - actor.texts[scope]))
    assert tally.leaks[name] == 0
    assert n_stopped > 0


def test_another_familys_drafts_do_not_open_and_its_vectors_are_no_nearer_than_chance(world: World, tally: Tally):
    """What a forgotten family filter meets: every text of the tenant's other families, and their vectors of the very
    same slices."""
    name = "another family's draft opened"
    nearest = 0.0
    for actor in world.households:
        with tenant_scope(actor.tenant_id):
            vaults = {scope.family: open_vault(actor.tenant_id, scope.family) for scope in SCOPES}
            sealed, vectors = {}, {}
            for scope, row in actor.scopes.items():
                mine = {"tenant_id": actor.tenant_id, "scope_id": row.id}
                sealed[scope] = Draft.objects.filter(**mine).values_list("text_sealed", flat=True)
                found = Source.objects.filter(**mine).values_list("embedding", flat=True)
                vectors[scope] = np.asarray(list(found), dtype=np.float32)
            for scope, (family, vault) in product(SCOPES, vaults.items()):
                opened = [opens(vault, bytes(value)) for value in sealed[scope]]
                similarity = np.abs(vault.rotate(world.vectors) @ vectors[scope].T)
                if family == scope.family:
                    assert all(opened)
                    assert similarity.max() > 0.999
                    continue
                nearest = max(nearest, float(similarity.max()))
                tally.add(name, len(opened), sum(opened))
    n = len(world.households) * len(SCOPES) * 2 * N_SOURCES**2
    # of n independent pairs of directions in D dimensions the nearest is beyond this one time in a million
    chance = float(np.sqrt(beta.isf(1e-6 / n, 0.5, (D - 1) / 2)))
    print(
        f"\nlargest |cosine| of the same slices across a tenant's families, {n:,} pairs: {nearest:.3f} < {chance:.3f}"
    )
    assert nearest < chance
    assert tally.leaks[name] == 0


def opens(vault: Any, sealed: bytes) -> bool:
    try:
        vault.unseal(sealed)
    except OurError:
        return False
    return True
