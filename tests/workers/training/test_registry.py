"""What a compile gives to the registry of recipes and takes from it: as its spec says, and nothing otherwise."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from backend.artifacts.signing import signing_key
from backend.blobs import get_blob
from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.domain.recipes.registry.contributed import structures_of
from backend.domain.recipes.registry.epochs import Entry, build_epoch
from backend.domain.recipes.shapes import SHAPE_VERSION
from backend.registry.models import Contribution, Epoch
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh
from tests.workers.answer_helpers import EASY, TEXTS, advance, at_distillation, bring, json_answer, json_spec
from tests.workers.training.test_recipes import ON, PACK, at_pack_job, packed, with_observations
from workers.steps import packaging

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def epoch(committed_db: None) -> Iterator[bytes]:
    made: dict[str, Any] = {"number": 1, "prev": "", "k": 10, "created_at": "2026-11-22T00:00:00Z"}
    entries = [Entry(shape="json d1 key #0 | {", run='"')]
    data = build_epoch(entries, shape_version=SHAPE_VERSION, key=signing_key(), **made)
    numbers = {"number": 1, "k": 10, "n_entries": 1, "size_bytes": len(data)}
    row = Epoch.objects.create(sha256="", merkle_root="", shape_version=SHAPE_VERSION, data=data, **numbers)
    yield data
    row.delete()


def published(registry: str) -> tuple[Compile, dict[str, Any]]:
    """A json compile to its end, and what its pack job was asked."""
    spec = json_spec(gate=EASY, recipes=ON | {"registry": registry})
    row = at_pack_job(with_observations(at_distillation(json_answer, **spec)))
    asked = bring(row, PACK, packed(row))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    return row, asked


def given(row: Compile) -> set[tuple[str, str]]:
    with tenant_scope(row.tenant_id):
        return set(Contribution.objects.of_tenant(row.tenant_id).values_list("shape", "run"))


@pytest.mark.parametrize("registry", ["off", "use", "contribute"])
def test_what_leaves_and_what_comes_is_what_the_spec_says(registry: str, epoch: bytes) -> None:
    row, asked = published(registry)
    wanted = {(one.shape, one.run) for one in structures_of([json_answer(text) for text in TEXTS])}
    assert wanted != set()
    assert given(row) == (wanted if registry == "contribute" else set())
    if registry == "off":
        assert asked["epoch_sha256"] == ""
    else:
        assert get_blob(row.tenant_id, asked["epoch_sha256"]) == epoch


def test_no_blob_is_read_and_nothing_is_mined_while_the_compile_is_locked(
    epoch: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packaging reads megabytes: others that need the compile's row do not wait for a disk."""
    used: set[str] = set()

    def unlocked(name: str) -> Callable[..., Any]:
        real = getattr(packaging, name)

        def called(*given: Any, **named: Any) -> Any:
            assert not connection.in_atomic_block, name
            used.add(name)
            return real(*given, **named)

        return called

    names = ("get_blob", "get_json", "get_jsonl", "structures_of", "build_kolm", "put_blob")
    for name in names:
        monkeypatch.setattr(packaging, name, unlocked(name))
    row, _ = published("contribute")
    assert used == set(names)
    assert given(row)


def test_a_spec_that_says_nothing_gives_nothing(epoch: bytes) -> None:
    row = with_observations(at_distillation(json_answer, **json_spec(gate=EASY, recipes=ON)))
    asked = bring(at_pack_job(row), PACK, packed(row))
    advance(row)
    assert (given(row), asked["epoch_sha256"]) == (set(), "")
