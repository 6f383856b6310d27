"""The world of the isolation tests: twenty tenants that keep the same slices under the same names, through the cache's
own door, each text with a canary. Built once per run; the tests at the end say that everybody finds what is theirs,
without which none of the zeros elsewhere would say anything.

An attempt, here and in the files beside, is one pair: somebody acting, and one row or scope of another that the
statement could have given away.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict

from backend.domain.drafts.vocabulary import Arm, Strategy, VerdictKind
from backend.drafts.cache import Admitted, DraftScope, SourcePrompt, admit, find_scope, nearest_drafts
from backend.drafts.models import Calibration, LabelDraft, Offer, Outcome, Preview, Scope, Verdict
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from deploy.embedded.stack import EmbeddedServices
from tests.factories import make_tenant

N_TENANTS = 20
FAMILIES = ("router", "triage", "billing")
TEACHERS = ("grammar/kolm-grammar-1@r1 t=1", "grammar/kolm-grammar-1@r2 t=1")
EMBEDDERS = ("minilm@sha256:0", "minilm@sha256:1")
SCOPES = tuple(DraftScope(family=f, teacher=t, embedder=e) for f, t, e in product(FAMILIES, TEACHERS, EMBEDDERS))
N_SOURCES = 2  # a scope
N_DRAFTS = 4  # a source
D = 384
TABLES = tuple(
    f"drafts_{name}"
    for name in (
        "familykey",
        "scope",
        "source",
        "draft",
        "labeldraft",
        "offer",
        "verdict",
        "outcome",
        "calibration",
        "preview",
    )
)
LOGS = ("drafts_offer", "drafts_verdict", "drafts_outcome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Household:
    """A tenant of the world: `ids` of its rows by table, `scopes` as stored, `texts` of its drafts by scope."""

    tenant_id: UUID
    scopes: dict[DraftScope, Scope]
    ids: dict[str, frozenset[UUID]]
    texts: dict[DraftScope, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    households: tuple[Household, ...]
    vectors: "np.ndarray[Any, np.dtype[np.float32]]"  # (N_SOURCES, D): the slices, the same for everybody

    @property
    def some(self) -> tuple[Household, ...]:
        """Every fourth, to act in tests that pay milliseconds for an attempt."""
        return self.households[::4]

    def foreign(self, table: str, actor: Household) -> list[UUID]:
        return [id for other in self.households if other is not actor for id in sorted(other.ids[table])]

    def everybodys(self, table: str) -> list[UUID]:
        return [id for household in self.households for id in sorted(household.ids[table])]

    def n_foreign(self, table: str) -> int:
        """Pairs of a tenant and a row of another's in the table."""
        return sum(len(self.foreign(table, actor)) for actor in self.households)


class Tally:
    """Attempts and leaks by class, printed at the end of a file (`pytest -s`)."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.leaks: Counter[str] = Counter()

    def add(self, name: str, n_attempts: int, n_leaks: int = 0) -> None:
        self.attempts[name] += n_attempts
        self.leaks[name] += n_leaks

    def shown(self) -> str:
        lines = [f"{self.leaks[name]:>6} of {n:>9,}  {name}" for name, n in self.attempts.items()]
        return "\n".join(["", *lines, f"{self.leaks.total():>6} of {self.attempts.total():>9,}  in all"])


def rows(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()


def ids_of(sql: str, *parameters: Any) -> set[UUID]:
    return {id for (id,) in rows(sql, *parameters)}


@cache
def build_world() -> World:
    rng = np.random.default_rng(11)
    vectors = rng.standard_normal((N_SOURCES, D)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return World(households=tuple(_household(n, vectors) for n in range(N_TENANTS)), vectors=vectors)


def _household(n: int, vectors: Any) -> Household:
    tenant = make_tenant(f"tenant {n}")
    texts: dict[DraftScope, frozenset[str]] = {}
    with tenant_scope(tenant.id):
        for number, scope in enumerate(SCOPES):
            texts[scope] = frozenset(
                text
                for at in range(N_SOURCES)
                for text in _admitted(tenant.id, f"{n}-{number}", scope, vectors[at], at)
            )
        scopes = {scope: find_scope(tenant.id, scope) for scope in SCOPES}
        _fill(tenant.id, list(scopes.values()))
        ids = {table: frozenset(ids_of(f"SELECT id FROM {table}")) for table in TABLES}
    return Household(tenant_id=tenant.id, scopes=scopes, ids=ids, texts=texts)


def _admitted(tenant_id: UUID, word: str, scope: DraftScope, vector: Any, at: int) -> list[str]:
    texts = [f"canary-{word}-{at}-{i} of {scope.family}" for i in range(N_DRAFTS)]
    candidates = [
        Admitted(
            candidate_id=new_uuid7(),
            text=text,
            score=0.5,
            signal="logprob",
            logprob=-1.0,
            n_tokens=2,
            cost_microusd=3,
            is_kept=i == 0,
            tokens=("canary", word),
            token_logprobs=(-0.5, -0.5),
        )
        for i, text in enumerate(texts)
    ]
    prompt = SourcePrompt(slice_text=f"canary-slice-{word}-{at}", messages=(("user", f"canary-prompt-{word}"),))
    assert admit(tenant_id, new_uuid7(), candidates, scope=scope, prompt=prompt, slice_vector=vector.tolist())
    return texts


def _fill(tenant_id: UUID, scopes: list[Scope]) -> None:
    """A row for each scope in the tables that `admit` does not write."""
    soon = timezone.now() + timezone.timedelta(days=1)
    mine = {"tenant_id": tenant_id}
    compile_id = new_uuid7()
    LabelDraft.objects.bulk_create(
        LabelDraft(
            **mine,
            scope=scope,
            compile_id=compile_id,
            prompt_mac=b"canary",
            answers_sealed=b"canary",
            n=1,
            input_tokens=1,
            output_tokens=1,
            expires_at=soon,
        )
        for scope in scopes
    )
    seat = [
        {**mine, "compile_id": compile_id, "slice_position": n, "family": scope.family, "arm": Arm.OFFERED}
        for n, scope in enumerate(scopes)
    ]
    counts = {"n_candidates": 1, "n_from_drafts": 0, "n_picked": 1, "n_picked_from_drafts": 0, "cost_microusd": 1}
    Offer.objects.bulk_create(Offer(**fields, n_wanted=1) for fields in seat)
    Outcome.objects.bulk_create(Outcome(**fields, **counts) for fields in seat)
    Verdict.objects.bulk_create(
        Verdict(
            **mine,
            offer_id=new_uuid7(),
            compile_id=compile_id,
            scope_id=scope.id,
            source_id=new_uuid7(),
            draft_id=new_uuid7(),
            strategy=Strategy.JUDGE,
            kind=VerdictKind.VERDICT,
            distance=0.1,
            predicted=0.5,
            propensity=1.0,
            is_accepted=True,
            n_tokens=2,
            n_tokens_kept=2,
            cost_microusd=1,
            price_version="v",
        )
        for scope in scopes
    )
    Calibration.objects.bulk_create(
        Calibration(**mine, scope=scope, strategy=Strategy.JUDGE, grid_version=1, log_posterior=b"canary")
        for scope in scopes
    )
    Preview.objects.create(**mine, spec={"canary": str(tenant_id)})


@pytest.fixture(name="world")
def the_world(committed_db: None) -> World:
    return build_world()


@pytest.fixture(scope="module", name="tally")
def the_tally() -> Iterator[Tally]:
    counted = Tally()
    yield counted
    print(counted.shown())


@pytest.fixture(name="owner_session")
def the_owner_session(committed_db: None, embedded_services: EmbeddedServices) -> Iterator[psycopg.Connection[Any]]:
    """A session of the tables' owner in the tests' database; what it did not commit is taken back."""
    address = conninfo_to_dict(embedded_services.env["DATABASE_OWNER_URL"])
    address["dbname"] = connection.settings_dict["NAME"]
    with psycopg.connect(**address, cursor_factory=psycopg.ClientCursor) as session:
        yield session
        session.rollback()


def test_everybody_sees_all_of_their_own_rows_in_every_table(world):
    for household in world.households:
        with tenant_scope(household.tenant_id):
            assert all(ids_of(f"SELECT id FROM {table}") == household.ids[table] != set() for table in TABLES)
    assert len(world.everybodys("drafts_draft")) == N_TENANTS * len(SCOPES) * N_SOURCES * N_DRAFTS


def test_everybody_is_offered_their_own_texts_of_the_scope_and_at_distance_zero(world):
    for household in world.some:
        with tenant_scope(household.tenant_id):
            for scope, row in household.scopes.items():
                found = nearest_drafts(household.tenant_id, row, world.vectors, n_sources=1000, seed=1)
                offered = {draft.text for near in found for source in near for draft in source.drafts}
                assert offered == household.texts[scope]
                assert all(len(near) == N_SOURCES and near[0].distance < 1e-3 for near in found)
