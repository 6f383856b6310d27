"""The cost of a compile, before it runs: low, expected and high per step, and the largest sum that one batch of
calls may reserve.

Low is what it costs when everything goes well on a fast runner; a budget below it is refused. High counts every
automatic reaction (more exemplars, two hotter rounds, the fallback model), every round and split that
`sampling.on_gap` allows, a teacher that answers one choice a call, and every trial that may follow the first (twice the
rank, when the gate is missed). The assumptions are in the answer.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import Price, PriceBook, cost_microusd, price_book
from backend.domain.money.teacher_prices import (
    TeacherPrices,
    price_warnings,
    resolve_prices,
    resolve_reward_price,
    unit_warnings,
)
from backend.domain.money.vendor_prices import NO_PRICES, PriceTable
from backend.domain.planning.teacher_estimates import TeacherPlan
from backend.domain.planning.trial_estimates import BYTES_PER_TOKEN, Trials, n_bytes
from backend.domain.planning.trial_estimates import Range as Range
from backend.domain.spec.defaults import (
    buys_in_rounds,
    effective_slices,
    label_names,
    reward_of,
    rewarder_of,
    slice_sizes,
    tool_tokens,
)
from backend.domain.spec.inputs import SliceSpec
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput

CANDIDATE_OVERHEAD_TOKENS = 135  # system message and fixed lines of the prompt for candidates
LABEL_OVERHEAD_TOKENS = 110  # and of that for a label or an answer
EXEMPLAR_BYTES = 9  # the fence around one
UNKNOWN_INPUT_TOKENS = 20  # of an input, where neither gold nor captures show any


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """`worst_batch` is the most that one batch of teacher calls may reserve, micro-USD: with less left, the next
    batch is not started. `platform_high` is the part of the high bound that is not the teacher's: all that kolm bills
    where the customer's own key pays the teacher. `batch_window_h` is how long each batch may take, of a teacher in
    batch mode. `teacher_rows` held-out inputs are answered by the teacher as well: a
    compile asks it for no more than it was estimated with.
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
    book: PriceBook | None = None,
    operator: PriceTable = NO_PRICES,
    today: date | None = None,
) -> Estimate:
    """The cost of compiling `spec`. Prompt sizes default to what the spec's own texts amount to. `shown_inputs` are the
    task's own, gold and captures: a candidate is as long as they are on the mean (the spec's inline ones where none are
    given), or `mean_output_tokens`. `operator` is the operator's own table of teachers' prices; without `today` no
    price is old.

    Raises InvalidSpec (unknown_teacher_price).
    """
    book = book or price_book()
    prices = _prices(spec, book, operator)
    if mean_output_tokens is None:
        mean_output_tokens = _input_tokens(spec, shown_inputs)
    plan = TeacherPlan(
        spec=spec,
        slices=[] if n_captures and not spec.slices else slice_sizes(spec),  # else the captures are the pool
        price=prices.main,
        batch=prices.batch_of(spec.teacher.model),
        dearest=prices.dearest,
        n_captures=n_captures,
        prompt_candidate=prompt_tokens_candidate
        or _prompt_tokens(spec, is_label=False, text_tokens=mean_output_tokens),
        prompt_label=prompt_tokens_label or _prompt_tokens(spec, is_label=True, text_tokens=mean_output_tokens),
        mean_output=mean_output_tokens,
        reward_price=prices.reward,
    )
    zero = Range(low=0, expected=0, high=0)
    steps = dict.fromkeys(StepName, zero)
    steps[StepName.SYNTHESIS] = plan.synthesis() + _embedding(book.prices["embedding.token"], plan)
    rewards, later_rewards = plan.rewards()
    steps[StepName.VERIFICATION] = rewards
    steps[StepName.SELECTION] = (
        plan.mitigations() + later_rewards + _more_embedding(book.prices["embedding.token"], plan)
    )
    steps[StepName.LABELING] = plan.labeling()
    ours = _embedding(book.prices["embedding.token"], plan) + _more_embedding(book.prices["embedding.token"], plan)
    runs = Trials(
        spec=spec,
        price=book.prices["runner.second"],
        n_heldout=n_heldout,
        input_tokens=mean_output_tokens,
        n_gold=n_gold_train,
    )
    n_trained = plan.n_pairs + n_gold_train
    steps[StepName.DISTILLATION] = runs.first_training(n_trained)
    if buys_in_rounds(spec):
        least = runs.first_training(min(plan.n_start, plan.n_pairs) + n_gold_train)
        steps[StepName.DISTILLATION] = replace(steps[StepName.DISTILLATION], low=least.low)
    answering = runs.rest(n_trained)
    teacher_rows = plan.teacher_rows(n_heldout)
    steps[StepName.EVALUATION] = answering + plan.judging(n_heldout) + plan.answering(teacher_rows)
    return Estimate(
        steps=steps,
        worst_batch=plan.worst_batch(),
        price_version=book.version,
        teacher=prices,
        assumptions=tuple(plan.assumptions(n_gold_train, teacher_rows)),
        warnings=() if today is None else tuple(_warnings(prices, today)),
        platform_high=ours.high
        + steps[StepName.DISTILLATION].high
        + answering.high
        + (rewards.high + later_rewards.high if _rewards_are_ours(spec) else 0),
        batch_window_h=plan.batch_window_h,
        teacher_rows=teacher_rows,
    )


def _prices(spec: Spec, book: PriceBook, operator: PriceTable) -> TeacherPrices:
    prices = resolve_prices(spec.teacher, book=book, operator=operator)
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
    for price in (prices.main, prices.fallback, prices.reward):
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
        f"a budget of {usd(budget_microusd)} is below the least this compile needs, {usd(least)} (estimate: "
        f"{usd(total.low)} to {usd(total.high)}, expected {usd(total.expected)}; one batch of calls may need "
        f"{usd(estimated.worst_batch)}); raise budget.usd, or lower sampling.n_candidates or teacher.concurrency"
    )
    problem = Problem(pointer="/budget/usd", message=message, code="budget_below_estimate")
    raise InvalidSpec(
        f"The spec is not valid: /budget/usd: {message}", code="budget_below_estimate", problems=(problem,)
    )


def usd(microusd: int) -> str:
    """`$0.0123`: four decimals, six where four would hide the amount."""
    amount = Decimal(microusd) / 1_000_000
    return f"${amount:.4f}" if microusd % 100 == 0 or microusd >= 10_000 else f"${amount:.6f}"


def _input_tokens(spec: Spec, shown: Sequence[str]) -> int:
    """Tokens of the task's inputs on the mean."""
    captured = spec.captures.inline if spec.captures is not None else []
    texts = list(shown) or [example.input for example in spec.examples.inline] + captured
    if not texts:
        return UNKNOWN_INPUT_TOKENS
    mean = math.ceil(n_bytes(*texts) / len(texts) / BYTES_PER_TOKEN)
    return max(1, min(mean, spec.sampling.candidate_max_tokens))


def _prompt_tokens(spec: Spec, *, is_label: bool, text_tokens: int) -> int:
    """Tokens of a prompt, by its bytes: task, label names, then either label descriptions, the text and a tool or a
    slice with exemplars."""
    names, slices = label_names(spec), effective_slices(spec)
    size = n_bytes(spec.task, *names) + 3 * len(names)
    if is_label and isinstance(spec.output, JsonOutput):
        size += len(json.dumps(spec.output.answer_schema))
    if is_label:
        size += sum(n_bytes(part.hint, part.name) + 4 for part in slices)
        return LABEL_OVERHEAD_TOKENS + math.ceil(size / BYTES_PER_TOKEN) + text_tokens + tool_tokens(spec)
    return CANDIDATE_OVERHEAD_TOKENS + math.ceil((size + max(map(_slice_bytes, slices), default=0)) / BYTES_PER_TOKEN)


def _slice_bytes(part: SliceSpec) -> int:
    shown = n_bytes(*part.exemplars) + EXEMPLAR_BYTES * len(part.exemplars)
    return n_bytes(part.name, part.hint, part.label or "") + shown


def _embedding(price: Price, plan: TeacherPlan) -> Range:
    tokens = (sum(plan.pools) + plan.n_captures) * (plan.mean_output + 2)
    return Range(
        low=cost_microusd(tokens // 2, price),
        expected=cost_microusd(tokens, price),
        high=cost_microusd(4 * tokens, price),
    )


def _more_embedding(price: Price, plan: TeacherPlan) -> Range:
    return Range(low=0, expected=0, high=cost_microusd(4 * plan.most_mitigated * (plan.mean_output + 2), price))
