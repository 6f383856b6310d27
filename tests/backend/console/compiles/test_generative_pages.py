"""The pages of a json compile and of a text compile, on what the pipeline really leaves."""

import pytest

from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import fresh, make_candidate, make_slice, public_id
from tests.workers.answer_helpers import (
    EASY,
    TEXTS,
    advance,
    at_distillation,
    json_answer,
    json_spec,
    right,
    text_answer,
    text_spec,
    trial,
)

pytestmark = pytest.mark.usefixtures("committed_db")
HOSTILE = '<script>alert("x")</script>'


def client_of(row: Compile):
    with tenant_scope(row.tenant_id):
        return logged_in(Tenant.objects.get(id=row.tenant_id))


@pytest.fixture
def json_row(committed_db) -> Compile:
    """A json compile that has missed its gate, after two trials."""
    row = at_distillation(json_answer, **json_spec(gate=EASY))
    pool = make_slice(row, label="")
    answered = {"state": "trained", "answer": json_answer(TEXTS[0]), "votes": {json_answer(TEXTS[0]): 3}}
    make_candidate(pool, text=TEXTS[0], agreement_ppm=1_000_000, **answered)
    refused = {"state": "unverified", "reasons": ["schema", "copied /subject"], "votes": {HOSTILE: 1, "{}": 2}}
    make_candidate(pool, text="nobody knows", agreement_ppm=0, **refused)
    trial(row, right(10))
    trial(row, right(3), n_parameters=2000)
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    return row


def test_the_page_of_a_json_compile_has_its_fields_and_trials(json_row):
    text = get(client_of(json_row), f"/app/compiles/{public_id(json_row)}?tab=all")
    assert "Field by field" in text
    assert "/subject" in text
    assert "10 of 24 (41." in text
    assert "<h3>Confusions</h3>" not in text
    assert "base_constrained" in text or "base constrained" in text
    assert "causal, rank 8" in text
    assert "causal, rank 16" in text
    assert '<span class="tag good">kept</span>' in text
    assert '"loss-data"' in text
    assert "training, calibration" not in text


def test_the_candidates_show_their_answers_and_why_one_has_none(json_row):
    client = client_of(json_row)
    data = get(client, f"/app/compiles/{public_id(json_row)}/data")
    assert "<th>Answer</th>" in data
    assert json_answer(TEXTS[0]).replace('"', "&quot;") in data
    assert "no teacher answer can be trained on: schema, copied /subject" in data
    assert HOSTILE not in data
    assert "&lt;script&gt;" in data
    listed = client.get(f"/app/compiles/{public_id(json_row)}/data.jsonl")
    assert listed.status_code == 200


def test_a_json_compile_can_be_compared_with_itself_and_listed(json_row):
    client = client_of(json_row)
    assert "complaints" in get(client, "/app/compiles")
    other = at_other(json_row)
    text = get(client, f"/app/compiles/compare?compile={public_id(json_row)}&compile={public_id(other)}")
    assert "F1 of the worst field" in text
    assert "complaints" in get(client, "/app/")


def at_other(row: Compile) -> Compile:
    """Another compile of the same tenant, just queued."""
    from backend.compiles.lifecycle import submission
    from tests.compile_factories import small_spec

    with tenant_scope(row.tenant_id):
        return submission.submit(row.tenant_id, small_spec(), api_key_id=None)


def test_the_page_of_a_text_compile_has_neither_classes_nor_fields(committed_db):
    output = text_spec()["output"] | {"accuracy": "checks"}
    row = at_distillation(text_answer, **text_spec(gate=EASY, train={"escalate": False}, output=output))
    trial(row, [text_answer(text) for text in TEXTS], bare=["as an AI"] * len(TEXTS))
    advance(row)
    assert (fresh(row).status, row.failed_step, row.gate["passed"]) == (CompileStatus.SUCCEEDED, "", True)
    client = client_of(row)
    text = get(client, f"/app/compiles/{public_id(row)}?tab=all")
    assert "Field by field" not in text
    assert "24 of 24 (100.0 %)" in text
    with tenant_scope(row.tenant_id):
        from backend.artifacts.models import Artifact

        artifact = Artifact.objects.get(compile_id=row.id)
    shown = get(client, f"/app/artifacts/{public_id(artifact)}")
    assert "24 of 24 held-out examples right" in shown


def test_the_editor_starts_from_a_json_example_and_tells_what_it_asks(json_row):
    client = client_of(json_row)
    text = get(client, "/app/compiles/new?example=order-extractor")
    assert "json answers" in text
    assert "order-extractor" in text
