"""A model beside what else could have answered: differences row by row, and when the gate refuses for them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.alternatives import (
    Alternative,
    AlternativeName,
    compare_marks,
    label_alternatives,
    worst_rival,
)
from backend.domain.evaluation.classification import PPM, evaluate
from backend.domain.evaluation.gate import GateDecision, decide_gate
from backend.domain.evaluation.gate_floors import OF_ACCURACY, FloorName, GateOptions
from backend.domain.evaluation.generative import evaluate_json, json_marks, typical_answer
from backend.domain.evaluation.kscore import AnyEvaluation, KScore, score_evaluation
from backend.domain.evaluation.paired import compare, mean_difference
from backend.domain.number_words import points
from backend.domain.spec.outputs import JsonOutput
from tests.backend.domain.evaluation.scores import own

LABELS = ("a", "b")
ANSWERS = st.sampled_from(LABELS)
ROWS = st.lists(st.tuples(ANSWERS, ANSWERS, ANSWERS), min_size=1, max_size=60)
MARKS = st.lists(st.tuples(st.integers(0, PPM), st.integers(0, PPM)), min_size=2, max_size=60)
EASY = {"accuracy_lower": 0.0, "worst_class_recall": 0.0, "k_min": 0.0, "min_heldout": 1}
JSON = JsonOutput(type="json", schema={"type": "object", "properties": {"x": {"type": "integer"}}})


def scored(evaluation: AnyEvaluation) -> KScore:
    return score_evaluation(evaluation, size_bytes=1000, own=own(1000), cost_nanousd=1, p50_us=1000)


def of_rows(model: int, theirs: int, n: int = 100) -> tuple[list[str], list[str], list[str]]:
    """Truths, and the answers of two that are right in so many rows; the better one is right wherever the other is."""
    truths = ["a", "b"] * (n // 2)
    wrong = {"a": "b", "b": "a"}
    ours, others = ([t if i < right else wrong[t] for i, t in enumerate(truths)] for right in (model, theirs))
    return truths, ours, others


def decided(model: int, theirs: int, name: AlternativeName = AlternativeName.FROZEN, **options: Any) -> GateDecision:
    truths, ours, others = of_rows(model, theirs)
    evaluation = evaluate(LABELS, truths, ours)
    alternatives = label_alternatives(truths, ours, {name: others})
    return decide_gate(GateOptions(**EASY | options), evaluation, scored(evaluation), alternatives=alternatives)


@given(ROWS)
def test_of_labels_the_interval_is_the_paired_one_and_the_constant_answer_the_best_there_is(
    rows: list[tuple[str, str, str]],
) -> None:
    truths, ours, theirs = ([row[i] for row in rows] for i in range(3))
    majority, frozen = label_alternatives(truths, ours, {AlternativeName.FROZEN: theirs})
    paired = compare(truths, ours, theirs)
    assert (frozen.low_ppm, frozen.high_ppm, frozen.difference_ppm) == (
        paired.low_ppm,
        paired.high_ppm,
        paired.difference_ppm,
    )
    assert majority.marks_ppm == PPM * max(truths.count(label) for label in LABELS)
    assert (
        majority.model_marks_ppm
        == frozen.model_marks_ppm
        == PPM * sum(t == o for t, o in zip(truths, ours, strict=True))
    )
    assert not (frozen.is_clearly_better and frozen.difference_ppm >= 0)


@given(MARKS)
def test_of_marks_the_mean_difference_is_in_its_interval_which_turns_with_the_sides(
    rows: list[tuple[int, int]],
) -> None:
    first, second = [one for one, _ in rows], [other for _, other in rows]
    low, high = mean_difference(first, second)
    assert -PPM <= low <= high <= PPM
    assert low - 1 <= (sum(first) - sum(second)) / len(rows) <= high + 1
    assert mean_difference(second, first) == (-high, -low)


def test_fewer_than_two_rows_say_nothing() -> None:
    assert mean_difference([3], [5]) == (-PPM, PPM)
    assert mean_difference([], []) == (-PPM, PPM)
    assert label_alternatives([], [], {}) == ()
    with pytest.raises(InvalidInput):
        mean_difference([1, 2], [1])


def test_a_model_that_is_clearly_worse_than_its_frozen_base_is_not_published() -> None:
    decision = decided(80, 95)
    assert (decision.passed, decision.first_failed) == (False, FloorName.ALTERNATIVES)
    (floor,) = [one for one in decision.floors if one.name is FloorName.ALTERNATIVES]
    assert floor.message.startswith(
        "clearly worse than logistic regression on the frozen base, same pairs: 80.0 % beside"
    )
    assert (floor.unit, floor.required, floor.measured < 0) == ("points", 0, True)
    assert "The adaptation made it worse: halve train.learning_rate" in decision.next_step
    assert decision.next_step.endswith("say gate.alternatives: report.")
    assert [one["name"] for one in decision.to_json()["alternatives"]] == ["majority", AlternativeName.FROZEN]


@pytest.mark.parametrize(
    ("model", "theirs", "options"),
    [(92, 95, {}), (95, 80, {}), (80, 80, {}), (80, 95, {"alternatives": "report"})],
    ids=["a difference that may be luck", "better", "the same", "asked to report alone"],
)
def test_it_is_published_where_that_is_not_so(model: int, theirs: int, options: dict[str, Any]) -> None:
    decision = decided(model, theirs, **options)
    assert decision.passed
    has_floor = FloorName.ALTERNATIVES in [floor.name for floor in decision.floors]
    assert has_floor is ("alternatives" not in options)
    assert len(decision.alternatives) == 2, "they are shown either way"


def test_gold_alone_that_does_better_blames_the_teachers_pairs() -> None:
    decision = decided(70, 90, AlternativeName.GOLD_ONLY)
    assert decision.first_failed is FloorName.ALTERNATIVES
    assert "The teacher's pairs made it worse" in decision.next_step


@pytest.mark.parametrize("name", [AlternativeName.TEACHER, AlternativeName.BASE])
def test_what_costs_more_than_the_model_is_shown_and_decides_nothing(name: AlternativeName) -> None:
    assert decided(60, 100, name).passed


def test_what_was_not_measured_is_no_floor() -> None:
    truths, ours, _ = of_rows(90, 0)
    evaluation = evaluate(LABELS, truths, ours)
    decision = decide_gate(GateOptions(**EASY), evaluation, scored(evaluation))
    assert decision.passed
    assert FloorName.ALTERNATIVES not in [floor.name for floor in decision.floors]


def test_no_larger_rank_is_tried_for_a_model_that_is_worse_than_its_base() -> None:
    assert FloorName.ALTERNATIVES not in OF_ACCURACY


def test_a_json_task_is_held_to_its_most_typical_answer() -> None:
    gold = ['{"x": 1}'] * 30 + ['{"x": 2}'] * 10
    bad = ['{"x": 2}'] * 40
    assert typical_answer(gold) == '{"x": 1}'
    evaluation = evaluate_json(JSON, gold, bad, passed=[True] * 40)
    ours, theirs = json_marks(JSON, gold, bad, passed=[True] * 40), json_marks(JSON, gold, ['{"x": 1}'] * 40)
    rival = compare_marks(AlternativeName.COMMON_ANSWER, ours, theirs)
    decision = decide_gate(GateOptions(**EASY), evaluation, scored(evaluation), alternatives=[rival])
    assert decision.first_failed is FloorName.ALTERNATIVES
    assert "take a larger train.causal.base" in decision.next_step
    waived = decide_gate(GateOptions(**EASY, beat_majority=False), evaluation, scored(evaluation), alternatives=[rival])
    assert waived.passed, "who need not beat a constant answer is not held to one"


def test_marks_of_json_answers_are_those_of_the_evaluation() -> None:
    gold, answers = ['{"x": 1}', '{"x": 2}', '{"x": 3}'], ['{"x": 1}', '{"x": "2"}', "no"]
    assert json_marks(JSON, gold, answers) == [PPM, 0, 0], "held to the schema"
    assert json_marks(JSON, gold, answers, passed=[False, True, True]) == [0, 0, 0]
    passed = [True, True, False]
    evaluation = evaluate_json(JSON, gold, answers, passed=passed)
    assert sum(json_marks(JSON, gold, answers, passed=passed)) == evaluation.marks_ppm
    assert typical_answer([]) is None


def test_the_clearest_rival_decides() -> None:
    def one(name: AlternativeName, high: int) -> Alternative:
        return Alternative(name=name, n=9, marks_ppm=0, model_marks_ppm=0, low_ppm=-PPM, high_ppm=high)

    both = [one(AlternativeName.FROZEN, 5), one(AlternativeName.GOLD_ONLY, -3), one(AlternativeName.TEACHER, -9)]
    assert worst_rival(both) == both[1]
    assert worst_rival(both[2:]) is None
    assert points(-1) == "-0.0"
