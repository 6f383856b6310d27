"""An estimate brackets what a compile costs, and a budget that cannot suffice is refused before anything is spent."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.dialects.tools import likely_tool_tokens, most_tool_tokens
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import cost_microusd, price_book
from backend.domain.money.runner_work import WorkSku, base_size_b
from backend.domain.number_words import usd
from backend.domain.planning.estimates import Estimate, check_budget, estimate
from backend.domain.planning.trial_estimates import Trials, answer_tokens, recipes_cost
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import tool_tokens
from backend.domain.spec.parsing import Spec, parse_spec

SENT = json.dumps(normal_schema({"type": "object", "properties": {"a": {"type": "string"}}}))


def spec(**changed: Any) -> Spec:
    labels = [{"name": f"label-{i}"} for i in range(4)]
    inline = [{"input": f"text {i}", "output": f"label-{i % 4}"} for i in range(80)]
    return parse_spec(
        {
            "name": "task",
            "task": "Sort messages.",
            "output": {"type": "label", "labels": labels},
            "examples": {"inline": inline},
            "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
            "plan": "fixed",
            **changed,
        }
    )


@given(
    n=st.integers(1, 60),
    samples=st.integers(1, 9),
    n_captures=st.integers(0, 500),
    n_gold=st.integers(0, 300),
    mean=st.integers(1, 150),
    tokens=st.integers(1, 2000),
)
def test_low_is_at_most_expected_is_at_most_high_in_every_step(
    n: int, samples: int, n_captures: int, n_gold: int, mean: int, tokens: int
) -> None:
    made = estimate(
        spec(sampling={"n_candidates": n, "label_samples": samples}),
        n_captures=n_captures,
        n_gold_train=n_gold,
        n_heldout=n_gold,
        prompt_tokens_candidate=tokens,
        prompt_tokens_label=tokens,
        mean_output_tokens=mean,
    )
    for amount in made.steps.values():
        assert 0 <= amount.low <= amount.expected <= amount.high
    assert made.total.expected == sum(amount.expected for amount in made.steps.values())


def test_expected_is_the_price_of_the_tokens_it_names() -> None:
    """4 slices of 12 candidates are 8 calls (8 + 4 choices each); 16 picks are labelled once, by three answers as the
    first of them are, and a quarter of them once more."""
    made = estimate(spec(), prompt_tokens_candidate=1000, prompt_tokens_label=1000, mean_output_tokens=100)
    candidates = 8 * 1000 * 0.1 + 48 * 100 * 0.4
    embedding = 48 * 102 * 0.01
    assert made.steps[StepName.SYNTHESIS].expected == round(candidates) + round(embedding)
    assert made.steps[StepName.LABELING].expected == round(20 * 1000 * 0.1 + (20 + 2 * 16) * 0.4)  # a word each


@pytest.mark.parametrize(
    ("on_gap", "n_more", "n_named"),
    [
        (["drop_k"], 0, 0),
        (["resynthesize", "drop_k"], 4 * 2 * 6, 0),
        (["split_slice"], 4 * 12, 4),
        (["split_slice", "resynthesize"], 4 * (12 + 2 * 7), 4),
    ],
)
def test_the_high_bound_of_selection_counts_what_on_gap_allows_and_nothing_is_expected(
    on_gap: list[str], n_more: int, n_named: int
) -> None:
    """4 slices of 12: two rounds of 6 (7, where the halves' own are rounded up), 12 for the halves and a naming."""
    sampling = {"on_gap": on_gap}
    sizes = {"prompt_tokens_candidate": 1000, "prompt_tokens_label": 1000, "mean_output_tokens": 100}
    made = estimate(spec(sampling=sampling), **sizes).steps[StepName.SELECTION]
    assert made.low == made.expected == 0
    candidates = 2 * n_more * 1000 * 0.1 + n_more * 300 * 0.4
    naming = n_named * (2 * (1000 + 6 * 500) * 0.1 + 400 * 0.4)
    assert made.high == pytest.approx(candidates + naming + 4 * n_more * 102 * 0.01, abs=2)


def test_without_a_selection_every_candidate_is_labelled_and_trains() -> None:
    """4 slices of 12, or 10 captures, as `method: all` keeps them; K = N = 12 keeps as many."""
    sizes = {"prompt_tokens_label": 1000}
    kept = estimate(spec(sampling={"method": "all"}), **sizes)
    as_many = estimate(spec(sampling={"k_select": 12}), **sizes)
    half = estimate(spec(sampling={"method": "all", "k_distill": "half"}), **sizes)
    chosen = estimate(spec(sampling={"method": "all", "k_distill": 10}), **sizes)
    captured = estimate(spec(sampling={"method": "all"}), n_captures=10)
    assert "48 candidates in 4 slices, 0 captures, 48 picks" in kept.assumptions
    assert "0 candidates in 0 slices, 10 captures, 10 picks" in captured.assumptions
    assert kept.steps[StepName.LABELING] == as_many.steps[StepName.LABELING]
    trained = [made.steps[StepName.DISTILLATION].expected for made in (kept, as_many, half, chosen)]
    assert trained[0] == trained[1] > trained[2] > trained[3]


MODEL = {
    "provider": "openai_compatible",
    "base_url": "https://llm.example.com/v1",
    "model": "m",
    "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 5},
}


def test_a_text_is_counted_by_its_script_and_as_its_teacher_counts() -> None:
    """Of 60 characters each a model reads 17 tokens of English and 30 of Japanese, the encoder 18 and 48."""
    texts = ["refund" * 10, "返金して欲" * 12]
    latin, japanese = (estimate(spec(teacher=MODEL), shown_inputs=[text]).steps for text in texts)
    assert japanese[StepName.LABELING].expected > latin[StepName.LABELING].expected
    assert japanese[StepName.DISTILLATION].expected > 1.2 * latin[StepName.DISTILLATION].expected
    words = estimate(spec(), shown_inputs=[texts[0]]).steps[StepName.LABELING].expected
    assert words == estimate(spec(), shown_inputs=[texts[1]]).steps[StepName.LABELING].expected  # each is one word


def test_answers_of_an_upload_are_counted_as_those_of_the_spec() -> None:
    upload = {"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}
    short, long, unknown = (
        estimate(generative("text", examples=upload), shown_outputs=shown).steps[StepName.LABELING].expected
        for shown in (["one"], ["one two three"], [])
    )
    assert short < long < unknown


def test_captures_without_slices_are_not_synthesised() -> None:
    made = estimate(spec(captures={"inline": ["a"] * 90}), n_captures=90)
    assert made.steps[StepName.SYNTHESIS].expected <= 90
    assert "0 candidates in 0 slices, 90 captures, 30 picks" in made.assumptions


def test_a_declared_price_is_what_is_estimated_with() -> None:
    dear = {"provider": "grammar", "model": "x", "price": {"input_usd_per_mtok": 10, "output_usd_per_mtok": 40}}
    assert (
        estimate(spec(teacher=dear)).steps[StepName.LABELING].expected
        > 50 * estimate(spec()).steps[StepName.LABELING].expected
    )
    with pytest.raises(InvalidSpec) as caught:
        estimate(spec(teacher={"provider": "grammar", "model": "x"}))
    assert caught.value.code == "unknown_teacher_price"


def test_a_vendors_model_is_estimated_by_its_row_with_its_date_and_doubted_when_that_is_long_ago() -> None:
    teacher = {"provider": "openai_compatible", "model": "gpt-4o", "base_url": "https://api.openai.com/v1"}
    made = estimate(spec(teacher=teacher), today=date(2026, 11, 25))
    assert made.warnings == ()
    shown: Any = made.to_json()
    assert shown["teacher_price_version"] == shown["teacher_price"]["version"] == made.teacher.main.version
    assert (shown["teacher_price"]["input_usd_per_mtok"], shown["teacher_price"]["origin"]) == ("2.5", "vendor")
    assert shown["fallback_price"] is None
    (doubt,) = estimate(spec(teacher=teacher), today=date(2028, 1, 1)).warnings
    assert doubt.startswith(f"the price of gpt-4o is of {made.teacher.main.listing.as_of} (https://")


def test_a_dearer_fallback_model_raises_the_high_bound_and_the_widest_batch_and_not_what_is_expected() -> None:
    teacher = {"provider": "openai_compatible", "model": "gpt-4o-mini", "base_url": "https://api.openai.com/v1"}
    alone, both = (estimate(spec(teacher=teacher | more)) for more in ({}, {"fallback_model": "gpt-4o"}))
    synthesis = StepName.SYNTHESIS
    assert both.steps[synthesis].expected == alone.steps[synthesis].expected
    assert both.steps[synthesis].high > 10 * alone.steps[synthesis].high
    assert both.worst_batch > 10 * alone.worst_batch
    assert both.steps[StepName.LABELING] == alone.steps[StepName.LABELING]


def refusal(made: Estimate, budget: int) -> str:
    with pytest.raises(InvalidSpec) as caught:
        check_budget(made, budget)
    assert caught.value.code == "budget_below_estimate"
    assert caught.value.problems[0].pointer == "/budget/usd"
    return caught.value.problems[0].message


def test_a_budget_below_the_low_bound_or_below_one_batch_is_refused() -> None:
    made = estimate(spec())
    least = max(made.total.low, made.worst_batch)
    check_budget(made, least)
    assert usd(least) in refusal(made, least - 1)
    assert "raise budget.usd" in refusal(made, 0)


def test_one_batch_is_what_the_widest_calls_may_cost_at_the_most() -> None:
    """4 calls at once, each 8 choices of at most 500 tokens, every byte of a prompt of 1000 tokens counted as one."""
    made = estimate(spec(), prompt_tokens_candidate=1000, prompt_tokens_label=10)
    assert made.worst_batch == 4 * round(4000 * 0.1 + 8 * 500 * 0.4)


def test_one_batch_is_counted_at_the_dearest_price_that_input_may_have() -> None:
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2, "cache_write_usd_per_mtok": 5}
    teacher = {"provider": "grammar", "model": "x", "price": price}
    made = estimate(spec(teacher=teacher), prompt_tokens_candidate=1000, prompt_tokens_label=10)
    assert made.worst_batch == 4 * (4000 * 5 + 8 * 500 * 2)


def test_the_json_form_has_every_step_and_whole_numbers_only() -> None:
    plain: dict[str, Any] = estimate(spec()).to_json()
    assert [row["step"] for row in plain["steps"]] == [step.value for step in StepName]
    assert all(type(plain["total"][f"{bound}_microusd"]) is int for bound in ("low", "expected", "high"))
    assert plain["assumptions"]


def generative(kind: str, **changed: Any) -> Spec:
    output: dict[str, Any] = {"type": kind}
    if kind == "json":
        output["schema"] = {"type": "object", "properties": {"a": {"type": "string"}}}
    answer = {"a": "x" * 290} if kind == "json" else "y" * 400
    return parse_spec(
        {
            "name": "orders",
            "task": "Answer.",
            "output": output | changed.pop("output", {}),
            "examples": {"inline": [{"input": f"m {i}", "output": answer} for i in range(80)]},
            "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
            **changed,
        }
    )


def test_answers_are_as_long_as_gold_shows_and_at_most_as_long_as_the_spec_allows() -> None:
    assert answer_tokens(generative("json")) == 1 + 100  # {"a": "..."} has 298 characters
    assert answer_tokens(generative("text")) == 1 + 116  # of 400 letters
    assert answer_tokens(generative("text", output={"max_tokens": 50})) == 50
    upload = {"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}
    assert answer_tokens(generative("text", examples=upload)) == 128
    made = estimate(generative("text"), prompt_tokens_label=1000).steps[StepName.LABELING]
    assert made.expected == round(4 * 1000 * 0.1 + 4 * 5 * 0.4)  # the grammar counts words
    assert made.high == round(2 * 4 * 5 * 1000 * 0.1 + 4 * 5 * 512 * 0.4)


def test_the_definition_of_a_tool_is_a_part_of_each_prompt_for_an_answer() -> None:
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 5}
    teacher = {"provider": "openai_compatible", "base_url": "https://llm.example.com/v1", "model": "m", "price": price}

    def made(kind: str, dialect: str) -> Estimate:
        spec = generative(kind, teacher=teacher | {"dialect": dialect, "concurrency": 1})
        assert tool_tokens(spec) == (likely_tool_tokens(SENT) if (kind, dialect) == ("json", "anthropic") else 0)
        return estimate(spec)

    plain, by_tool = made("json", "groq"), made("json", "anthropic")  # both give one choice a call
    n_tokens = round(by_tool.steps[StepName.LABELING].expected - plain.steps[StepName.LABELING].expected)
    assert n_tokens == likely_tool_tokens(SENT) * 4 * 5
    assert by_tool.worst_batch - plain.worst_batch >= most_tool_tokens(SENT)
    assert made("text", "anthropic").steps[StepName.LABELING] == made("text", "groq").steps[StepName.LABELING]


def test_a_judge_is_asked_twice_for_each_held_out_answer_and_for_every_trial_at_the_most() -> None:
    sizes = {"n_heldout": 50, "prompt_tokens_label": 1000}
    judged, checked = (
        estimate(generative("text", output=output, train=train, evaluation={"teacher_rows": 0}), **sizes)
        for output, train in (
            ({}, {}),
            ({"accuracy": "checks", "checks": [{"kind": "length"}]}, {}),
        )
    )
    more = judged.steps[StepName.EVALUATION].expected - checked.steps[StepName.EVALUATION].expected
    assert more == round(100 * 1002 * 0.1 + 200 * 0.4)
    assert judged.platform_high == checked.platform_high  # the judge is the teacher, whose bill is not ours
    once = estimate(generative("text", train={"escalate": False}), **sizes).steps[StepName.EVALUATION]
    assert judged.steps[StepName.EVALUATION].high > 2 * (once.high - checked.steps[StepName.EVALUATION].high)
    assert judged.worst_batch >= 4 * round(4 * 2024 * 0.1 + 8 * 0.4)


def test_every_trial_that_may_follow_stands_in_the_high_bound_and_auto_in_all() -> None:
    fixed, escalating, auto = (
        estimate(spec(train=train), n_gold_train=100, n_heldout=50).steps
        for train in ({"escalate": False}, {}, {"kind": "auto", "escalate": False})
    )
    step = StepName.EVALUATION
    assert escalating[step].expected == fixed[step].expected
    assert escalating[step].high > fixed[step].high + fixed[StepName.DISTILLATION].high
    assert auto[step].low > fixed[step].low
    assert auto[step].expected > fixed[step].expected


def test_a_recipe_pack_is_expected_to_cost_its_base_and_its_budget_of_seconds() -> None:
    step = StepName.EVALUATION
    without, some, long = (
        estimate(generative("text", recipes=recipes), n_heldout=30)
        for recipes in ({"enabled": False}, {"budget_s": 10}, {"budget_s": 70})
    )
    prices = price_book().prices
    a_second, a_job = (cost_microusd(1, prices[sku]) for sku in ("runner.second", "runner.causal_job"))
    assert some.steps[step].expected - without.steps[step].expected == a_job + 10 * a_second
    assert long.steps[step].expected - some.steps[step].expected == 60 * a_second
    assert without.steps[step].low == some.steps[step].low  # none is made below the gate
    assert any("10 s of measuring what drafts" in line for line in some.assumptions)
    for none in (spec(recipes={"budget_s": 600}), generative("text", recipes={"sources": []}), generative("json")):
        assert recipes_cost(none).high == 0


def test_a_larger_base_counts_each_token_more_often() -> None:
    bases = ("kolm-tiny-1", "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct")
    made = [estimate(generative("text", train={"causal": {"base": base}}), n_heldout=30) for base in bases]
    small, usual, large = (one.steps[StepName.DISTILLATION].expected for one in made)
    assert small == usual
    assert large > 10 * usual
    assert any("whatever machine" in line for line in made[1].assumptions)
    assert [base_size_b(name) for name in (*bases, "org/m-1.5b", "llama3b")] == [0.5, 0.5, 7.0, 1.5, 0.5]


def test_training_on_all_samples_is_expected_to_read_as_many_answers_as_differ() -> None:
    """Of a text all three differ, of a JSON value one of the two beside the first; gold has one answer."""
    for kind, times in (("json", 2), ("text", 3)):
        one, every = (
            Trials(
                spec=generative(kind, train={"causal": {"samples": samples}}, sampling={"label_samples": 3}),
                book=price_book(),
                n_heldout=10,
                encoded=9,
                input_tokens=9,
                answer=20,
                n_gold=100,
            )
            for samples in ("consensus", "all")
        )
        of_gold, of_both = (one.work(TrialKind.CAUSAL, n).train[WorkSku.CAUSAL_TRAIN] for n in (100, 1100))
        assert every.work(TrialKind.CAUSAL, 100).train[WorkSku.CAUSAL_TRAIN] == of_gold
        more = every.work(TrialKind.CAUSAL, 1100).train[WorkSku.CAUSAL_TRAIN] - of_gold
        assert more == pytest.approx(times * (of_both - of_gold), rel=0.001)
        assert every.work(TrialKind.CAUSAL, 1100).evaluate == one.work(TrialKind.CAUSAL, 1100).evaluate


@given(
    st.sampled_from(["json", "text"]),
    st.integers(8, 512),
    st.integers(0, 300),
    st.sampled_from([{}, {"escalate": False}, {"causal": {"rank": 4}}]),
)
def test_the_bounds_of_a_generative_task_are_in_order_too(kind: str, most: int, n: int, train: dict[str, Any]) -> None:
    made = estimate(generative(kind, output={"max_tokens": most}, train=train), n_heldout=n, n_gold_train=n)
    for amount in made.steps.values():
        assert 0 <= amount.low <= amount.expected <= amount.high


def captured(**changes: Any) -> Spec:
    return spec(slices=[], captures={"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}, **changes)


def test_a_plan_that_decides_is_expected_to_label_every_input_and_starts_with_few() -> None:
    """1,000 captures: a tenth is labelled in any case; of all, a quarter is expected to be asked once more. 20 of the
    first have two further answers by the same call."""
    made = estimate(captured(plan="auto"), n_captures=1000, prompt_tokens_label=1000)
    fixed = estimate(captured(plan="fixed"), n_captures=1000, prompt_tokens_label=1000)
    named = estimate(captured(plan="auto", sampling={"k_select": 334}), n_captures=1000, prompt_tokens_label=1000)
    expected = 1250 * (1000 * 0.1 + 0.4)
    assert made.steps[StepName.LABELING].expected == round(expected + 2 * 20 * 0.4)
    assert named.steps[StepName.LABELING].expected == fixed.steps[StepName.LABELING].expected < expected / 2
    assert made.steps[StepName.LABELING].low < fixed.steps[StepName.LABELING].low
    assert made.steps[StepName.DISTILLATION].low < fixed.steps[StepName.DISTILLATION].expected
    assert any("100 picks are labelled in any case, 1000 are expected" in line for line in made.assumptions)


def test_candidates_that_a_plan_may_buy_are_in_the_high_bound_and_expected_of_none() -> None:
    """As many again as there are, with their labels and the training on them."""
    train = {"epochs": 7}  # of few pairs, which are else gone over the less often the more they are
    plans = [{"kind": "auto", "more_candidates": buys} for buys in (False, True)]
    one, more = (estimate(spec(plan=plan, train=train)) for plan in plans)
    assert (more.total.low, more.total.expected, more.worst_batch) == (
        one.total.low,
        one.total.expected,
        one.worst_batch,
    )
    doubled = estimate(spec(plan="auto", train=train, sampling={"n_candidates": 2 * spec().sampling.n_candidates}))
    for step in (StepName.LABELING, StepName.DISTILLATION):
        assert more.steps[step].high >= doubled.steps[step].high > one.steps[step].high
    assert more.platform_high is not None
    assert one.platform_high is not None
    assert more.platform_high > one.platform_high
    assert any("plan.more_candidates" in line for line in more.assumptions)


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"kind": "fixed", "more_candidates": True}},
        {"sampling": {"k_select": 10}},
        {"sampling": {"method": "all"}},
        {"slices": [], "captures": {"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}},
    ],
    ids=["fixed plan", "named K", "all are labelled", "captures alone"],
)
def test_no_more_are_written_where_the_plan_cannot_buy_them(changes: dict[str, Any]) -> None:
    auto = {"kind": "auto", "more_candidates": True}
    made = estimate(spec(**{"plan": auto, **changes}), n_captures=100 if "captures" in changes else 0)
    assert not any("plan.more_candidates" in line for line in made.assumptions)


def test_json_and_text_keep_five_votes_and_a_fixed_k() -> None:
    made = estimate(generative("json"), n_captures=300, prompt_tokens_label=1000)
    assert any(line.startswith("5 label samples a pick") for line in made.assumptions)
    assert not any("in any case" in line for line in made.assumptions)


def test_a_frozen_student_reads_its_pairs_once() -> None:
    steps = [estimate(spec(train={"student": student, "epochs": 7})).steps for student in ("adapter", "frozen")]
    adapter, frozen = (each[StepName.DISTILLATION].expected - 900 for each in steps)  # without the price of a job
    assert adapter == pytest.approx(7 * frozen, rel=0.02)
    assert steps[0][StepName.LABELING] == steps[1][StepName.LABELING]
