"""The quality card: what stands on it is what was measured and billed, and the break-even is reckoned by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.alternatives import AlternativeName, compare_marks, label_alternatives
from backend.domain.evaluation.classification import PPM, evaluate
from backend.domain.evaluation.generative import evaluate_json
from backend.domain.evaluation.quality_card import (
    Basis,
    Place,
    QualityCard,
    Spent,
    TeacherCost,
    WhyNot,
    break_even,
    quality_card,
)
from backend.domain.spec.outputs import JsonOutput

TRUTHS = ["a"] * 6 + ["b"] * 4
OURS = ["a"] * 6 + ["b"] * 2 + ["a"] * 2  # 8 of 10
FROZEN = ["a"] * 5 + ["b"] * 5  # 9 of 10
JSON = JsonOutput(type="json", schema={"type": "object", "properties": {"x": {"type": "integer"}}})
STUDENT = Spent(answer_us=5_000, nanousd=750)
HEAD = Spent(answer_us=4_000, nanousd=600)
TEACHER = TeacherCost(nanousd=30_750, n_calls=10, basis=Basis.HELD_OUT, answer_us=420_000)


def card(**changes: Any) -> QualityCard:
    alternatives = label_alternatives(
        TRUTHS, OURS, {AlternativeName.FROZEN: FROZEN}, n_trained={AlternativeName.FROZEN: 48}
    )
    beside = label_alternatives(TRUTHS, OURS, {AlternativeName.TEACHER: TRUTHS})[1:]
    values: dict[str, Any] = {
        "task_type": "label",
        "evaluation": evaluate(("a", "b"), TRUTHS, OURS),
        "alternatives": (*alternatives, *beside),
        "student": STUDENT,
        "head": HEAD,
        "teacher": TEACHER,
        "compile_microusd": 60_000,
        "price_version": "2026-11-22",
    }
    return quality_card(**values | changes)


def rows_of(made: QualityCard) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in made.to_json()["rows"]}


def test_each_row_has_its_accuracy_with_interval_its_time_and_its_price():
    rows = rows_of(card())
    assert list(rows) == ["student", "teacher", "frozen_encoder_logistic_regression", "majority"]
    assert rows["student"] == {
        "name": "student",
        "words": "the student",
        "n": 10,
        "accuracy_ppm": 800_000,
        "low_ppm": 490_162,  # Wilson of 8 in 10
        "high_ppm": 943_318,
        "answer_us": 5_000,
        "time_kind": "own",
        "per_1000_microusd": 750,
    }
    assert (rows["teacher"]["accuracy_ppm"], rows["teacher"]["low_ppm"]) == (PPM, 722_467)  # Wilson of 10 in 10
    assert (rows["teacher"]["answer_us"], rows["teacher"]["time_kind"]) == (420_000, "request")
    frozen = rows["frozen_encoder_logistic_regression"]
    assert (frozen["accuracy_ppm"], frozen["n_trained"], frozen["answer_us"]) == (900_000, 48, 4_000)
    assert (rows["majority"]["accuracy_ppm"], rows["majority"]["per_1000_microusd"]) == (600_000, 0)


def test_the_compile_has_paid_for_itself_where_both_sides_have_cost_the_same():
    on_runner, at_home = card().break_even
    # 60,000 micro-USD over 30,000 nano-USD an answer, and over 30,750
    assert (on_runner.place, on_runner.calls, on_runner.per_1000_microusd) == (Place.RUNNER, 2_000, 750)
    assert (at_home.place, at_home.calls, at_home.per_1000_microusd) == (Place.HOME, 1_952, 0)


def test_a_student_that_is_not_cheaper_never_pays_and_a_teacher_without_a_price_says_nothing():
    dear = card(student=Spent(answer_us=250_000, nanousd=37_500)).break_even
    assert [(one.calls, one.why_not) for one in dear] == [(None, WhyNot.NOT_CHEAPER), (1_952, None)]
    free = card(teacher=TeacherCost(nanousd=0, n_calls=3, basis=Basis.LABELING)).break_even
    assert [one.why_not for one in free] == [WhyNot.NOT_CHEAPER, WhyNot.NOT_CHEAPER]
    unknown = card(teacher=None)
    assert [one.why_not for one in unknown.break_even] == [WhyNot.NO_PRICE, WhyNot.NO_PRICE]
    assert (unknown.teacher_basis, rows_of(unknown)["teacher"]["per_1000_microusd"]) == (None, None)


def test_a_teacher_that_was_asked_no_held_out_input_has_a_price_and_no_accuracy():
    labels = TeacherCost(nanousd=28_000, n_calls=40, basis=Basis.LABELING)
    made = card(teacher=labels, alternatives=label_alternatives(TRUTHS, OURS, {}))
    row = rows_of(made)["teacher"]
    assert (row["n"], row["accuracy_ppm"], row["answer_us"], row["per_1000_microusd"]) == (0, None, None, 28_000)
    assert (made.teacher_basis, made.n_teacher_calls) == (Basis.LABELING, 40)


def test_what_was_not_measured_is_none():
    rows = rows_of(card(head=None))
    frozen = rows["frozen_encoder_logistic_regression"]
    assert (frozen["answer_us"], frozen["per_1000_microusd"], frozen["time_kind"]) == (None, None, None)


def test_labels_drawn_at_random_stand_beside_the_pairs_that_train():
    both = {AlternativeName.FROZEN: FROZEN, AlternativeName.FROZEN_RANDOM: TRUTHS}
    fitted = {AlternativeName.FROZEN: 48, AlternativeName.FROZEN_RANDOM: 12}
    rows = rows_of(card(alternatives=label_alternatives(TRUTHS, OURS, both, n_trained=fitted)))
    fair = rows["frozen_encoder_random_labels"]
    assert (fair["n_trained"], fair["accuracy_ppm"], fair["answer_us"]) == (12, PPM, 4_000)


def test_a_json_task_has_the_accuracy_that_it_defines():
    gold, answers = ['{"x": 1}', '{"x": 2}'], ['{"x": 1}', "{}"]
    evaluation = evaluate_json(JSON, gold, answers, passed=[True, True])
    alternatives = [compare_marks(AlternativeName.BASE, [PPM, 0], [0, 0])]
    made = card(task_type="json", evaluation=evaluation, alternatives=alternatives, head=None)
    rows = rows_of(made)
    assert (made.accuracy_kind, rows["student"]["accuracy_ppm"]) == (JSON.accuracy, evaluation.accuracy_ppm)
    assert (rows["base_constrained"]["accuracy_ppm"], rows["base_constrained"]["answer_us"]) == (0, None)


def test_a_card_can_be_signed_and_amounts_below_nothing_are_refused():
    assert canonical_json(card().to_json())
    with pytest.raises(InvalidInput):
        card(compile_microusd=-1)


@given(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_break_even_is_the_first_answer_that_makes_up_for_the_compile(spent: int, ours: int, theirs: int) -> None:
    calls = break_even(Place.RUNNER, spent, ours, theirs).calls
    if calls is None:
        assert theirs <= ours
        return
    assert spent * 1000 + calls * ours <= calls * theirs
    assert calls == 0 or spent * 1000 + (calls - 1) * ours > (calls - 1) * theirs
