"""The Wilson interval, and the gate's table of verdicts and of advice."""

import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import Evaluation, evaluate, interval_ppm, wilson_interval
from backend.domain.evaluation.gate import decide_gate
from backend.domain.evaluation.gate_floors import FloorName, GateOptions
from backend.domain.evaluation.kscore import KScore, score_evaluation
from backend.domain.evaluation.means import Means
from backend.domain.evaluation.next_steps import correct_needed, heldout_needed
from backend.domain.number_words import percent
from tests.backend.domain.evaluation.scores import own

counts = st.integers(0, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
SMALL = {"size_bytes": 300_000, "own": own(5_000), "cost_nanousd": 200, "p50_us": 9_000}


def measured(confusion: dict[str, dict[str | None, int]], **fields: object) -> Evaluation:
    """An evaluation from {truth: {prediction: count}}."""
    rows = [(truth, p) for truth, answers in confusion.items() for p, c in answers.items() for _ in range(c)]
    return evaluate(list(confusion), [t for t, _ in rows], [p for _, p in rows], **fields)


def good(n: int = 100) -> Evaluation:
    return measured({"refund": {"refund": n - 1, "exchange": 1}, "exchange": {"exchange": n}})


def decided(evaluation: Evaluation, score: KScore | None = None, *, rank: int = 1, **options: object):
    return decide_gate(GateOptions(**options), evaluation, score or score_evaluation(evaluation, **SMALL), rank=rank)


# --- intervals


@given(counts.filter(lambda c: c[1] > 0), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys(count: tuple[int, int], confidence: float) -> None:
    theirs = binomtest(*count).proportion_ci(confidence, method="wilson")
    assert wilson_interval(*count, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe 1998, table I, method 3; and the 11 of 11 of kolm's own artifact
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (11, 11, 0.7412, 1.0),
    ],
)
def test_wilson_gives_the_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(counts)
def test_an_interval_in_ppm_is_rounded_outwards_and_holds_the_proportion(count: tuple[int, int]) -> None:
    low, high = interval_ppm(*count)
    assert 0 <= low <= wilson_interval(*count)[0] * 1e6 + 1e-6
    assert wilson_interval(*count)[1] * 1e6 - 1e-6 <= high <= 1_000_000
    if count[1]:
        assert low <= count[0] * 1_000_000 // count[1] <= high


def test_nothing_measured_leaves_everything_possible() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    for wrong in ((3, 2), (-1, 2)):
        with pytest.raises(InvalidInput):
            wilson_interval(*wrong)
    with pytest.raises(InvalidInput):
        wilson_interval(1, 2, 1.0)


# --- the evaluation


def test_the_table_of_classes_counts_recall_precision_and_confusions() -> None:
    e = measured(
        {"refund": {"refund": 6, "exchange": 3, None: 1}, "exchange": {"exchange": 4, "hello": 1}, "other": {}}
    )
    refund, exchange, other = e.per_class
    assert (refund.n, refund.predicted, refund.correct, refund.recall_ppm, refund.precision_ppm) == (
        10,
        6,
        6,
        600_000,
        1_000_000,
    )
    assert (exchange.n, exchange.predicted, exchange.recall_ppm, exchange.precision_ppm) == (5, 7, 800_000, 571_428)
    assert (other.n, other.recall_ppm, other.precision_ppm, other.recall_low_ppm, other.recall_high_ppm) == (
        0,
        None,
        None,
        0,
        1_000_000,
    )
    assert (refund.recall_low_ppm, refund.recall_high_ppm) == interval_ppm(6, 10)
    assert [(c.truth, c.predicted, c.count) for c in e.confusions] == [
        ("refund", "exchange", 3),
        ("exchange", "", 1),
        ("refund", "", 1),
    ]
    assert (e.n, e.correct, e.answered, e.accuracy_ppm) == (15, 10, 13, 666_666)
    assert (e.majority.correct, e.majority.accuracy_ppm) == (10, 666_666)
    assert e.worst_class is other


def test_baselines_stand_beside_the_model() -> None:
    e = evaluate(
        ["a", "b"], ["a", "a", "b"], ["a", "a", "b"], baselines={"frozen": ["a", "b", "b"], "none": [None] * 3}
    )
    assert [(b.name, b.correct, b.n) for b in e.baselines] == [("majority", 2, 3), ("frozen", 2, 3), ("none", 0, 3)]


def test_rows_that_do_not_match_are_refused() -> None:
    for truths, predictions, baselines in ((["a"], [], {}), (["a"], ["a"], {"x": []}), (["c"], ["a"], {})):
        with pytest.raises(InvalidInput):
            evaluate(["a", "b"], truths, predictions, baselines=baselines)


# --- the gate


def test_a_good_model_passes_every_floor_and_needs_no_next_step() -> None:
    decision = decided(good())
    assert decision.passed
    assert (decision.first_failed, decision.next_step) == (None, "")
    assert [f.name for f in decision.floors] == [
        "heldout_size",
        "accuracy_lower",
        "beat_majority",
        "worst_class_recall",
        "k_min",
    ]


@pytest.mark.parametrize(
    ("evaluation", "score", "options", "failed", "advice"),
    [
        (good(4), None, {}, "heldout_size", r"8 were held out and at least 20 must be; .* takes 110. That is 102 more"),
        (
            measured({"a": {}, "b": {}}),
            None,
            {},
            "heldout_size",
            r"0 were held out and at least 20 must be. That is 20",
        ),
        # 27 of 30 is 90 %, its bound 74 %: too few to tell
        (
            measured({"a": {"a": 14, "b": 1}, "b": {"b": 13, "a": 2}}),
            None,
            {},
            "accuracy_lower",
            r"Add 32 held-out gold examples: the accuracy of 90.0 % is high enough, but 30 .* 80.0 %; 62 at",
        ),
        # 170 of 200 would do, and so would 115 more examples: another compile is cheaper
        (
            measured({"a": {"a": 84, "b": 16}, "b": {"b": 83, "a": 17}}),
            None,
            {"accuracy_lower": 0.79},
            "accuracy_lower",
            r"A near miss: 3 more right of 200 would do. First raise sampling.n_candidates",
        ),
        (
            measured({"a": {"a": 95, "b": 5}, "b": {"b": 60, "a": 38, None: 2}}, n_trained={"a": 40, "b": 40}),
            None,
            {},
            "accuracy_lower",
            r"17 more right of 200 .* Add about 160 training examples of 'b' \(40 of 100 wrong, 38 .* as 'a'\)",
        ),
        (
            measured({"a": {"a": 30}}),
            None,
            {"accuracy_lower": 0.95},
            "accuracy_lower",
            r"Add \d+ held-out gold|even a perfect model",
        ),
        (
            measured({"no": {"no": 95}, "yes": {"no": 5}}),
            None,
            {},
            "beat_majority",
            r"no better than always answering 'no'. Raise the shares of the other labels, first 'yes'. Add about 10",
        ),
        (
            measured({"a": {"a": 190}, "b": {"b": 3, "a": 7}}),
            None,
            {},
            "worst_class_recall",
            r"'b' needs 2 more right of 10. Add about 14 .* as 'a'\): captures, a larger share, or a slice whose hint",
        ),
        (
            measured({"a": {"a": 190}, "b": {"b": 3}, "c": {}}),
            None,
            {},
            "worst_class_recall",
            "Add gold examples of 'c': none is held out",
        ),
        (
            measured({"a": {"a": 190}, "b": {"b": 1, "a": 3}}),
            None,
            {},
            "worst_class_recall",
            "rests on 4 held-out examples only",
        ),
    ],
)
def test_the_first_failing_floor_decides_the_advice(evaluation, score, options, failed: str, advice: str) -> None:
    decision = decided(evaluation, score, **options)
    assert not decision.passed
    assert decision.first_failed == failed
    assert re.search(advice, decision.next_step), decision.next_step


def test_a_k_score_too_low_for_its_size_asks_for_a_smaller_rank_that_does_close_the_gap() -> None:
    evaluation = measured({"a": {"a": 95, "b": 5}, "b": {"b": 95, "a": 5}})
    large = score_evaluation(evaluation, **(SMALL | {"size_bytes": 2**29}))
    decision = decided(evaluation, large, k_min=0.89, rank=64)
    assert decision.first_failed is FloorName.K_MIN
    assert decision.next_step.startswith("Shrink it from 536,870,912 to ")
    assert "(lower train.rank from 64)" in decision.next_step
    target = int(decision.next_step.split(" to ")[1].split(" bytes")[0].replace(",", ""))
    assert decided(evaluation, score_evaluation(evaluation, **(SMALL | {"size_bytes": target})), k_min=0.89).passed
    more = score_evaluation(evaluation, **(SMALL | {"size_bytes": target + target // 1000}))
    assert not decided(evaluation, more, k_min=0.89).passed
    of_rank_2 = decided(evaluation, large, k_min=0.89, rank=2).next_step
    assert "Shrink" not in of_rank_2


@pytest.mark.parametrize("slow", [{"own": own(400_000)}, {"cost_nanousd": 30_000_000}])
def test_what_a_call_takes_is_never_the_advice_but_what_the_customer_can_change_of_it(slow: dict) -> None:
    evaluation = measured({"a": {"a": 99, "b": 1}, "b": {"b": 99, "a": 1}})
    text = decided(evaluation, score_evaluation(evaluation, **(SMALL | slow)), k_min=0.95).next_step
    assert re.search(r"smaller train.base, or let more rules answer|lower train.rank|train.rank", text), text
    assert not re.search(r"latency from|cost from|nano-USD| us\b|runner", text)


def test_a_label_task_over_a_causal_base_is_advised_of_that_bases_options() -> None:
    evaluation = measured({"a": {"a": 89, "b": 11}, "b": {"b": 88, "a": 12}})
    score = score_evaluation(evaluation, **SMALL)
    k_min = score.composite_ppm / 1e6 + 0.004
    frozen = decide_gate(GateOptions(k_min=k_min), evaluation, score, means=Means(is_frozen=True)).next_step
    assert "or say train.student: adapter; either costs" in frozen
    text = decide_gate(GateOptions(k_min=k_min), evaluation, score, means=Means(is_causal=True)).next_step
    assert "double train.causal.rank, or take a larger train.causal.base" in text
    large = score_evaluation(evaluation, **(SMALL | {"size_bytes": 2**31}))
    options = GateOptions(k_min=0.85)
    text = decide_gate(options, evaluation, large, rank=64, means=Means(is_causal=True)).next_step
    assert "train.rank" not in text, text


def test_a_gap_that_accuracy_closes_most_easily_asks_for_more_candidates_or_rank() -> None:
    evaluation = measured({"a": {"a": 89, "b": 11}, "b": {"b": 88, "a": 12}})
    score = score_evaluation(evaluation, **SMALL)
    text = decided(evaluation, score, k_min=score.composite_ppm / 1e6 + 0.004).next_step
    assert text.startswith("Get 179 instead of 177 of 200 held-out examples right")
    assert "train.rank" in text


def test_a_gap_no_axis_can_close_says_which_loses_most() -> None:
    evaluation = measured({"a": {"a": 95, "b": 5}, "b": {"b": 95, "a": 5}})
    score = score_evaluation(evaluation, size_bytes=2**35, own=own(10**6), cost_nanousd=10**7, p50_us=1)
    text = decided(evaluation, score, k_min=1.0).next_step
    assert (
        text
        == "No single axis closes the gap. Latency loses most (13.6 % of the score): take a smaller train.base, or let "
        "more rules answer (recipes.rules), or lower gate.k_min."
    )


def test_floors_are_reached_by_equality_but_the_majority_must_be_passed() -> None:
    e = measured({"a": {"a": 50}, "b": {"b": 25, "a": 25}})
    score = score_evaluation(e, **SMALL)
    exact = {"accuracy_lower": e.interval_ppm[0] / 1e6, "worst_class_recall": 0.5, "k_min": score.composite_ppm / 1e6}
    assert decided(e, score, **exact).passed
    assert (
        decided(e, score, **(exact | {"accuracy_lower": (e.interval_ppm[0] + 1) / 1e6})).first_failed
        == "accuracy_lower"
    )
    assert decided(e, score, **(exact | {"k_min": (score.composite_ppm + 1) / 1e6})).first_failed == "k_min"
    constant = measured({"a": {"a": 50}, "b": {"a": 10}})
    lenient = {"accuracy_lower": 0.5, "worst_class_recall": 0.0, "k_min": 0.5}
    assert decided(constant, **lenient).first_failed == "beat_majority"
    assert decided(constant, **lenient, beat_majority=False).passed
    assert FloorName.BEAT_MAJORITY not in [f.name for f in decided(constant, **lenient, beat_majority=False).floors]


def test_a_weak_but_tiny_rule_that_the_k_score_alone_would_pass_is_refused() -> None:
    e = measured({"a": {"a": 70, "b": 30}, "b": {"b": 70, "a": 30}})
    decision = decided(e, score_evaluation(e, size_bytes=10_240, own=own(50), cost_nanousd=0, p50_us=50))
    by_name = {f.name: f.passed for f in decision.floors}
    assert by_name[FloorName.K_MIN]
    assert decision.first_failed is FloorName.ACCURACY_LOWER


@given(st.integers(1, 300), st.data(), st.sampled_from([700_000, 800_000, 950_000]))
def test_the_numbers_in_the_advice_do_what_they_promise(n: int, data: st.DataObject, lower: int) -> None:
    correct = data.draw(st.integers(0, n))
    e = measured({"a": {"a": correct, "b": n - correct}, "b": {}})
    needed = heldout_needed(e, lower)
    if e.interval_ppm[0] < lower and needed is not None:
        assert wilson_interval(correct * needed, n * needed)[0] * 1e6 >= lower  # at exactly this accuracy, and more
        share = correct / n
        z = 1.959963984540054
        low = (share + z * z / (2 * needed) - z * math.sqrt(share * (1 - share) / needed + (z / (2 * needed)) ** 2)) / (
            1 + z * z / needed
        )
        assert low * 1e6 >= lower - 1e-3
    target = correct_needed(e, lower)
    if target is None:
        assert wilson_interval(n, n)[0] * 1e6 < lower
    elif e.interval_ppm[0] < lower:
        assert wilson_interval(target, n)[0] * 1e6 >= lower > wilson_interval(target - 1, n)[0] * 1e6


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.sampled_from(["a", "b", "c", None]), st.integers(0, 30)), min_size=1
    ),
    st.fixed_dictionaries({k: st.floats(0, 1) for k in ("k_min", "accuracy_lower", "worst_class_recall")}),
)
def test_the_verdict_is_that_of_the_floors_and_everything_published_is_integers(confusion: dict, options: dict) -> None:
    decision = decided(measured(confusion), **options)
    assert decision.passed == all(f.passed for f in decision.floors)
    assert (decision.next_step == "") == decision.passed
    assert decision.first_failed == next((f.name for f in decision.floors if not f.passed), None)
    for f in decision.floors:
        if f.name is FloorName.BEAT_MAJORITY:
            assert f.passed <= (f.measured >= f.required)
        else:
            assert f.passed == (f.measured >= f.required)
    json.loads(json.dumps(decision.to_json()), parse_float=lambda s: pytest.fail(f"{s} is a float"))


def test_a_percentage_is_never_rounded_up_past_a_floor() -> None:
    assert (percent(799_999), percent(800_000), percent(0), percent(1_000_000)) == (
        "79.9 %",
        "80.0 %",
        "0.0 %",
        "100.0 %",
    )


def test_a_gate_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput):
        GateOptions(k_min=1.5)
    with pytest.raises(InvalidInput):
        replace(GateOptions(), accuracy_lower=float("nan"))
