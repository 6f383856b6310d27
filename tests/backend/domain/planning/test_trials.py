"""Which trial comes next, and which model is judged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.evaluation.gate_floors import FloorName
from backend.domain.planning.trial_records import TrialRecord
from backend.domain.planning.trials import (
    Trial,
    TrialKind,
    TrialOutcome,
    TrialReason,
    best,
    first_trial,
    most_trials,
    next_trial,
)
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.spec.test_parsing import document


def spec(**train: Any) -> Spec:
    return parse_spec(document(train=train))


def json_spec(**train: Any) -> Spec:
    inline = [{"input": f"order {i}", "output": {"order": i}} for i in range(80)]
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}}
    return parse_spec(document(output={"type": "json", "schema": schema}, examples={"inline": inline}, train=train))


def outcome(trial: Trial, k: int = 700_000, **more: Any) -> TrialOutcome:
    missed = {"passed": False, "first_failed": None if more.get("passed") else "accuracy_lower"}
    return TrialOutcome(trial=trial, k_score_ppm=k, **(missed | more))


def trial(kind: str, rank: int = 8, why: str = "first") -> Trial:
    return Trial(kind=TrialKind(kind), rank=rank, alpha=2 * rank, why=TrialReason(why))


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (spec(), "encoder"),
        (spec(kind="encoder"), "encoder"),
        (spec(kind="causal"), "causal"),
        (spec(kind="auto"), "encoder"),
        (json_spec(), "spans"),
        (json_spec(kind="auto"), "spans"),
        (json_spec(kind="spans"), "spans"),
        (json_spec(causal={"rank": 4}), "causal"),
        (json_spec(kind="causal"), "causal"),
    ],
)
def test_the_first_trial_is_what_the_spec_asks_for(made: Spec, kind: str) -> None:
    assert first_trial(made).kind == kind
    assert first_trial(made).why == "first"


def test_a_json_task_that_is_no_extraction_begins_with_a_causal_base() -> None:
    assert first_trial(json_spec(), extracts=False).kind is TrialKind.CAUSAL
    assert first_trial(json_spec(kind="auto"), extracts=False).kind is TrialKind.CAUSAL
    assert next_trial(json_spec(kind="auto"), [outcome(trial("causal"))], 10**6).why is TrialReason.ESCALATION  # type: ignore[union-attr]


def test_spans_and_a_causal_base_compete_where_the_spec_says_auto() -> None:
    made = json_spec(kind="auto")
    second = next_trial(made, [outcome(first_trial(made), passed=True)], 10**6)
    assert second == Trial(kind=TrialKind.CAUSAL, rank=8, alpha=16, why=TrialReason.AUTO)
    assert best([outcome(first_trial(made), 700_000), outcome(second, 700_001)]) == 1
    assert best([outcome(first_trial(made), 700_000), outcome(second, 700_000)]) == 0


def test_a_missed_gate_is_answered_with_twice_the_rank_once() -> None:
    made = json_spec()
    first = first_trial(made)
    second = next_trial(made, [outcome(first)], 10**6)
    assert second == Trial(kind=TrialKind.SPANS, rank=32, alpha=64, why=TrialReason.ESCALATION)
    assert next_trial(made, [outcome(first), outcome(second)], 10**6) is None


@pytest.mark.parametrize("floor", list(FloorName))
def test_a_larger_rank_is_tried_only_where_accuracy_or_a_class_or_field_is_what_fails(floor: FloorName) -> None:
    made = json_spec()
    following = next_trial(made, [outcome(first_trial(made), first_failed=floor)], 10**6)
    assert (following is None) == (floor in {"k_min", "heldout_size", "alternatives"})


@pytest.mark.parametrize(
    ("made", "done", "money"),
    [
        (json_spec(), {"passed": True}, 10**6),
        (json_spec(escalate=False), {}, 10**6),
        (json_spec(causal={"rank": 32}), {}, 10**6),
        (json_spec(), {"first_failed": "beat_baseline", "accuracy_ppm": 1_000_000}, 10**6),
        (json_spec(), {}, 0),
        (json_spec(), {"cost_microusd": 500}, 500),
        (json_spec(), {"failure": "runner_failed"}, 10**6),
        (spec(rank=4), {}, 10**6),
    ],
)
def test_nothing_follows_a_pass_a_wish_perfection_a_failure_or_an_empty_purse(
    made: Spec, done: Any, money: int
) -> None:
    assert next_trial(made, [outcome(first_trial(made), **done)], money) is None


def test_auto_measures_both_kinds_and_then_escalates_the_better() -> None:
    made = spec(kind="auto")
    first = outcome(first_trial(made), 900_000, passed=True)
    second = next_trial(made, [first], 10**6)
    assert second is not None
    assert (second.kind, second.rank, second.why) == ("causal", 8, "auto")
    assert next_trial(made, [first, outcome(second)], 10**6) is None
    done = [outcome(first_trial(made), 700_000), outcome(second, 800_000)]
    third = next_trial(made, done, 10**6)
    assert third is not None
    assert (third.kind, third.rank) == ("causal", 16)
    failed = [outcome(first_trial(made), 700_000), outcome(second, 0, failure="out_of_memory")]
    third = next_trial(made, failed, 10**6)
    assert third is not None
    assert (third.kind, third.rank) == ("encoder", 16)


@pytest.mark.parametrize(
    ("outcomes", "index"),
    [
        ([outcome(trial("encoder"), 1), outcome(trial("causal"), 2)], 1),
        ([outcome(trial("encoder"), 9), outcome(trial("causal"), 2, passed=True)], 1),
        ([outcome(trial("causal"), 5), outcome(trial("encoder"), 5)], 1),
        ([outcome(trial("causal", 16), 5), outcome(trial("causal", 8), 5)], 1),
        ([outcome(trial("encoder"), 5), outcome(trial("encoder"), 5)], 0),
        ([outcome(trial("encoder"), 1), outcome(trial("causal"), 9, failure="x")], 0),
    ],
)
def test_the_best_is_what_passes_then_scores_then_costs_less(outcomes: list[TrialOutcome], index: int) -> None:
    assert best(outcomes) == index


def test_of_failures_none_is_the_best() -> None:
    with pytest.raises(ValueError, match="No trial"):
        best([outcome(trial("encoder"), failure="x")])


@given(
    st.sampled_from([spec(), spec(kind="auto"), spec(kind="auto", rank=4), json_spec(), json_spec(escalate=False)]),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 10**6), st.sampled_from(["", "", "boom"])), min_size=9, max_size=9
    ),
)
def test_there_are_never_more_trials_than_was_said_and_they_survive_their_json(made: Spec, results: Any) -> None:
    done: list[TrialOutcome] = []
    following: Trial | None = first_trial(made)
    while following is not None:
        passed, k, failure = results[len(done)]
        done.append(TrialOutcome(trial=following, passed=passed and not failure, k_score_ppm=k, failure=failure))
        assert TrialOutcome.from_json(done[-1].to_json()) == done[-1]
        following = next_trial(made, done, 10**9)
    assert len(done) <= most_trials(made) <= 3


def test_a_frozen_head_is_not_tried_with_another_rank() -> None:
    assert (most_trials(spec(student="frozen")), most_trials(spec())) == (1, 2)
    made = spec()
    assert next_trial(made, [outcome(first_trial(made))], 10**6) is not None
    assert next_trial(made, [outcome(first_trial(made), student="frozen")], 10**6) is None


def test_a_record_keeps_its_student_and_one_without_shows_none() -> None:
    first = first_trial(spec())
    standing = {"student": "frozen", "n": 9, "correct": 8}
    made = outcome(first, student="frozen", competition=[standing])
    ended = TrialRecord(trial=first, jobs={}, evals="e" * 64, outcome=made)
    assert TrialRecord.from_json(ended.to_json()) == ended
    assert (ended.summary()["student"], ended.summary()["competition"]) == ("frozen", [standing])
    assert "student" not in TrialRecord(trial=first, jobs={}, outcome=outcome(first)).summary()
