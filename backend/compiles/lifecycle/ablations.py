"""Ablations of a compile: arms that start from its candidates, and what they were worth beside it.

An arm is a compile like any other: steps, lease, events, receipts, budget. The workers copy what it takes over
(`workers/steps/ablation`); here it is checked, estimated and queued, and compared once both sides are evaluated.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.utils import timezone

from backend.blobs import get_json, get_jsonl
from backend.compiles.heldout import heldout_blobs
from backend.compiles.lifecycle.ablation_checks import check_budget, check_is_planned, check_student, student_of
from backend.compiles.lifecycle.submission import check_embedder, check_teacher, estimate_now, queue
from backend.compiles.models import Candidate, Compile, Slice, StepRun, TeacherCall
from backend.compiles.states import ANSWERED_STATES, LABEL_CALLS, LABELED_STATES, CandidateState
from backend.domain.answers.json_values import BadAnswer, is_exact, parse_answer
from backend.domain.errors import Conflict
from backend.domain.evaluation.paired import compare
from backend.domain.jobs.students import Student
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.money.pricing import price_book
from backend.domain.money.runner_work import WorkSku, cost_of
from backend.domain.planning.ablations import STUDENT_ARMS, Arm, Comparison, Outcome, Paid, Pool, arm_spec, estimate_arm
from backend.domain.planning.label_plans import k_of_captures
from backend.domain.planning.step_outputs import LabelingOut
from backend.domain.planning.trials import TrialKind, first_trial
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, read_stored_spec

MAX_ARMS = 100  # shown of one compile
_ENDED_WELL = (CompileStatus.SUCCEEDED, CompileStatus.GATE_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """One arm of a compile; `comparison` once both sides are evaluated."""

    compile: Compile
    comparison: Comparison | None


def start(source: Compile, arm: Arm, *, budget_microusd: int | None, api_key_id: UUID | None) -> Compile:
    """Queue an arm in the caller's transaction. Raises Conflict for a compile that cannot be ablated (now), InvalidSpec
    for a budget that cannot be enough or a teacher that is no longer there."""
    spec = arm_spec(read_stored_spec(source.spec), arm)
    pools = _check_source(source, arm, spec)
    check_teacher(source.tenant_id, spec)
    check_embedder(spec)
    n_captured = sum(s.n_candidates for s in _slices(source) if s.is_captured)
    expected = estimate_arm(estimate_now(spec, n_captures=n_captured), arm, pools, _paid_by(source, spec))
    budget = source.budget_microusd if budget_microusd is None else budget_microusd
    check_budget(expected, budget)
    return queue(
        source.tenant_id,
        spec,
        expected,
        budget_microusd=budget,
        api_key_id=api_key_id,
        ablation_of=source.id,
        arm=arm.value,
    )


def arms_of(source: Compile) -> list[Ablation]:
    """The ablations of a compile, newest first."""
    rows = Compile.objects.of_tenant(source.tenant_id).filter(ablation_of=source.id)
    arms = rows.order_by("-created_at", "-id")[:MAX_ARMS]
    return [Ablation(compile=arm, comparison=comparison(source, arm)) for arm in arms]


def comparison(source: Compile, arm: Compile) -> Comparison | None:
    """Return what selection was worth, once both sides have answered the held-out rows; None before."""
    ours, theirs = heldout_blobs(source), heldout_blobs(arm)
    if ours is None or theirs is None:
        return None
    heldout = get_jsonl(source.tenant_id, ours.gold)
    measured = [get_json(source.tenant_id, side.evals) for side in (ours, theirs)]
    paired = compare(*_marks(read_stored_spec(source.spec), [row["output"] for row in heldout], *measured))
    costs = label_costs(source)
    return Comparison(
        selected=_outcome(source, costs, correct=paired.both + paired.first, n=paired.n),
        arm=_outcome(arm, costs, correct=paired.both + paired.second, n=paired.n),
        paired=paired,
    )


def _marks(spec: Spec, gold: list[str], *measured: dict[str, Any]) -> list[list[str]]:
    """The truth and both sides' answers, row by row. Where answers are no labels, whether each is right stands for
    it."""
    if isinstance(spec.output, LabelOutput):
        return [gold, *(one["predictions"] for one in measured)]
    right = [_rows_right(spec, one, gold) for one in measured]
    return [["right"] * len(gold), *(["right" if is_right else "wrong" for is_right in side] for side in right)]


def _rows_right(spec: Spec, measured: dict[str, Any], gold: list[str]) -> list[bool]:
    """A json answer is right when it equals gold as a whole, a text when it did not lose to gold (where checks decide:
    when it fails none)."""
    if isinstance(spec.output, JsonOutput):
        return [_is_same(answer, truth) for answer, truth in zip(measured["predictions"], gold, strict=True)]
    if "verdicts" in measured:
        return [verdict != "loss" for verdict in measured["verdicts"]]
    return [not why for why in measured["failed"]]


def _is_same(answer: str, truth: str) -> bool:
    try:
        return is_exact(parse_answer(answer), parse_answer(truth))
    except BadAnswer:
        return False


def label_costs(row: Compile) -> dict[str, int]:
    """Return what the labels of each text cost this compile, micro-USD, by text key."""
    costs: defaultdict[str, int] = defaultdict(int)
    calls = TeacherCall.objects.filter(
        tenant_id=row.tenant_id, compile=row, key__startswith=LABEL_CALLS, state__in=ANSWERED_STATES
    )
    for key, cost in calls.values_list("key", "cost_microusd"):
        costs[key.split(":")[1]] += cost
    return costs


def _check_source(source: Compile, arm: Arm, spec: Spec) -> list[Pool]:
    """The slices of the compile; `spec` is the arm's."""
    if source.ablation_of is not None:
        raise Conflict(
            "This compile is an ablation itself. Ablate the compile that its `ablation.of` names.",
            code="ablation_of_ablation",
        )
    if source.status not in _ENDED_WELL:
        resumable = source.status in (CompileStatus.FAILED, CompileStatus.EXPIRED, CompileStatus.CANCELED)
        todo = "Resume it and let it end first." if resumable else "Wait until it has ended."
        raise Conflict(
            f"Only a compile that was evaluated can be ablated; this one is {source.status}. {todo}",
            code="not_ablatable",
        )
    pools = _pools(source, spec)
    if arm in STUDENT_ARMS:
        check_student(source, STUDENT_ARMS[arm])
    elif arm is Arm.FIXED:
        check_is_planned(source)
    elif sum(pool.n for pool in pools) == sum(pool.k for pool in pools):
        raise Conflict(
            "Nothing was selected away in this compile: it kept all its candidates, so there is nothing to compare. "
            "Compile with more candidates than are kept (sampling.n_candidates, k_select).",
            code="not_ablatable",
        )
    return pools


def _slices(row: Compile) -> list[Slice]:
    return list(Slice.objects.filter(tenant_id=row.tenant_id, compile=row).order_by("position"))


def _pools(source: Compile, spec: Spec) -> list[Pool]:
    """The valid candidates of each slice, those that were labelled, and those that `spec` labels with a fixed plan."""
    valid = Candidate.objects.filter(tenant_id=source.tenant_id, compile=source).exclude(state=CandidateState.REJECTED)
    counted = valid.values("slice").annotate(n=Count("id"), k=Count("id", filter=Q(state__in=LABELED_STATES)))
    slices = {part.id: part for part in _slices(source)}
    return [
        Pool(
            n=part["n"],
            k=part["k"],
            k_fixed=min(part["n"], k_fixed(spec, slices[part["slice"]])),
            is_captured=slices[part["slice"]].is_captured,
        )
        for part in counted.order_by("slice")
    ]


def k_fixed(spec: Spec, theirs: Slice) -> int:
    """The number of candidates of the ablated compile's slice that `spec`, whose plan is fixed, labels: of captures
    what it names, of written ones those that were picked before a label was known."""
    if theirs.is_captured:
        return k_of_captures(spec, theirs.n_candidates)
    return int((theirs.selection or {}).get("k_actual", 0))


def _paid_by(source: Compile, spec: Spec) -> Paid:
    steps = {step.name: step for step in StepRun.objects.filter(tenant_id=source.tenant_id, compile=source)}
    labeled = LabelingOut.from_json(steps[StepName.LABELING].output)
    theirs = read_stored_spec(source.spec)
    was_frozen = student_of(steps.values(), theirs) is Student.FROZEN
    return Paid(
        labels=list(label_costs(source).values()),
        training=steps[StepName.DISTILLATION].spent_microusd,
        evaluation=steps[StepName.EVALUATION].spent_microusd,
        n_pairs=labeled.n_pairs,
        n_gold=labeled.n_gold_pairs,
        n_passes=1 if was_frozen else _passes(theirs)(labeled.n_pairs),
        job=cost_of({WorkSku.ENCODER_JOB: 1}, price_book(timezone.now())),
        passes=_passes(spec),
    )


def _passes(spec: Spec) -> Callable[[int], int]:
    """Return the passes of a training over so many pairs; of what always makes the same number, 1."""
    is_constant = spec.train.student == Student.FROZEN or first_trial(spec).kind is not TrialKind.ENCODER
    return (lambda n_pairs: 1) if is_constant else spec.train.passes


def _outcome(row: Compile, source_costs: dict[str, int], *, correct: int, n: int) -> Outcome:
    labeled = Candidate.objects.filter(tenant_id=row.tenant_id, compile=row, state__in=LABELED_STATES)
    keys = list(labeled.values_list("text_key", flat=True))
    own = source_costs if row.ablation_of is None else label_costs(row)
    reused = [] if row.ablation_of is None else [key for key in keys if key not in own]
    step = StepRun.objects.get(tenant_id=row.tenant_id, compile=row, name=StepName.LABELING)
    return Outcome(
        correct=correct,
        n=n,
        n_labels=len(keys),
        n_labels_reused=len(reused),
        label_cost_microusd=sum(own.values()) + sum(source_costs.get(key, 0) for key in reused),
        n_pairs=LabelingOut.from_json(step.output).n_pairs,
        k_score_ppm=row.k_score_ppm,
    )
