"""The cost of a compile, before it runs: low, expected and high per step, and the largest sum that one batch of
calls may reserve.

Low is what it costs when everything goes well; a budget below it is refused. High counts every
automatic reaction (more exemplars, two hotter rounds, the fallback model), every round and split that
`sampling.on_gap` allows, a teacher that answers one choice a call, and every trial that may follow the first (twice the
rank, when the gate is missed). The assumptions are in the answer.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import Price, PriceBook, cost_microusd, price_book
from backend.domain.money.teacher_prices import (
    TeacherPrices,
    price_warnings,
    resolve_judge_price,
    resolve_prices,
    resolve_reward_price,
    unit_warnings,
)
from backend.domain.money.vendor_prices import NO_PRICES, PriceTable
from backend.domain.number_words import usd, usd_exact
from backend.domain.planning.prompt_sizes import (
    answer_prompt_tokens,
    counting_of,
    mean_candidate_tokens,
    most_answer_tokens,
    most_candidate_tokens,
)
from backend.domain.planning.teacher_estimates import TeacherPlan
from backend.domain.planning.token_counts import Counting, count_tokens, counting_of_base
from backend.domain.planning.trial_estimates import Range as Range
from backend.domain.planning.trial_estimates import Trials, answer_tokens
from backend.domain.spec.defaults import buys_in_rounds, judge_of, reward_of, rewarder_of, slice_sizes, tool_tokens
from backend.domain.spec.models import Spec

UNKNOWN_INPUT_TOKENS = 20.0  # of an input, where neither gold nor captures show any
SPECIAL_TOKENS = 2  # of an encoder, before and after a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """`worst_batch` is the most that one batch of teacher calls may reserve, micro-USD: with less left, the next
    batch is not started. `platform_high` is the part of the high bound that is not the teacher's: all that kolm bills
    where the customer's own key pays the teacher. `batch_window_h` is how long each batch may take, of a teacher in
    batch mode. `teacher_rows` held-out inputs are answered by the teacher as well: a
    compile asks it for no more than it was estimated with. `n_written` pairs of the teacher's and `n_gold_train` of the
    customer's train, `n_heldout` measure; these three are not kept.
    """

    steps: dict[StepName, Range]
    worst_batch: int
    price_version: str
    teacher: TeacherPrices
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    platform_high: int | None = None
    batch_window_h: int | None = None
    teacher_rows: int = 0
    n_written: int = 0
    n_gold_train: int = 0
    n_heldout: int = 0

    @property
    def total(self) -> Range:
        return sum(self.steps.values(), Range(low=0, expected=0, high=0))

    def to_json(self) -> dict[str, object]:
        def microusd(amount: Range) -> dict[str, int]:
            return {"low_microusd": amount.low, "expected_microusd": amount.expected, "high_microusd": amount.high}

        return {
            "steps": [{"step": step.value, **microusd(amount)} for step, amount in self.steps.items()],
            "total": microusd(self.total),
            "worst_batch_microusd": self.worst_batch,
            "price_version": self.price_version,
            "teacher_price_version": self.teacher.main.version,
            "teacher_rows": self.teacher_rows,
            **self.teacher.to_json(),
            "batch_window_h": self.batch_window_h,
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }


def estimate(
    spec: Spec,
    *,
    n_captures: int = 0,
    n_gold_train: int = 0,
    n_heldout: int = 0,
    prompt_tokens_candidate: int | None = None,
    prompt_tokens_label: int | None = None,
    mean_output_tokens: int | None = None,
    shown_inputs: Sequence[str] = (),
    shown_outputs: Sequence[str] = (),
    written: Sequence[str] = (),
    book: PriceBook | None = None,
    operator: PriceTable = NO_PRICES,
    today: date | None = None,
) -> Estimate:
    """The cost of compiling `spec`. Prompt sizes default to what the spec's own texts amount to. `shown_inputs` are the
    task's own, gold and captures: a candidate is as long as they are on the mean (the spec's inline ones where none are
    there), as those that the teacher has `written` for the task before, or `mean_output_tokens`. `shown_outputs` are
    the gold's answers. `operator` is the operator's own table of teachers' prices; without `today` no price is old.

    Raises InvalidSpec (unknown_teacher_price).
    """
    book = book or price_book()
    prices = _prices(spec, book, operator)
    by = counting_of(spec)

    def mean(by: Counting) -> float:
        return mean_output_tokens or _mean_tokens(spec, shown_inputs, by)

    def mean_written(by: Counting) -> float:
        return mean_output_tokens or _mean_tokens(spec, written or shown_inputs, by)

    mean_picked = mean if n_captures else mean_written

    plan = TeacherPlan(
        spec=spec,
        slices=[] if n_captures and not spec.slices else slice_sizes(spec),  # else the captures are the pool
        price=prices.main,
        batch=prices.batch_of(spec.teacher.model),
        dearest=prices.dearest,
        n_captures=n_captures,
        prompt_candidate=prompt_tokens_candidate or mean_candidate_tokens(spec, by),
        prompt_label=prompt_tokens_label
        or answer_prompt_tokens(spec, by, input_tokens=math.ceil(mean_picked(by))) + tool_tokens(spec),
        mean_output=math.ceil(mean_written(by)),
        label_output=answer_tokens(spec, by, shown_outputs),
        embedded=mean_picked(counting_of_base(spec.embedder)) + SPECIAL_TOKENS,
        longest_candidate=prompt_tokens_candidate or most_candidate_tokens(spec),
        longest_prompt=prompt_tokens_label
        or most_answer_tokens(spec, input_tokens=math.ceil(mean(Counting.BYTES))) + tool_tokens(spec),
        reward_price=prices.reward,
    )
    zero = Range(low=0, expected=0, high=0)
    steps = dict.fromkeys(StepName, zero)
    steps[StepName.SLICING] = plan.preflight()
    steps[StepName.SYNTHESIS] = plan.synthesis() + _embedding(book.prices["embedding.token"], plan)
    rewards, later_rewards = plan.rewards()
    steps[StepName.VERIFICATION] = rewards
    steps[StepName.SELECTION] = (
        plan.mitigations() + later_rewards + _more_embedding(book.prices["embedding.token"], plan)
    )
    more = _high(cost_microusd(round(4 * plan.n_more * plan.embedded), book.prices["embedding.token"]))
    steps[StepName.LABELING] = plan.labeling() + more
    ours = _embedding(book.prices["embedding.token"], plan) + _more_embedding(book.prices["embedding.token"], plan)
    ours += more
    runs = Trials(
        spec=spec,
        book=book,
        n_heldout=n_heldout,
        encoded=min(mean(counting_of_base(spec.train.base)), spec.train.max_tokens - SPECIAL_TOKENS) + SPECIAL_TOKENS,
        input_tokens=mean(Counting.MODEL),
        answer=answer_tokens(spec, Counting.MODEL, shown_outputs),
        n_gold=n_gold_train,
    )
    n_trained, n_most = plan.n_pairs + n_gold_train, plan.most_pairs + n_gold_train
    steps[StepName.DISTILLATION] = replace(runs.first_training(n_trained), high=runs.first_training(n_most).high)
    if buys_in_rounds(spec):
        least = runs.first_training(min(plan.n_start, plan.n_pairs) + n_gold_train)
        steps[StepName.DISTILLATION] = replace(steps[StepName.DISTILLATION], low=least.low)
    trained = steps[StepName.DISTILLATION]
    steps[StepName.DISTILLATION] = trained + plan.scoring()
    answering = replace(runs.rest(n_trained), high=runs.rest(n_most).high)
    teacher_rows = plan.teacher_rows(n_heldout)
    steps[StepName.EVALUATION] = answering + plan.judging(n_heldout) + plan.answering(teacher_rows)
    return Estimate(
        steps=steps,
        worst_batch=plan.worst_batch(),
        price_version=book.version,
        teacher=prices,
        assumptions=(*plan.assumptions(n_gold_train, teacher_rows), *([_AS_BEFORE] if written and plan.pools else [])),
        warnings=() if today is None else tuple(_warnings(prices, today)),
        platform_high=ours.high
        + trained.high
        + answering.high
        + (rewards.high + later_rewards.high if _rewards_are_ours(spec) else 0),
        batch_window_h=plan.batch_window_h,
        teacher_rows=teacher_rows,
        n_written=plan.n_pairs,
        n_gold_train=n_gold_train,
        n_heldout=n_heldout,
    )


_AS_BEFORE = "candidates as long as those that this teacher wrote for this task in an earlier compile"


def _prices(spec: Spec, book: PriceBook, operator: PriceTable) -> TeacherPrices:
    prices = resolve_prices(spec.teacher, book=book, operator=operator)
    judge = judge_of(spec)
    if judge is not None:
        prices = replace(prices, judge=resolve_judge_price(judge, book=book, operator=operator))
    rewarder = rewarder_of(spec)
    if rewarder is None:
        return prices
    at = next(i for i, verifier in enumerate(spec.verifiers) if verifier is reward_of(spec))
    reward = resolve_reward_price(rewarder, f"/verifiers/{at}/price", book=book, operator=operator)
    return replace(prices, reward=reward)


def _rewards_are_ours(spec: Spec) -> bool:
    """Say whether kolm bills the rewards, for they are asked for without a key of the customer's own."""
    rewarder = rewarder_of(spec)
    return rewarder is not None and rewarder.api_key is None


def _warnings(prices: TeacherPrices, today: date) -> Iterator[str]:
    for price in (prices.main, prices.fallback, prices.reward, prices.judge):
        if price is not None:
            yield from price_warnings(price, today)
            yield from unit_warnings(price)


def check_budget(estimated: Estimate, budget_microusd: int) -> None:
    """Raise InvalidSpec (budget_below_estimate) for a budget that cannot suffice: below the low bound, or below one
    batch of calls.
    """
    total = estimated.total
    least = max(total.low, estimated.worst_batch)
    if budget_microusd >= least:
        return
    message = (
        f"a budget of {usd_exact(budget_microusd)} is below the least this compile needs, {usd_exact(least)} "
        f"(estimate: {usd(total.low)} to {usd(total.high)}, expected {usd(total.expected)}; one batch of calls may "
        f"need {usd(estimated.worst_batch)}); raise budget.usd, or lower sampling.n_candidates or teacher.concurrency"
    )
    problem = Problem(pointer="/budget/usd", message=message, code="budget_below_estimate")
    raise InvalidSpec(
        f"The spec is not valid: /budget/usd: {message}", code="budget_below_estimate", problems=(problem,)
    )


def _mean_tokens(spec: Spec, shown: Sequence[str], by: Counting) -> float:
    """Tokens of the task's inputs on the mean."""
    captured = spec.captures.inline if spec.captures is not None else []
    texts = list(shown) or [example.input for example in spec.examples.inline] + captured
    if not texts:
        return UNKNOWN_INPUT_TOKENS
    mean = sum(count_tokens(text, by) for text in texts) / len(texts)
    return max(1.0, min(mean, float(spec.sampling.candidate_max_tokens)))


def _embedding(price: Price, plan: TeacherPlan) -> Range:
    tokens = round((sum(plan.pools) + plan.n_captures) * plan.embedded)
    return Range(
        low=cost_microusd(tokens // 2, price),
        expected=cost_microusd(tokens, price),
        high=cost_microusd(4 * tokens, price),
    )


def _more_embedding(price: Price, plan: TeacherPlan) -> Range:
    return _high(cost_microusd(round(4 * plan.most_mitigated * plan.embedded), price))


def _high(amount: int) -> Range:
    return Range(low=0, expected=0, high=amount)
