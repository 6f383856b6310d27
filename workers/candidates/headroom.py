"""Is there money for more than the compile was estimated to need? A mitigation may spend what the rest of the compile
can spare, and never the money of the steps that are still to come."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from backend.compiles.models import Compile, Slice
from backend.domain.lifecycle import STEPS, StepName
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.teacher_estimates import CHOICES_PER_CALL
from workers.candidates.generation import model_of, request_of, shown_exemplars
from workers.step.durable import CompileRun
from workers.step.spending import left_of
from workers.step.teacher_calls import worst_cost

_AFTER_SELECTION = frozenset(STEPS[STEPS.index(StepName.SELECTION) + 1 :])
_AFTER_LABELING = _AFTER_SELECTION - {StepName.LABELING}


def can_spare(run: CompileRun, amount_microusd: int) -> bool:
    """Say whether the budget, less this amount, still covers what the steps after selection are expected to cost, and
    the reservation of their widest batch of calls besides."""
    with run.transaction() as fenced:
        return left_of(fenced.compile) - amount_microusd >= _rest(fenced.compile, _AFTER_SELECTION)


def spare_after_labeling(run: CompileRun) -> int:
    """The part of the budget, micro-USD, that labelling may spend beside what the steps after it are expected to cost
    and the reservation of the widest batch of calls; below 0 where they alone are more."""
    with run.transaction() as fenced:
        return left_of(fenced.compile) - _rest(fenced.compile, _AFTER_LABELING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMoney:
    """Micro-USD. `left` is for further labels and the training on them; training on one pair is expected to cost
    `pair`."""

    left: int
    pair: int


def money_for_labels(run: CompileRun, *, n_pairs: int, most_pairs: int) -> LabelMoney:
    """Return what the budget has for further labels beside the training on `n_pairs` and all that follows it. Training
    was estimated for `most_pairs`, and each is taken to cost the same."""
    with run.transaction() as fenced:
        compile = fenced.compile
        left = left_of(compile) - _rest(compile, _AFTER_LABELING - {StepName.DISTILLATION})
        training = _estimate_of(compile, {StepName.DISTILLATION})
    pair = -(-training // max(1, most_pairs))
    return LabelMoney(left=left - pair * n_pairs, pair=pair)


def _rest(compile: Compile, steps: Collection[StepName]) -> int:
    return _estimate_of(compile, steps) + int(compile.estimate["worst_batch_microusd"])


def _estimate_of(compile: Compile, steps: Collection[StepName]) -> int:
    return sum(int(row["expected_microusd"]) for row in compile.estimate["steps"] if row["step"] in steps)


def worst_round(run: CompileRun, slice_row: Slice, n: int, *, extra_chars: int = 0) -> int:
    """The most that a round of `n` candidates for this slice can be billed, micro-USD, when the teacher answers one
    choice a call after a first batch that was billed in full. `extra_chars`: by how much the prompt may grow."""
    price = price_of(run, slice_row)
    exemplars = shown_exemplars(run, slice_row)
    one, full = (
        worst_cost(price, request_of(run, slice_row, size, exemplars, nth=0)) + _extra(price, extra_chars)
        for size in (1, min(n, CHOICES_PER_CALL))
    )
    n_first = min(run.spec.teacher.concurrency, -(-n // CHOICES_PER_CALL))
    return n * one + n_first * (full - one)


def worst_rounds(run: CompileRun, slice_row: Slice, sizes: Sequence[int], *, extra_chars: int) -> int:
    return sum(worst_round(run, slice_row, n, extra_chars=extra_chars) for n in sizes)


def price_of(run: CompileRun, slice_row: Slice) -> TeacherPrice:
    return run.prices.of(model_of(run, slice_row) or run.spec.teacher.model)


def _extra(price: TeacherPrice, n_chars: int) -> int:
    """Every byte a token, four bytes a character."""
    return price.cost_microusd(input_tokens=4 * n_chars, output_tokens=0)
