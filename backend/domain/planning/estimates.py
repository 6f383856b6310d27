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
from backend.domain.money.pricing import Price, PriceBook, TeacherPrice, cost_microusd, price_book
from backend.domain.money.teacher_prices import (
    TeacherPrices,
    is_free,
    price_warnings,
    resolve_prices,
    resolve_reward_price,
    unit_warnings,
)
from backend.domain.money.vendor_prices import NO_PRICES, PriceTable
from backend.domain.planning.reward_estimates import RewardPlan
from backend.domain.planning.trial_estimates import CHARS_PER_TOKEN, Trials, answer_tokens, assumption, recipes_cost
from backend.domain.planning.trial_estimates import Range as Range
from backend.domain.planning.trials import most_trials
from backend.domain.spec.defaults import (
    SliceSize,
    default_k_distill,
    default_k_select,
    dialect_of,
    effective_slices,
    label_max_tokens,
    label_names,
    reward_of,
    rewarder_of,
    slice_sizes,
    thought_tokens,
    train_kind,
)
from backend.domain.spec.models import Spec
from backend.domain.spec.outputs import JsonOutput, LabelOutput, TextOutput

CHOICES_PER_CALL = 8  # candidates asked for in one call
PROMPT_OVERHEAD_TOKENS = 110  # system message and fixed lines of either prompt
HALVES_SHOWN = 6  # texts in the question that names the halves of a slice
NAMING_TOKENS = 400  # its longest answer
MAX_REACTIONS = 4  # exemplars, hotter, hotter, fallback model; each asks for N/2 more
UNKNOWN_INPUT_TOKENS = 20  # of an input, where neither gold nor captures show any
THOUGHT_SHARE = 4  # what is expected of a model's thoughts: this part of the room that is left for them
TEACHER_ROWS = 100  # held-out inputs that the teacher answers too, where the spec says nothing
TEACHER_BUDGET_SHARE = 20  # and a twentieth of the budget at most
VERDICT_TOKENS = 8  # a judge's longest answer about two texts, as workers.teachers asks for it


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
    plan = _Plan(
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
    n_pairs = default_k_distill(plan.n_picks) if spec.sampling.k_distill is None else spec.sampling.k_distill
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
    n_trained = min(n_pairs, plan.n_picks) + n_gold_train
    steps[StepName.DISTILLATION] = runs.first_training(n_trained)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The number and size of the calls that the teacher will get. `slices` are those that it fills."""

    spec: Spec
    slices: Sequence[SliceSize]
    price: TeacherPrice
    batch: TeacherPrice  # of a call of synthesis and labelling: what it costs in a batch, in batch mode
    dearest: TeacherPrice  # of the model and its fallback, which may write candidates
    n_captures: int
    prompt_candidate: int
    prompt_label: int
    mean_output: int
    reward_price: TeacherPrice | None = None  # of a spec with a reward

    @property
    def reward(self) -> RewardPlan | None:
        """The calls that give rewards, where some do."""
        asked = reward_of(self.spec)
        if asked is None or self.reward_price is None:
            return None
        longest = min(3 * self.mean_output, self.spec.sampling.candidate_max_tokens)
        return RewardPlan(
            spec=self.spec,
            asked=asked,
            price=self.reward_price,
            prompt=self.prompt_candidate,
            text=self.mean_output,
            longest=longest,
        )

    def rewards(self) -> tuple[Range, Range]:
        """Return what rewards cost when candidates are verified, and for those that selection may ask for later."""
        plan = self.reward
        if plan is None:
            return Range(low=0, expected=0, high=0), Range(low=0, expected=0, high=0)
        extra = sum(MAX_REACTIONS * -(-size // 2) for size in self.pools)  # what synthesis may add to its pools
        first, more = plan.range((*self.pools, self.n_captures)), plan.range((extra,))
        later = plan.range((self.most_mitigated,))
        return replace(first, high=first.high + more.high), Range(low=0, expected=0, high=later.high)

    @property
    def pools(self) -> tuple[int, ...]:
        """N of each slice."""
        return tuple(size.n for size in self.slices)

    @property
    def per_call(self) -> int:
        """Choices that one call for candidates gives at most."""
        return min(CHOICES_PER_CALL, dialect_of(self.spec.teacher).max_n)

    @property
    def label_calls(self) -> int:
        """Calls that the labels of one pick take."""
        return -(-self.spec.sampling.label_samples // dialect_of(self.spec.teacher).max_n)

    @property
    def room(self) -> int:
        """Tokens that a choice may think."""
        return thought_tokens(self.spec.teacher)

    @property
    def thoughts(self) -> int:
        """Tokens that a choice is expected to think."""
        return self.room // THOUGHT_SHARE

    @property
    def n_picks(self) -> int:
        k, n = self.spec.sampling.k_select, self.n_captures
        return sum(size.k for size in self.slices) + (default_k_select(n) if k is None else min(k, n))

    @property
    def label_output(self) -> int:
        return answer_tokens(self.spec)

    def synthesis(self) -> Range:
        n = sum(self.pools)
        n_calls = sum(-(-size // self.per_call) for size in self.pools)
        most = sum(size + MAX_REACTIONS * -(-size // 2) for size in self.pools)
        return Range(
            low=self._batch_cost(n_calls * self.prompt_candidate // 2, n * self.mean_output // 2),
            expected=self._batch_cost(n_calls * self.prompt_candidate, n * (self.mean_output + self.thoughts)),
            high=self._candidates_high(most),
        )

    @property
    def most_mitigated(self) -> int:
        """Candidates that selection may ask for: N/2 a round of resynthesis, N again for the halves of a slice, whose
        own rounds are rounded up one by one."""
        sampling = self.spec.sampling
        splits = "split_slice" in sampling.on_gap
        n_rounds = sampling.resynthesis_rounds if "resynthesize" in sampling.on_gap else 0
        return sum(n_rounds * (-(-size // 2) + splits) + splits * size for size in self.pools)

    def mitigations(self) -> Range:
        """Return what selection may ask of the teacher; nothing is expected of it."""
        n_named = len(self.pools) if "split_slice" in self.spec.sampling.on_gap else 0
        shown = HALVES_SHOWN * max(self.mean_output, self.spec.sampling.candidate_max_tokens)
        named = self._cost(n_named * 2 * (self.prompt_candidate + shown), n_named * NAMING_TOKENS)
        return Range(low=0, expected=0, high=self._candidates_high(self.most_mitigated) + named)

    def _candidates_high(self, n: int) -> int:
        """One choice a call, longest answers, at the fallback model's price where that is higher."""
        longest = min(3 * self.mean_output, self.spec.sampling.candidate_max_tokens)
        return self.dearest.cost_microusd(
            input_tokens=2 * n * self.prompt_candidate, output_tokens=n * (longest + self.room)
        )

    def labeling(self) -> Range:
        n, k = self.n_picks, self.spec.sampling.label_samples
        least = -(-n // 2) if n else 0  # drop_k may leave fewer
        return Range(
            low=self._batch_cost(least * self.prompt_label // 2, least * k * self.least_answer),
            expected=self._batch_cost(
                n * self.label_calls * self.prompt_label, n * k * (self.label_output + self.thoughts)
            ),
            high=self._cost(2 * n * k * self.prompt_label, n * k * (label_max_tokens(self.spec) + self.room)),
        )

    @property
    def least_answer(self) -> int:
        """Half of what is expected, but of a label one token."""
        return 1 if isinstance(self.spec.output, LabelOutput) else max(1, self.label_output // 2)

    @property
    def prompt_verdict(self) -> int:
        """The task, the input and two answers."""
        return self.prompt_label + 2 * self.label_output

    def judging(self, n_heldout: int) -> Range:
        """Two verdicts a held-out answer, for every trial; none where the spec's accuracy needs no judge. Answers equal
        to gold, or that fail a check, are not asked about."""
        if not (isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge"):
            return Range(low=0, expected=0, high=0)
        n = 2 * n_heldout
        longest = self.prompt_label + 2 * label_max_tokens(self.spec)
        n_trials = most_trials(self.spec)
        return Range(
            low=self._cost(n * self.prompt_verdict // 4, n // 2),
            expected=self._cost(n * self.prompt_verdict, n * (2 + self.thoughts)),
            high=n_trials * self._cost(2 * n * longest, n * (VERDICT_TOKENS + self.room)),
        )

    def teacher_rows(self, n_heldout: int) -> int:
        """The number of held-out inputs that the teacher answers, beside the model: as the spec says, else up to
        TEACHER_ROWS for a twentieth of the budget. A text that a judge compares is not asked for: the judge is the
        teacher."""
        if isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge":
            return 0
        asked = self.spec.evaluation.teacher_rows
        if asked is not None:
            return min(asked, n_heldout)
        if self.spec.teacher.provider == "replay":
            return 0
        affordable = self.spec.budget.microusd // TEACHER_BUDGET_SHARE // max(1, self.answering(1).expected)
        return min(TEACHER_ROWS, n_heldout, affordable)

    def answering(self, n: int) -> Range:
        """The teacher's own answers to `n` held-out inputs; where the budget has nothing left, it is not asked."""
        return Range(
            low=0,
            expected=self._cost(n * self.prompt_label, n * (self.label_output + self.thoughts)),
            high=self._cost(2 * n * self.prompt_label, n * (label_max_tokens(self.spec) + self.room)),
        )

    def worst_batch(self) -> int:
        """Bound a call's tokens as the workers reserve it: every byte of the prompt a token, every choice as long as
        allowed."""
        width = self.spec.teacher.concurrency
        calls = (
            [(self.prompt_label, self._labels_a_call * (label_max_tokens(self.spec) + self.room))]
            if self.n_picks
            else []
        )
        if self.pools:
            n = min(self.per_call, max(self.pools))
            calls.append((self.prompt_candidate, n * (self.spec.sampling.candidate_max_tokens + self.room)))
        if isinstance(self.spec.output, TextOutput) and self.spec.output.accuracy == "judge":
            calls.append((self.prompt_label + 2 * label_max_tokens(self.spec), VERDICT_TOKENS + self.room))
        teacher = max(
            width * self.dearest.cost_microusd(input_tokens=CHARS_PER_TOKEN * prompt, output_tokens=output)
            for prompt, output in calls
        )
        return teacher if self.reward is None else max(teacher, self.reward.worst_batch())

    @property
    def _labels_a_call(self) -> int:
        return min(self.spec.sampling.label_samples, dialect_of(self.spec.teacher).max_n)

    def _cost(self, input_tokens: int, output_tokens: int) -> int:
        return self.price.cost_microusd(input_tokens=input_tokens, output_tokens=output_tokens)

    def _batch_cost(self, input_tokens: int, output_tokens: int) -> int:
        return self.batch.cost_microusd(input_tokens=input_tokens, output_tokens=output_tokens)

    @property
    def batch_window_h(self) -> int | None:
        terms = dialect_of(self.spec.teacher).batch
        return terms.window_h if terms is not None and self.spec.teacher.mode == "batch" else None

    def assumptions(self, n_gold_train: int, teacher_rows: int) -> Iterator[str]:
        k = self.spec.sampling.label_samples
        n, n_slices = sum(self.pools), len(self.pools)
        yield f"{n} candidates in {n_slices} slices, {self.n_captures} captures, {self.n_picks} picks"
        yield f"{k} label samples a pick; {n_gold_train} gold pairs train besides the selected ones"
        yield f"{self.prompt_candidate} prompt tokens and {self.mean_output} a choice, {self.per_call} a call"
        yield f"{self.prompt_label} prompt tokens a label call and {self.label_output} an answer"
        if is_free(self.price) and self.spec.teacher.provider != "replay":
            yield f"{self.price.model} is free: its calls are counted and booked at 0, so no budget stops them"
        if self.batch_window_h is not None:
            yield (
                f"{self.batch.listing.note}; at least {bool(self.pools) + bool(self.n_picks)} batches one after the "
                f"other, each answered within {self.batch_window_h} h, often sooner; a further one for every round of "
                "candidates that is asked for again, and for what a batch left unanswered"
            )
            yield "the first call of a step, verdicts, extra rounds of selection, and the high bounds at the live price"
        if self.reward is not None:
            yield self.reward.assumption(n + self.n_captures)
        if self.room:
            yield f"up to {self.room} tokens of thought an answer, {self.thoughts} expected (assumed, not measured)"
        if train_kind(self.spec) != "encoder":
            yield assumption(self.spec)
        if recipes_cost(self.spec).high:
            budget_s = self.spec.recipes.budget_s
            yield f"a recipe pack where the gate is passed: up to {budget_s:g} s of measuring what drafts"
        if teacher_rows:
            yield f"the teacher answers {teacher_rows} held-out inputs too (evaluation.teacher_rows)"
        yield f"at most {most_trials(self.spec)} trials; those after the first count in the evaluation's high bound"
        yield "low: half the tokens and half the picks, a runner five times as fast"
        yield (
            "high: every retry for poor candidates and every round that on_gap allows, one choice a call, longest "
            "answers, a 4 times slower runner"
        )


def _input_tokens(spec: Spec, shown: Sequence[str]) -> int:
    """Tokens of the task's inputs on the mean."""
    captured = spec.captures.inline if spec.captures is not None else []
    texts = list(shown) or [example.input for example in spec.examples.inline] + captured
    if not texts:
        return UNKNOWN_INPUT_TOKENS
    mean = math.ceil(sum(map(len, texts)) / len(texts) / CHARS_PER_TOKEN)
    return max(1, min(mean, spec.sampling.candidate_max_tokens))


def _prompt_tokens(spec: Spec, *, is_label: bool, text_tokens: int) -> int:
    """Tokens of a prompt, by its characters: task, label names, then either label descriptions and the text or a
    slice with exemplars.
    """
    names = label_names(spec)
    n_chars = len(spec.task) + sum(len(name) + 3 for name in names)
    slices = effective_slices(spec)
    if is_label and isinstance(spec.output, JsonOutput):
        n_chars += len(json.dumps(spec.output.answer_schema))
    if is_label:
        n_chars += sum(len(part.hint) + len(part.name) + 4 for part in slices)
    elif slices:
        n_chars += max(len(part.name) + len(part.hint) + sum(map(len, part.exemplars)) for part in slices)
    return PROMPT_OVERHEAD_TOKENS + math.ceil(n_chars / CHARS_PER_TOKEN) + (text_tokens if is_label else 0)


def _embedding(price: Price, plan: _Plan) -> Range:
    tokens = (sum(plan.pools) + plan.n_captures) * (plan.mean_output + 2)
    return Range(
        low=cost_microusd(tokens // 2, price),
        expected=cost_microusd(tokens, price),
        high=cost_microusd(4 * tokens, price),
    )


def _more_embedding(price: Price, plan: _Plan) -> Range:
    return Range(low=0, expected=0, high=cost_microusd(4 * plan.most_mitigated * (plan.mean_output + 2), price))
