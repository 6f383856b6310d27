"""Where all different answers of a teacher train, each counts by its share of its input's valid ones."""

import math
from collections import defaultdict
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import make_compile, small_spec
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_answer, json_spec, text_answer, text_spec
from tests.workers.pipeline_helpers import ScriptedTeacher, candidates, start, step, taught_by, walk_through
from workers.labeling.samples import causal_pairs

pytestmark = pytest.mark.usefixtures("committed_db")
TO_LABELING = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION, StepName.LABELING)
ALL = {"train": {"causal": {"samples": "all"}}}


@pytest.fixture
def tenant(committed_db: None) -> Any:
    return make_tenant()


def labeled(tenant: Any, monkeypatch: pytest.MonkeyPatch, label: Any, **spec: Any) -> Compile:
    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make_compile(tenant, **spec)
    walk_through(start(row), *TO_LABELING)
    return row


def blob(row: Compile, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"][name])
    return rows


def by_input(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    answers: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        answers[row["input"]][row["output"]] = row["weight"]
    return dict(answers)


def long_texts(text: str) -> list[str]:
    """Two answers that differ behind what votes show, and one that a check refuses."""
    long = " ".join(f"word{i}" for i in range(60))
    return [f"{long} end", f"{long} close", f"{long} as an AI", f"{long} end"]


def test_every_different_valid_answer_trains_by_its_share_and_gold_as_it_is(tenant, monkeypatch):
    output = text_spec()["output"] | {"max_chars": 2_000}
    sampling = text_spec()["sampling"] | {"label_samples": 4}
    row = labeled(tenant, monkeypatch, long_texts, **text_spec(output=output, sampling=sampling, **ALL))
    trained, pairs = by_input(blob(row, "completions")), blob(row, "dataset")
    texts = {one.text for one in candidates(row, state="trained")}
    assert len(texts) == 6
    end, close = (long_texts("")[i] for i in (0, 1))
    for pair in pairs:
        shares = {end: 2 / 3, close: 1 / 3} if pair["input"] in texts else {pair["output"]: 1.0}
        assert trained[pair["input"]] == pytest.approx(shares)
    assert set(trained) == {pair["input"] for pair in pairs}
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["n_samples"] == sum(map(len, trained.values())) == facts["n_pairs"] + 6


def test_a_json_value_that_is_spelt_in_two_ways_is_one_answer(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [f"```json\n{json_answer(text)}\n```", json_answer(text), "{}"]

    row = labeled(tenant, monkeypatch, label, **json_spec(**ALL))
    assert sorted(blob(row, "completions"), key=str) == sorted(blob(row, "dataset"), key=str)


def test_the_answers_that_an_earlier_compile_had_train_too(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [text_answer(text), f"{text_answer(text)} Sorry.", text_answer(text)]

    first, second = (labeled(tenant, monkeypatch, label, **text_spec(**ALL)) for _ in range(2))
    reused = {one.text for one in candidates(second, state="trained") if one.known_answers}
    assert reused
    for text, answers in by_input(blob(second, "completions")).items():
        if text in reused:
            assert answers == by_input(blob(first, "completions"))[text]
            assert (len(answers), math.fsum(answers.values())) == (2, pytest.approx(1.0))


def test_answers_of_another_compile_are_told_by_their_votes_where_these_are_whole(tenant):
    run = start(make_compile(tenant, **text_spec(**ALL)))
    row = Candidate(text="a", text_key="a" * 64, answer="one", votes={"one": 3, "two": 1})
    pair = {"input": "a", "output": "one", "weight": 2.0}
    split = [pair | {"weight": 1.5}, pair | {"output": "two", "weight": 0.5}]
    assert causal_pairs(run, [row], [pair]) == split
    row.votes = {"x" * 200: 2}
    assert causal_pairs(run, [row], [pair]) == [pair]


def test_by_default_the_answer_that_is_most_like_all_trains_alone(tenant, monkeypatch):
    row = labeled(tenant, monkeypatch, lambda text: [json_answer(text)] * 3, **json_spec())
    output = step(row, StepName.LABELING).output
    assert "completions" not in output["digests"]
    assert "n_samples" not in output["facts"]


def test_a_label_task_has_one_label_an_input():
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(small_spec(train={"kind": "causal", "causal": {"samples": "all"}}))
    assert [(one.pointer, one.code) for one in refused.value.problems] == [("/train/causal/samples", "not_used")]
