"""Drafts under the policy that wrote them, scores that are numbers, versions that two compiles want at once."""

import io
import itertools
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from backend import blobs
from backend.artifacts.models import Artifact
from backend.artifacts.publishing import publish
from backend.compiles.models import Compile
from backend.domain.errors import InvalidSpec, Unavailable
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, fresh, make_compile
from tests.factories import make_tenant
from tests.workers.collapsing_teacher import drafts as product_drafts
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    candidates,
    messages,
    slices,
    start,
    step,
    taught_by,
    told_apart,
    walk_through,
)

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
EXAMPLES = {"inline": told_apart(24), "holdout": 0.5}


def test_a_draft_is_kept_under_the_teacher_and_temperature_that_wrote_it(monkeypatch):
    """The first round collapses, the second is hotter: its texts are of another distribution."""
    fresh_texts = messages()

    def write(request: Any) -> list[str]:
        if request.temperature > 1.0:
            return list(itertools.islice(fresh_texts, request.n))
        return [f"Where is my money{'!' * i}" for i in range(request.n)]

    taught_by(monkeypatch, ScriptedTeacher(write=write))
    row = make_compile(make_tenant(), examples=EXAMPLES, sampling={"n_candidates": 8, "k_select": 2})
    walk_through(start(row), *TO_SELECTION)
    hot = [part for part in slices(row) if part.round > 0]
    assert hot
    rounds = {c.id: c.round for c in candidates(row, state="dropped")}
    drafts = product_drafts(row)
    assert len(drafts) == len(rounds)
    for draft in drafts:
        warmth = ("1.00", "1.30", "1.60")[rounds[draft.candidate_id]]
        assert draft.teacher.endswith(f"|temperature={warmth}")
    assert {rounds[draft.candidate_id] for draft in drafts} >= {0, 1}


def test_verifiers_without_weight_rank_nothing_and_leave_it_to_the_default_one(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    row = make_compile(
        make_tenant(),
        examples=EXAMPLES,
        sampling={"n_candidates": 6},
        verifiers=[{"kind": "length", "min_chars": 1, "weight": 0.0}, {"kind": "similarity", "weight": 0.0}],
    )
    walk_through(start(row), *TO_SELECTION)
    assert {part.signal for part in slices(row)} == {"verifier"}
    assert step(row, StepName.VERIFICATION).output["facts"]["verifier"] == "default"
    assert all(c.score == c.score for c in candidates(row))


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"verifiers": [{"kind": "similarity", "gate": True}]}, "/verifiers/0/gate", "not_used"),
        (
            {"teacher": {"provider": "grammar", "model": "kolm-grammar-1", "fallback_model": "other-1"}},
            "/teacher/fallback_model",
            "unknown_teacher_price",
        ),
    ],
)
def test_what_would_fail_or_be_ignored_in_the_middle_of_a_compile_is_refused_before_it(changes, pointer, code):
    with pytest.raises(InvalidSpec) as refused:
        make_compile(make_tenant(), **changes)
    assert [(p.pointer, p.code) for p in refused.value.problems] == [(pointer, code)]


def test_a_grammar_teacher_that_this_deployment_does_not_run_is_refused(settings):
    settings.KOLM_GRAMMAR_URL = ""
    with pytest.raises(InvalidSpec) as refused:
        make_compile(make_tenant())
    assert refused.value.problems[0].pointer == "/teacher/provider"


def test_two_compiles_of_one_name_that_publish_at_once_get_two_versions():
    tenant = make_tenant()
    rows = [make_compile(tenant) for _ in range(4)]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("manifest.json", "{}")
    for row in rows:
        change(row, k_score_ppm=900_000)

    def work(row: Compile) -> int:
        try:
            with tenant_scope(tenant.id):
                compile = Compile.objects.select_for_update().get(tenant_id=tenant.id, id=row.id)
                return publish(compile, data.getvalue(), "0" * 64).version
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(work, rows)) == [1, 2, 3, 4]
    with tenant_scope(tenant.id):
        assert Artifact.objects.filter(tenant_id=tenant.id).count() == 4
    assert all(fresh(row).artifact_id is not None for row in rows)


def test_a_disk_that_is_full_is_not_filled_with_halves(tmp_path, settings, monkeypatch):
    settings.KOLM_BLOB_DIR = tmp_path

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blobs.os, "fsync", full)
    with pytest.raises(Unavailable, match="is full"):
        blobs.put_blob(make_tenant().id, b"x" * 1000)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
