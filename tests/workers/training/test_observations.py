"""What labelling leaves for recipes and rules: the samples behind the answers, rules that hold; never held-out gold."""

from typing import Any

import pytest

from backend.blobs import get_blob, get_jsonl
from backend.compiles.models import Candidate, Compile
from backend.domain.lifecycle import StepName
from backend.domain.rules.closure import compile_rules
from backend.domain.rules.reading import read_rules
from tests.compile_factories import make_compile
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_answer, json_spec, text_answer, text_spec
from tests.workers.pipeline_helpers import ScriptedTeacher, candidates, start, step, taught_by, walk_through
from workers.training.observations import rules_of

pytestmark = pytest.mark.usefixtures("committed_db")
TO_LABELING = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION, StepName.LABELING)
ON = {"enabled": True, "rules": True}


@pytest.fixture
def tenant(committed_db: None) -> Any:
    return make_tenant()


def labeled(tenant: Any, monkeypatch: pytest.MonkeyPatch, label: Any, **spec: Any) -> Compile:
    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make_compile(tenant, **spec)
    walk_through(start(row), *TO_LABELING)
    return row


def observed(row: Compile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = get_jsonl(
        row.tenant_id, step(row, StepName.LABELING).output["digests"]["observations"]
    )
    return rows


def test_the_valid_samples_of_each_accepted_answer_are_kept_as_they_are_trained(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [f"```json\n{json_answer(text)}\n```", json_answer(text), "{}"]

    row = labeled(tenant, monkeypatch, label, **json_spec(recipes=ON, train={"kind": "causal"}))
    found = observed(row)
    accepted = [one.answer for one in candidates(row, state__in=("trained", "left_out"))]
    assert [one["output"] for one in found[: len(accepted)]] == accepted
    assert all(one["samples"] == [one["output"]] * 2 for one in found[: len(accepted)])
    dataset = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    texts = {one.text for one in candidates(row)}
    gold = [one for one in dataset if one["input"] not in texts]
    assert found[len(accepted) :] == [
        {"input": one["input"], "output": one["output"], "samples": [one["output"]]} for one in gold
    ]
    text_of = {one.answer: one.text for one in candidates(row, state__in=("trained", "left_out"))}
    assert all(one["input"] == text_of[one["output"]] for one in found[: len(accepted)])


def test_samples_that_differ_are_all_kept(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [text_answer(text), f"{text_answer(text)} Sorry.", "as an AI I cannot"]

    row = labeled(tenant, monkeypatch, label, **text_spec(recipes=ON))
    first = observed(row)[0]
    assert first["samples"] == [first["output"], f"{first['output']} Sorry."] or first["samples"] == [
        first["output"].removesuffix(" Sorry."),
        first["output"],
    ]


def test_answers_longer_than_what_votes_hold_are_kept_whole(tenant, monkeypatch):
    long = " ".join(f"word{i}" for i in range(60))
    spec = text_spec(recipes=ON, output={"type": "text", "max_chars": 2_000})
    row = labeled(tenant, monkeypatch, lambda text: [long, long, long + " end"], **spec)
    assert observed(row)[0]["samples"] == [long, long, long + " end"]


def test_answers_of_an_earlier_compile_are_observed_by_their_votes(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [json_answer(text)] * 3

    labeled(tenant, monkeypatch, label, **json_spec(recipes=ON, train={"kind": "causal"}))
    row = labeled(tenant, monkeypatch, label, **json_spec(recipes=ON, train={"kind": "causal"}))
    assert step(row, StepName.LABELING).output["facts"]["n_labeled_before"] > 0
    assert all(len(one["samples"]) == 3 for one in observed(row)[:6])


def test_labels_of_a_causal_base_are_observed_and_those_of_an_encoder_are_not(tenant, monkeypatch):
    turns: dict[str, int] = {}

    def label(text: str) -> list[str]:
        # every second one that is asked about: which texts are among the picks is decided by the threads that ask
        one, other = ("refund", "other") if turns.setdefault(text, len(turns)) % 2 else ("other", "refund")
        return [one] * 4 + [other]

    row = labeled(tenant, monkeypatch, label, train={"kind": "causal"})
    for one in observed(row)[:4]:
        assert (len(one["samples"]), one["samples"].count(one["output"])) == (5, 4)
    row = labeled(tenant, monkeypatch, label)
    assert "observations" not in step(row, StepName.LABELING).output["digests"]


def test_a_spec_without_recipes_or_rules_leaves_neither(tenant, monkeypatch):
    row = labeled(tenant, monkeypatch, lambda text: [json_answer(text)] * 3, **json_spec())
    output = step(row, StepName.LABELING).output
    assert not {"observations", "rules"} & set(output["digests"])
    assert output["facts"]["rules"] is None


def messages(n: int) -> list[Candidate]:
    """Half of them name what they want in a word that decides it."""
    openings = ("hello", "good day", "hi there", "dear team", "excuse me")
    endings = ("thanks", "please hurry", "for order", "about item", "from last week")
    rows = []
    for i in range(n):
        is_refund = i % 2 == 0
        wish = "send my money back" if is_refund else "where is the parcel"
        text = f"{openings[i % 5]} {wish} {endings[i // 5 % 5]} {i * 7919 % 100_003}"
        rows.append(Candidate(text=text, text_key=str(i), label="refund" if is_refund else "other"))
    return rows


def test_rules_come_of_the_pairs_and_give_no_held_out_text_away(tenant):
    run = start(make_compile(tenant))
    rows = messages(600)
    digest, facts = rules_of(run, rows, [], [row.text for row in rows[:50]])
    assert facts is not None
    assert facts["n_rules"] >= 1
    rules = read_rules(get_blob(run.tenant_id, digest))
    answer = compile_rules(rules)
    assert answer("please send my money back") == "refund"
    assert answer("something else entirely") is None
    fewer, told = rules_of(run, rows, [], [row.text for row in rows])
    assert (fewer, told["n_rules"] if told else None) == ("", 0)


def test_too_few_pairs_give_no_rules(tenant):
    digest, facts = rules_of(start(make_compile(tenant)), messages(12), [], [])
    assert (digest, facts["n_rules"] if facts else None) == ("", 0)


def test_the_least_precision_is_the_specs(tenant):
    noisy = messages(600)
    for row in noisy[::7]:
        row.label = "other" if row.label == "refund" else "refund"
    strict = start(make_compile(tenant, recipes={"min_rule_precision": 0.95}))
    lax = start(make_compile(tenant, recipes={"min_rule_precision": 0.6}))
    assert rules_of(strict, noisy, [], [])[0] == ""
    assert rules_of(lax, noisy, [], [])[0]
