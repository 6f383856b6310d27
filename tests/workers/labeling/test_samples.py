"""Where all different answers of a teacher train, each counts by its share of its input's valid ones."""

import math
import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Compile
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.domain.planning.trials import first_trial
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import make_compile, small_spec
from tests.factories import make_tenant
from tests.workers.answer_helpers import (
    at_distillation,
    json_answer,
    json_spec,
    text_answer,
    text_spec,
)
from tests.workers.pipeline_helpers import ScriptedTeacher, candidates, start, step, taught_by, walk_through
from workers.labeling.samples import causal_pairs
from workers.teachers.protocol import Choice, Completion, CompletionRequest
from workers.training.trial_jobs import distill_offer

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
    completions, pairs = by_input(blob(row, "completions")), blob(row, "dataset")
    texts = {one.text for one in candidates(row, state="trained")}
    assert len(texts) == 6
    end, close = (long_texts("")[i] for i in (0, 1))
    for pair in pairs:
        shares = {end: 2 / 3, close: 1 / 3} if pair["input"] in texts else {pair["output"]: 1.0}
        assert completions[pair["input"]] == pytest.approx(shares)
    assert set(completions) == {pair["input"] for pair in pairs}
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["n_samples"] == sum(map(len, completions.values())) == facts["n_pairs"] + 6


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
        parse_spec(small_spec(train={"kind": "causal", "causal": {"samples": "all", "soft_targets": "top20"}}))
    found = [(one.pointer, one.code) for one in refused.value.problems]
    assert found == [(f"/train/causal/{name}", "not_used") for name in ("samples", "soft_targets")]


class FluentTeacher(ScriptedTeacher):
    """Tells the likeliest words at each place of its answers to inputs, three of them under one text."""

    def complete(self, request: CompletionRequest, **options: Any) -> Completion:
        completion = super().complete(request, **options)
        if request.item is None:
            return completion
        return replace(completion, choices=tuple(map(self._with_places, completion.choices)))

    def _with_places(self, choice: Choice) -> Choice:
        tokens = tuple(re.findall(r"\s*\S+", choice.text))
        top = tuple(((token, -0.1), ("\ufffd", -3.0), ("\ufffd", -3.0)) for token in tokens)
        return replace(choice, tokens=tokens, top_logprobs=top)


def test_answers_train_with_the_distributions_of_their_tokens_where_they_are_as_they_were_written(tenant, monkeypatch):
    """The JSON has its fields in another order than it is trained in."""
    for kind, answer, n in (("text", text_answer, 6), ("json", json_answer, 0)):
        taught_by(monkeypatch, teacher := FluentTeacher(label=lambda text: [answer(text)] * 3))  # noqa: B023
        spec = (text_spec if kind == "text" else json_spec)(train={"causal": {"soft_targets": "top20"}})
        row = make_compile(tenant, **spec)
        walk_through(start(row), *TO_LABELING)
        asked = [one for one in teacher.asked if one.item is not None]
        assert {(one.top_logprobs, one.least_probability) for one in asked} == {(20, 1e-4)}
        soft = [one for one in blob(row, "completions") if "soft_targets" in one]
        assert step(row, StepName.LABELING).output["facts"]["n_soft_targets"] == len(soft) == n
        for one in soft:
            assert "".join(token for token, _ in one["soft_targets"]) == one["output"]
            both = round(math.log(2 * math.exp(-3.0)), 4)
            assert all(top == {token: -0.1, "\ufffd": both} for token, top in one["soft_targets"])
        without = [{name: one[name] for name in ("input", "output", "weight")} for one in blob(row, "completions")]
        assert without == blob(row, "dataset")


def test_no_likeliest_tokens_are_asked_for_unless_they_are_learnt(tenant, monkeypatch):
    taught_by(monkeypatch, teacher := FluentTeacher(label=lambda text: [json_answer(text)] * 3))
    walk_through(start(make_compile(tenant, **json_spec())), *TO_LABELING)
    assert {one.top_logprobs for one in teacher.asked} == {0}


def test_a_runner_of_the_release_before_reads_the_job_of_a_spec_without_soft_targets(tenant):
    run = start(at_distillation(json_answer, tenant=tenant, **json_spec(train={"causal": {"rank": 4}})))
    assert "soft_weight" not in distill_offer(run, first_trial(run.spec)).payload["options"]
    spec = json_spec(train={"causal": {"soft_targets": "top20", "soft_weight": 0.25}})
    run = start(at_distillation(json_answer, tenant=tenant, **spec))
    assert distill_offer(run, first_trial(run.spec)).payload["options"]["soft_weight"] == 0.25
