"""What a spec, its gold and its prices decide by themselves."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.evaluation.classification import evaluate
from backend.domain.evaluation.gate import decide_gate
from backend.domain.evaluation.gate_floors import K_MIN_OF, GateOptions
from backend.domain.evaluation.kscore import score_evaluation
from backend.domain.money.vendor_prices import NO_PRICES, read_prices, shipped_prices
from backend.domain.planning.estimates import estimate
from backend.domain.planning.preflight.lines import LineStatus
from backend.domain.planning.preflight.spec_lines import budget_line, gate_lines, gold_line, price_lines
from backend.domain.spec.gold import GoldSplit, split_gold
from backend.domain.spec.inputs import Example
from backend.domain.spec.parsing import Spec, parse_spec
from tests.backend.domain.evaluation.scores import own
from tests.backend.domain.spec.test_parsing import document

TODAY = date(2026, 11, 26)
VENDOR = {"provider": "openai_compatible", "base_url": "https://api.openai.com/v1", "model": "gpt-5-mini"}


def spec_of(**changes: Any) -> Spec:
    return parse_spec(document(**changes))


def halves(n: int) -> Counter[str]:
    return Counter({"refund": n - n // 2, "other": n // 2})


def gold_of(n_heldout: int, **facts: Any) -> GoldSplit[Example]:
    heldout = tuple(Example(input=f"text {i}", output="refund") for i in range(n_heldout))
    return GoldSplit(train=(), heldout=heldout, n_duplicates=0, **facts)


def test_gold_is_counted_against_the_gates_least() -> None:
    spec = spec_of()
    assert gold_line(spec, gold_of(20)).status is LineStatus.PASSED
    short = gold_line(spec, gold_of(19))
    assert (short.status, short.code) == (LineStatus.FAILED, "too_few_heldout")
    assert "examples.holdout" in short.what_to_do


def test_gold_that_the_spec_holds_out_by_name_is_told_with_what_is_left_out_for_it() -> None:
    line = gold_line(spec_of(), gold_of(20, is_named=True, n_left_out=2))
    assert line.status is LineStatus.PASSED
    assert "20 gold examples are held out, as the spec names them" in line.sentence
    assert "2 others share a text or a group with them, and do not train" in line.sentence
    named = tuple(Example(input=f"text {i}", output="refund", split="heldout") for i in range(19))
    short = gold_line(spec_of(), GoldSplit(train=(), heldout=named, n_duplicates=0, is_named=True))
    assert '"split": "heldout"' in short.what_to_do
    assert "holdout" not in short.what_to_do


@pytest.mark.parametrize(("floor", "n_heldout", "enough"), [(0.80, 12, 16), (0.90, 20, 35), (0.99, 100, 381)])
def test_a_gate_that_no_model_passes_on_so_little_gold_is_named_with_what_is_enough(floor, n_heldout, enough) -> None:
    spec = spec_of(gate={"accuracy_lower": floor, "min_heldout": 5})
    (line,) = gate_lines(spec, heldout=halves(n_heldout))
    assert (line.status, line.code) == (LineStatus.FAILED, "gate_unreachable")
    assert f"Hold out {enough} examples or more" in line.what_to_do
    (line,) = gate_lines(spec, heldout=halves(enough))
    assert line.status is LineStatus.PASSED
    (line,) = gate_lines(spec, heldout=halves(enough - 1))
    assert line.status is LineStatus.FAILED


def test_an_accuracy_of_one_is_reached_by_nothing() -> None:
    (line,) = gate_lines(spec_of(gate={"accuracy_lower": 1.0}), heldout=halves(1000))
    assert (line.status, line.what_to_do) == (LineStatus.FAILED, "Lower gate.accuracy_lower.")


def test_a_k_score_beyond_the_smallest_adapter_is_the_specs_own_refusal() -> None:
    (line,) = gate_lines(spec_of(gate={"k_min": 0.99}), heldout=halves(40))
    assert (line.status, line.code) == (LineStatus.FAILED, "gate_unreachable")
    assert line.what_to_do == "Change /gate/k_min."


@pytest.mark.parametrize(
    ("gate", "heldout", "code", "todo"),
    [
        ({}, {"refund": 40}, "no_heldout_for_label", "gate.worst_class_recall to 0"),
        ({"worst_class_recall": 0}, {"refund": 40}, "no_heldout_for_label", "gate.beat_majority to false"),
        ({"worst_class_recall": 0, "beat_majority": False}, {"refund": 40}, "", ""),
        ({}, {"refund": 39, "other": 1}, "", ""),
    ],
)
def test_a_label_of_which_nothing_is_held_out_cannot_pass_the_gate(gate, heldout, code, todo) -> None:
    (line,) = gate_lines(spec_of(gate=gate), heldout=Counter(heldout))
    assert (line.status, line.code) == (LineStatus.FAILED if code else LineStatus.PASSED, code)
    assert todo in line.what_to_do
    if code:
        assert "other" in line.what_to_do


def examples_of(sizes: Mapping[str, Sequence[int]]) -> list[dict[str, str]]:
    """Gold of each label in groups of these sizes."""
    return [
        {"input": f"{label} {nth} {i}", "output": label, "group": f"{label}-{nth}"}
        for label, groups in sizes.items()
        for nth, size in enumerate(groups)
        for i in range(size)
    ]


@given(
    st.fixed_dictionaries({name: st.lists(st.integers(1, 3), min_size=1, max_size=12) for name in "abc"}),
    st.fixed_dictionaries(
        {
            "worst_class_recall": st.sampled_from([0, 0.5, 1]),
            "beat_majority": st.booleans(),
            "accuracy_lower": st.sampled_from([0.3, 0.6, 0.8]),
        }
    ),
    st.sampled_from([0.2, 0.5]),
)
@settings(max_examples=50)
def test_where_the_lines_pass_a_model_without_a_mistake_passes_the_gate(sizes, gate, holdout) -> None:
    labels = [{"name": name} for name in sizes]
    examples = {"inline": examples_of(sizes), "holdout": holdout}
    spec = spec_of(output={"type": "label", "labels": labels}, examples=examples, gate=gate | {"min_heldout": 1})
    split = split_gold(spec.examples.inline, salt=b"salt", holdout=holdout)
    truths = [example.output for example in split.heldout]
    evaluation = evaluate(list(sizes), truths, truths, confidence=spec.gate.confidence)
    score = score_evaluation(evaluation, size_bytes=300_000, own=own(5_000), cost_nanousd=200, p50_us=9_000)
    options = GateOptions(**spec.gate.model_dump() | {"k_min": K_MIN_OF["encoder"]})
    lines = [gold_line(spec, split), *gate_lines(spec, heldout=Counter(truths))]
    passes = all(line.status is LineStatus.PASSED for line in lines)
    assert passes == decide_gate(options, evaluation, score).passed, lines


def prices_of(spec: Spec, today: date = TODAY) -> list[Any]:
    return price_lines(spec, estimate(spec, today=today), today=today, tables=(NO_PRICES, shipped_prices()))


def test_a_price_that_is_known_is_told_with_its_day() -> None:
    (line,) = prices_of(spec_of(teacher=VENDOR))
    assert line.status is LineStatus.PASSED
    assert "as of" in line.sentence


def test_a_price_table_of_last_year_is_a_warning() -> None:
    spec = spec_of(teacher=VENDOR)
    listing = estimate(spec).teacher.main.listing
    (line,) = prices_of(spec, today=listing.as_of + timedelta(days=366))
    assert (line.status, line.code) == (LineStatus.WARNING, "old_price")
    assert str(listing.as_of) in line.sentence
    assert line.what_to_do == "Check it, or declare teacher.price."


def test_a_price_of_zero_is_a_warning_and_names_what_the_table_has() -> None:
    free = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    (line,) = prices_of(spec_of(teacher=VENDOR | {"price": free}))
    assert (line.status, line.code) == (LineStatus.WARNING, "zero_price")
    assert "price table has $" in line.sentence
    own = {"provider": "openai_compatible", "base_url": "http://gpu7:8000/v1", "model": "qwen3", "price": free}
    (line,) = prices_of(spec_of(teacher=own))
    assert (line.status, line.code) == (LineStatus.WARNING, "zero_price")
    assert "price table" not in line.sentence
    assert "qwen3 is free, as the spec declares" in line.sentence
    assert "qwen3 is free: its calls are counted and booked at 0, so no budget stops them" in (
        estimate(spec_of(teacher=own)).assumptions
    )


def test_a_row_that_the_operator_marks_free_is_free_without_a_doubt() -> None:
    row = {"host": "gpu7:8000", "model": "qwen3", "input_usd_per_mtok": "0", "output_usd_per_mtok": "0", "free": True}
    rows = [row | {"as_of": TODAY.isoformat(), "source": "our own servers"}]
    table = read_prices(json.dumps({"prices": rows}).encode(), origin="operator")
    spec = spec_of(teacher={"provider": "openai_compatible", "base_url": "http://gpu7:8000/v1", "model": "qwen3"})
    priced = estimate(spec, today=TODAY, operator=table)
    (line,) = price_lines(spec, priced, today=TODAY, tables=(table, shipped_prices()))
    assert line.status is LineStatus.PASSED
    assert "qwen3: free, gpu7:8000 as of" in line.sentence
    assert (priced.warnings, priced.worst_batch) == ((), 0)


@pytest.mark.parametrize(("output", "is_doubted"), [(6e-7, True), (0.0009, True), (0.001, False), (0.02, False)])
def test_a_price_for_one_token_is_doubted(output: float, is_doubted: bool) -> None:
    priced = {"input_usd_per_mtok": output / 4, "output_usd_per_mtok": output}
    spec = spec_of(teacher=VENDOR | {"price": priced})
    lines = prices_of(spec)
    assert [line.code for line in lines] == (["tiny_price"] if is_doubted else [""])
    assert bool(estimate(spec, today=TODAY).warnings) is is_doubted
    if is_doubted:
        assert lines[0].what_to_do == "Declare teacher.price in US dollars per million tokens."


def test_a_fallback_models_price_has_a_line_of_its_own() -> None:
    assert len(prices_of(spec_of(teacher=VENDOR | {"fallback_model": "gpt-5-nano"}))) == 2


def test_the_price_of_a_reward_has_a_line_of_its_own_and_its_own_place_in_the_spec() -> None:
    free = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    reward = {"kind": "reward", "base_url": "https://rewards.example.com/v1", "model": "judge-1", "price": free}
    length = {"kind": "length", "min_chars": 2}
    teacher, priced = prices_of(spec_of(teacher=VENDOR, verifiers=[length, reward]))
    assert teacher.status is LineStatus.PASSED
    assert (priced.status, priced.code) == (LineStatus.WARNING, "zero_price")
    assert "judge-1" in priced.sentence
    assert "verifiers[1].price" in priced.what_to_do
    assert len(prices_of(spec_of(teacher=VENDOR, verifiers=[{"kind": "reward"}]))) == 1, "the teacher's own"


def test_a_confidence_next_to_certainty_is_reached_by_little_gold() -> None:
    (line,) = gate_lines(spec_of(gate={"confidence": 0.9999999999999999}), heldout=halves(40))
    assert (line.status, line.code) == (LineStatus.FAILED, "gate_unreachable")


def test_a_budget_is_refused_below_the_least_and_doubted_below_the_expected_cost() -> None:
    expected = estimate(spec_of())
    (line,) = budget_line(expected, 1)
    assert (line.status, line.code) == (LineStatus.FAILED, "budget_below_estimate")
    (line,) = budget_line(expected, expected.total.high)
    assert line.status is LineStatus.PASSED
    (line,) = budget_line(replace(expected, worst_batch=0), expected.total.expected - 1)
    assert (line.status, line.code) == (LineStatus.WARNING, "budget_below_expected")
    (line,) = budget_line(replace(expected, worst_batch=0), expected.total.expected)
    assert line.status is LineStatus.PASSED
