"""Accuracy, intervals, fields and the gate of json and text tasks."""

import json
import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.json_values import field_scores, is_exact
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import interval_ppm, wilson_interval
from backend.domain.evaluation.gate import decide_gate
from backend.domain.evaluation.gate_floors import FloorName, GateOptions
from backend.domain.evaluation.generative import GenerativeEvaluation, Verdict, evaluate_json, evaluate_text, verdict_of
from backend.domain.evaluation.kscore import k_score, score_evaluation
from backend.domain.evaluation.means import Means
from backend.domain.evaluation.own_time import Unit
from backend.domain.spec.parsing import JsonOutput, TextOutput
from tests.backend.domain.answers.json_worlds import objects
from tests.backend.domain.evaluation.scores import own

OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
SMALL = {"size_bytes": 300_000, "own": own(5_000, Unit.TOKEN), "cost_nanousd": 200, "p50_us": 9_000}


def output(**changed: Any) -> JsonOutput:
    return JsonOutput.model_validate({"type": "json", "schema": OPEN, **changed})


def texts(values: list[Any]) -> list[str]:
    return [json.dumps(value) for value in values]


def measured(gold: list[Any], answers: list[Any], *, passed: list[bool] | None = None, **more: Any) -> Any:
    accuracy = more.pop("accuracy", "field_f1")
    return evaluate_json(
        output(accuracy=accuracy), texts(gold), texts(answers), passed=passed or [True] * len(gold), **more
    )


pairs = st.lists(st.tuples(objects, objects, st.booleans()), min_size=1, max_size=12)


@given(pairs, st.sampled_from(["field_f1", "exact"]))
def test_the_accuracy_is_the_mean_mark_of_the_valid_answers(rows: list[Any], accuracy: str) -> None:
    gold, answers, ok = ([row[i] for row in rows] for i in range(3))
    e = measured(gold, answers, passed=ok, accuracy=accuracy)
    marks = [
        (1_000_000 * is_exact(a, g) if accuracy == "exact" else field_scores(a, g).f1_ppm) if valid else 0
        for g, a, valid in rows
    ]
    assert e.accuracy_ppm == sum(marks) // len(rows)
    assert (e.answered, e.validity_ppm) == (sum(ok), sum(ok) * 1_000_000 // len(rows))
    low, high = e.interval_ppm
    assert 0 <= low <= e.accuracy_ppm <= high <= 1_000_000
    if accuracy == "exact":
        assert (low, high) == interval_ppm(e.correct, e.n)
    json.loads(json.dumps(e.to_json()), parse_float=lambda text: pytest.fail(f"{text} is a float"))


@given(pairs)
def test_the_fields_add_up_to_the_rows(rows: list[Any]) -> None:
    gold, answers, ok = ([row[i] for row in rows] for i in range(3))
    e = measured(gold, answers, passed=ok)
    sums = [field_scores(a if valid else None, g) for g, a, valid in rows]
    assert sum(row.correct for row in e.per_class) == sum(s.tp for s in sums)
    assert sum(row.predicted - row.correct for row in e.per_class) == sum(s.fp for s in sums)
    assert sum(row.n - row.correct for row in e.per_class) == sum(s.fn for s in sums)
    for row in e.per_class:
        both = row.n + row.predicted
        assert row.f1_ppm == (2_000_000 * row.correct // both if both else 1_000_000)
        assert (row.recall_low_ppm, row.recall_high_ppm) == interval_ppm(row.correct, row.n)


def test_the_interval_of_mean_f1_holds_the_true_mean_as_often_as_it_says() -> None:
    """Credits between 0 and 1 whose mean is known, 2,000 times 40 of them."""
    rng = np.random.default_rng(5)
    for a, b in ((8.0, 2.0), (0.6, 0.4), (30.0, 30.0)):
        means = rng.beta(a, b, size=(2_000, 40)).mean(axis=1)
        held = [low <= a / (a + b) <= high for low, high in (wilson_interval(40 * m, 40) for m in means)]
        assert sum(held) / len(held) >= 0.95


def test_an_answer_that_is_not_valid_has_no_credit_whatever_it_says() -> None:
    e = measured([{"a": 1}] * 2, [{"a": 1}, {"a": 1}], passed=[True, False])
    assert (e.accuracy_ppm, e.answered, e.correct) == (500_000, 1, 1)
    cut = evaluate_json(output(), ['{"a": 1}'], ['{"a": '], passed=[True])
    assert (cut.accuracy_ppm, cut.answered) == (0, 0)


def test_a_baseline_is_held_to_the_schema_alone() -> None:
    strict = output(schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    gold = texts([{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}])
    e = evaluate_json(strict, gold, gold, passed=[True] * 4, baselines={"base": ['{"a": 1}', '{"a": "2"}', "no", "{}"]})
    assert [(b.name, b.correct, b.n, b.accuracy_ppm) for b in e.baselines] == [("base", 1, 4, 250_000)]


@pytest.mark.parametrize(
    ("student_first", "gold_first", "verdict"),
    [
        ("a", "b", "win"),
        ("a", "tie", "win"),
        ("tie", "b", "win"),
        ("a", "a", "tie"),
        ("b", "b", "tie"),
        ("tie", "tie", "tie"),
        ("b", "a", "loss"),
        ("tie", "a", "loss"),
        ("b", "tie", "loss"),
        (None, None, "loss"),
        (None, "tie", "loss"),
        (None, "b", "tie"),
        ("a", None, "tie"),
        ("nonsense", "b", "tie"),
    ],
)
def test_a_win_takes_both_orders_or_one_and_a_tie(student_first: Any, gold_first: Any, verdict: str) -> None:
    assert verdict_of(student_first, gold_first) == verdict


def test_a_judged_text_task_counts_wins_and_ties_that_pass_the_checks() -> None:
    wins = [Verdict.WIN, Verdict.TIE, Verdict.LOSS, None, Verdict.WIN]
    e = evaluate_text(
        TextOutput(type="text"), ["a b"] * 5, ["a b", "a", "x", "", "a b"], passed=[True] * 4 + [False], wins=wins
    )
    assert (e.n, e.correct, e.answered, e.accuracy_ppm) == (5, 2, 4, 400_000)
    assert e.counts == {
        "n_win": 2,
        "n_tie": 1,
        "n_loss": 2,
        "mean_rouge_l_ppm": (1_000_000 + 666_666 + 0 + 0 + 1_000_000) // 5,
    }
    assert (e.baselines, e.per_class, e.worst_field) == ((), (), None)


def test_a_checked_text_task_counts_passes_beside_those_of_the_base() -> None:
    spec = TextOutput(type="text", accuracy="checks")
    e = evaluate_text(spec, ["a"] * 3, ["b"] * 3, passed=[True, True, False], baselines={"base": [True, False, False]})
    assert (e.accuracy_ppm, e.answered) == (666_666, 2)
    assert [(b.correct, b.accuracy_ppm) for b in e.baselines] == [(1, 333_333)]


def test_rows_that_do_not_match_and_gold_that_is_no_answer_are_refused() -> None:
    for gold, answers, passed, baselines in (
        (["{}"], [], [True], {}),
        (["{}"], ["{}"], [], {}),
        (["{}"], ["{}"], [True], {"base": []}),
        (["no"], ["{}"], [True], {}),
    ):
        with pytest.raises(InvalidInput):
            evaluate_json(output(), gold, answers, passed=passed, baselines=baselines)
    with pytest.raises(InvalidInput):
        evaluate_text(TextOutput(type="text"), ["a"], ["a"], passed=[True])


# --- K-score and gate


def orders(n: int, wrong: int, *, seed: int = 1) -> tuple[list[Any], list[Any]]:
    """Gold of three fields, and answers of which `wrong` have another `total`."""
    rng = random.Random(seed)
    gold = [{"order": f"AB-{i}", "total": rng.randrange(100), "kind": "refund"} for i in range(n)]
    return gold, [g | ({"total": g["total"] + 1} if i < wrong else {}) for i, g in enumerate(gold)]


def decided(e: GenerativeEvaluation, score: Any = None, **options: Any) -> Any:
    return decide_gate(GateOptions(**options), e, score or score_evaluation(e, **SMALL))


def test_the_k_score_takes_the_accuracy_and_the_share_of_valid_answers() -> None:
    gold, answers = orders(40, 10)
    e = measured(gold, answers, passed=[i > 0 for i in range(40)])
    score = score_evaluation(e, **SMALL)
    assert (score.accuracy_ppm, score.coverage_ppm) == (e.accuracy_ppm, 975_000)
    exact = measured(gold, answers, passed=[i > 0 for i in range(40)], accuracy="exact")
    assert score_evaluation(exact, **SMALL) == k_score(accuracy_ppm=750_000, coverage_ppm=975_000, n=40, **SMALL)


def test_a_good_model_passes_the_floors_of_its_kind() -> None:
    gold, answers = orders(100, 4)
    decision = decided(measured(gold, answers, baselines={"base_constrained": texts([{}] * 100)}))
    assert decision.passed
    assert decision.next_step == ""
    assert [f.name for f in decision.floors] == [
        "heldout_size",
        "accuracy_lower",
        "beat_baseline",
        "worst_field_f1",
        "k_min",
    ]
    assert "base constrained" in decision.floors[2].message
    assert "'/total' (96 right of 100)" in decision.floors[3].message
    text = evaluate_text(TextOutput(type="text"), ["a"] * 60, ["a"] * 60, passed=[True] * 60, wins=["tie"] * 60)
    assert [f.name for f in decided(text).floors] == ["heldout_size", "accuracy_lower", "k_min"]


CHECKED = TextOutput.model_validate(
    {"type": "text", "accuracy": "checks", "checks": [{"kind": "length", "max_chars": 300}]}
)


def failing(**parts: Any) -> Any:
    gold, answers = orders(parts.get("n", 100), parts.get("wrong", 0))
    answers = [parts["change"](i, a) for i, a in enumerate(answers)] if "change" in parts else answers
    passed = [parts["passes"](i) for i in range(len(gold))] if "passes" in parts else [True] * len(gold)
    baselines = {"base_constrained": texts(gold)} if parts.get("rival") else {}
    return measured(gold, answers, passed=passed, baselines=baselines)


@pytest.mark.parametrize(
    ("evaluation", "options", "failed", "advice"),
    [
        (failing(n=8), {}, "heldout_size", r"8 were held out and at least 20 must be"),
        (failing(n=24, wrong=5), {}, "accuracy_lower", r"Add \d+ held-out gold examples: 93.0 % is high enough"),
        (
            failing(passes=lambda i: i % 2 == 0),
            {},
            "accuracy_lower",
            r"50 of 100 answers are not valid .* output.max_tokens",
        ),
        (
            failing(change=lambda i, a: {**a, "total": -1, "kind": "x" if i < 20 else a["kind"]}),
            {},
            "accuracy_lower",
            r"field '/total' loses most: 100 of 100 missed or wrong, 100 given .* train.causal.rank",
        ),
        (failing(rival=True, wrong=1), {}, "beat_baseline", "no better than what it is compared with"),
        (
            evaluate_text(CHECKED, ["a"] * 40, ["a"] * 40, passed=[True] * 40, baselines={"base": [True] * 40}),
            {},
            "beat_baseline",
            "the checks do not tell the model from its base. Add checks, take accuracy: judge",
        ),
        (
            failing(wrong=60),
            {"accuracy_lower": 0.6},
            "worst_field_f1",
            r"field '/total' loses most: 60 of 100",
        ),
        (failing(wrong=10), {"k_min": 0.99}, "k_min", r"No single axis closes the gap|smallest change"),
    ],
)
def test_the_first_failing_floor_decides_the_advice_and_speaks_of_fields(
    evaluation: Any, options: dict[str, Any], failed: str, advice: str
) -> None:
    decision = decided(evaluation, **options)
    assert not decision.passed
    assert decision.first_failed == failed
    assert re.search(advice, decision.next_step), decision.next_step
    assert "label" not in decision.next_step + " ".join(f.message for f in decision.floors)


def test_a_perfect_model_passes_also_where_its_bare_base_is_perfect() -> None:
    decision = decided(failing(rival=True))
    assert decision.passed, decision.next_step
    (floor,) = [floor for floor in decision.floors if floor.name is FloorName.BEAT_BASELINE]
    assert "required at least 100.0 %" in floor.message
    assert "both are perfect, so the base may do without an adapter" in floor.message


def test_the_advice_names_the_options_of_what_was_trained_and_no_rank_that_was_tried() -> None:
    evaluation = failing(change=lambda i, a: {**a, "total": -1})
    score = score_evaluation(evaluation, **SMALL)
    tried = decide_gate(GateOptions(), evaluation, score, means=Means(is_causal=True, ranks=(8, 16))).next_step
    assert "set train.causal.rank above 16" in tried
    assert "double" not in tried
    captures = decide_gate(GateOptions(), evaluation, score, means=Means(is_causal=True, has_slices=False)).next_step
    assert "add captures, double train.causal.rank" in captures
    assert "n_candidates" not in captures


def test_an_accuracy_that_has_to_rise_is_named_by_what_it_is() -> None:
    e = failing(wrong=10)
    score = score_evaluation(e, size_bytes=100, own=own(0, Unit.TOKEN), cost_nanousd=0, p50_us=0)
    decision = decided(e, score, k_min=score.composite_ppm / 1e6 + 0.004)
    assert decision.next_step.startswith("Raise the mean field F1 from 96.6 % to 97.")
    assert "train.causal.rank" in decision.next_step


def test_a_field_of_few_answers_is_shown_and_not_judged() -> None:
    gold = [{"a": i, **({"rare": i} if i < 4 else {})} for i in range(40)]
    e = measured(gold, [{"a": g["a"]} for g in gold])
    assert [(row.label, row.n, row.f1_ppm) for row in e.per_class] == [("/a", 40, 1_000_000), ("/rare", 4, 0)]
    assert e.worst_field is not None
    assert e.worst_field.label == "/a"


@given(pairs, st.fixed_dictionaries({k: st.floats(0, 1) for k in ("k_min", "accuracy_lower", "worst_class_recall")}))
def test_every_verdict_is_that_of_the_floors_and_has_a_next_step(rows: list[Any], options: dict[str, float]) -> None:
    gold, answers, ok = ([row[i] for row in rows] for i in range(3))
    decision = decided(measured(gold, answers, passed=ok, baselines={"base": texts(answers)}), min_heldout=1, **options)
    assert decision.passed == all(f.passed for f in decision.floors)
    assert (decision.next_step == "") == decision.passed
    json.loads(json.dumps(decision.to_json()), parse_float=lambda text: pytest.fail(f"{text} is a float"))
