"""The quality card of a compile, from what its evaluation measured, its journal paid and its account spent."""

from statistics import median

from django.db.models import QuerySet

from backend.compiles.models import Compile, TeacherCall
from backend.compiles.states import ANSWERED_STATES, LABEL_CALLS
from backend.domain.evaluation.kscore import AnyEvaluation, KScore
from backend.domain.evaluation.quality_card import Basis, QualityCard, Spent, TeacherCost, quality_card
from backend.domain.lifecycle import StepName
from workers.step.durable import CompileRun
from workers.step.runner_wait import runner_nanousd
from workers.training.abstaining import sure_of
from workers.training.alternatives import HELD_OUT_CALLS, alternatives_of
from workers.training.heldout import heldout_gold
from workers.training.measurement import Measurement

NANO = 10**9


def card_of(
    run: CompileRun, compile: Compile, evaluation: AnyEvaluation, measured: Measurement, score: KScore
) -> QualityCard:
    """The card of a locked compile whose every cost but packaging, which is free, is booked."""
    head_us = None if measured.head_own is None else measured.head_own.answer_us
    return quality_card(
        task_type=run.spec.output.type,
        evaluation=evaluation,
        alternatives=alternatives_of(run, measured),
        student=Spent(answer_us=score.own.answer_us, nanousd=score.cost_nanousd),
        head=None if head_us is None else Spent(answer_us=head_us, nanousd=runner_nanousd(head_us, run.book)),
        teacher=_teacher_cost(run),
        compile_microusd=compile.spent_microusd + compile.provider_microusd,
        price_version=run.book.version,
        sure=sure_of(run.spec, heldout_gold(run), measured),
    )


def _teacher_cost(run: CompileRun) -> TeacherCost | None:
    """The teacher's price of one answer: of its answers to held-out inputs, else of those that labeled; None where
    neither was asked, as where all labels were there before."""
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=ANSWERED_STATES)
    held_out = list(calls.filter(step=StepName.EVALUATION, key__startswith=HELD_OUT_CALLS))
    if held_out:
        return TeacherCost(
            nanousd=sum(call.cost_microusd for call in held_out) * 1000 // len(held_out),
            n_calls=len(held_out),
            basis=Basis.HELD_OUT,
            answer_us=None if run.spec.teacher.provider == "replay" else _median_us(held_out),
        )
    return _labeling_cost(run, calls.filter(key__startswith=LABEL_CALLS))


def _median_us(calls: list[TeacherCall]) -> int:
    latency_ms: float = median(call.latency_ms for call in calls)
    return round(latency_ms * 1000)


def _labeling_cost(run: CompileRun, calls: "QuerySet[TeacherCall]") -> TeacherCost | None:
    """The billed price of a call without what the answers beyond its first one added: their output."""
    labeling = [call for call in calls if call.choices]
    if not labeling:
        return None
    total = sum(_single_nanousd(run, call) for call in labeling)
    return TeacherCost(nanousd=total // len(labeling), n_calls=len(labeling), basis=Basis.LABELING)


def _single_nanousd(run: CompileRun, call: TeacherCall) -> int:
    prices = run.prices
    price = prices.of(call.model) if call.batch_id is None else prices.batch_of(call.model)
    n = len(call.choices)
    others = price.output.usd_per_unit * NANO * call.output_tokens * (n - 1) / n
    billed: int = call.cost_microusd * 1000
    return max(0, billed - int(others))
