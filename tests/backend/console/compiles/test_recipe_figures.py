"""Recipes and rules on the pages of a compile and of its artifact, as the pipeline leaves them."""

from typing import Any

import pytest

from backend.artifacts.models import Artifact
from backend.blobs import put_blob
from backend.compiles.models import Compile, StepRun
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.rules.rule_list import Evidence, LabelRule, RuleList
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import fresh, make_compile, public_id
from tests.factories import make_tenant
from tests.workers.answer_helpers import EASY, advance, at_distillation, bring, fail, json_answer, json_spec
from tests.workers.training.test_recipes import (
    ON,
    PACK,
    TEXTS,
    at_pack_job,
    at_rules,
    packed,
    right,
    ruled,
    with_observations,
)

pytestmark = pytest.mark.usefixtures("committed_db")
HOSTILE = '<script>alert("x")</script>'


def page(row: Compile, path: str | None = None) -> str:
    with tenant_scope(row.tenant_id):
        client = logged_in(Tenant.objects.get(id=row.tenant_id))
    return get(client, path or f"/app/compiles/{public_id(row)}?tab=all")


def at_rest(committed_db: Any) -> Compile:
    return with_observations(at_distillation(json_answer, **json_spec(gate=EASY, recipes=ON)))


def test_what_was_measured_and_chosen_is_shown_on_both_pages(committed_db):
    row = at_pack_job(at_rest(committed_db))
    bring(row, PACK, packed(row))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    with tenant_scope(row.tenant_id):
        artifact = Artifact.objects.get(compile_id=row.id)
    for text in (page(row), page(row, f"/app/artifacts/{public_id(artifact)}")):
        assert "Recipes and rules" in text
        assert "On 8 prompts pack takes 65 % less time than no drafts." in text
        assert "Time per answer, by draft source" in text
        assert ">4.00<" in text, "96 tokens in 24 steps"
        assert "8 of 8" in text
        assert "0.7 ms" in text


def test_a_pack_that_could_not_be_made_says_so(committed_db):
    row = at_pack_job(at_rest(committed_db))
    fail(row, PACK, "generation_failed")
    advance(row)
    text = page(row)
    assert "the runner could not make one" in text
    assert "recipes failed" in text


def test_the_share_that_rules_answer_is_shown(committed_db):
    row = at_rules()
    with tenant_scope(row.tenant_id):
        labeling = StepRun.objects.get(compile=row, name=StepName.LABELING)
        labeling.output["facts"]["rules"] = induced()
        labeling.save()
    ruled(row, right(18), [json_answer(text) if i >= 18 else None for i, text in enumerate(TEXTS)])
    advance(row)
    text = page(row)
    assert "The rules answer 6 of 24 held-out inputs (25.0 %)" in text
    assert "subject: &quot;x&quot;" in text


def test_rules_of_hostile_words_are_only_words(committed_db):
    row = make_compile(make_tenant())
    rule = LabelRule(
        when=("pay back",), unless=(), answer=HOSTILE, evidence=Evidence(seen=9, support=9, right=9, low_ppm=960_000)
    )
    digests = {"rules": put_blob(row.tenant_id, RuleList(task="label", rules=(rule,)).to_bytes())}
    with tenant_scope(row.tenant_id):
        output = {"digests": digests, "facts": {"rules": induced()}}
        StepRun.objects.filter(compile=row, name=StepName.LABELING).update(output=output)
    text = page(row)
    assert "1 rule learned; the evaluation decides whether to use it." in text
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text


def test_rules_that_are_not_sure_enough_are_told_of(committed_db):
    row = make_compile(make_tenant())
    with tenant_scope(row.tenant_id):
        output = {"digests": {}, "facts": {"rules": induced(state="none_sure_enough", rules=0, n_rules=0)}}
        StepRun.objects.filter(compile=row, name=StepName.LABELING).update(output=output)
    assert "No rule is reliable enough: 3,000 proposals were tested on 400 of 1,000 pairs." in page(row)


def test_a_compile_that_has_come_to_neither_shows_nothing(committed_db):
    assert "Recipes and rules" not in page(make_compile(make_tenant()))


def induced(**changes: Any) -> dict[str, Any]:
    facts = {"state": "kept", "pairs": 1000, "proposing": 600, "heldout": 400, "tried": 3000, "lists": 9, "rules": 1}
    counts = {"answered": 90, "right": 89, "coverage_ppm": 225_000, "precision_ppm": 988_888, "low_ppm": 951_000}
    return facts | counts | {"needed_ppm": 950_000, "n_rules": 1} | changes
