"""Check that a compile can have an arm, and with which budget."""

from collections.abc import Iterable

from backend.compiles.models import Compile, StepRun
from backend.domain.errors import Conflict, InvalidSpec, Problem
from backend.domain.jobs.students import Student
from backend.domain.lifecycle import StepName, StepStatus
from backend.domain.number_words import usd, usd_exact
from backend.domain.planning.ablations import STUDENT_ARMS, Arm
from backend.domain.planning.estimates import Estimate
from backend.domain.planning.step_outputs import EvaluationOut
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import LabelOutput, Spec, read_stored_spec


def check_is_planned(source: Compile) -> None:
    if not buys_in_rounds(read_stored_spec(source.spec)):
        raise Conflict(
            "The plan of this compile was fixed, so the arm fixed would be the same. Ablate it with all or random, or "
            "take a label task that was compiled with `plan: auto`.",
            code="not_ablatable",
        )


def student_of(steps: Iterable[StepRun], spec: Spec) -> Student | None:
    """The student that became a compile's model; None where it is no encoder's label task, or not evaluated."""
    outputs = {step.name: step.output for step in steps if step.status == StepStatus.SUCCEEDED}
    if not isinstance(spec.output, LabelOutput) or StepName.EVALUATION not in outputs:
        return None
    trial = EvaluationOut.from_json(outputs[StepName.EVALUATION]).best_trial
    if trial.get("kind", TrialKind.ENCODER) != TrialKind.ENCODER:
        return None
    trained = trial if trial.get("student") else outputs.get(StepName.DISTILLATION, {}).get("facts", {})
    return Student(trained.get("student") or Student.ADAPTER)


def other_arms(student: Student | None) -> list[Arm]:
    """The arms with the students that a compile's model is not."""
    return [arm for arm, one in STUDENT_ARMS.items() if student is not None and one is not student]


def check_student(source: Compile, wanted: Student) -> None:
    """Raises Conflict unless the compile's model is another student of an encoder."""
    steps = StepRun.objects.filter(tenant_id=source.tenant_id, compile=source)
    student = student_of(steps, read_stored_spec(source.spec))
    if student is None:
        raise Conflict(
            "The arms adapter, contrastive and frozen are for label tasks whose model is an encoder's. Ablate this "
            "compile with all or random.",
            code="not_ablatable",
        )
    if student is wanted:
        raise Conflict(
            f"The model of this compile is the {student} already, so the arm would be the same again. Take the arm "
            f"{' or '.join(other_arms(student))}.",
            code="not_ablatable",
        )


def check_budget(expected: Estimate, budget_microusd: int) -> None:
    least = max(expected.total.low, expected.worst_batch)
    if budget_microusd >= least:
        return
    message = (
        f"A budget of {usd_exact(budget_microusd)} is below the least that this arm needs, {usd_exact(least)} "
        f"(expected {usd(expected.total.expected)}). Give `budget_microusd` of that much or more."
    )
    problem = Problem(pointer="/budget_microusd", message=message, code="budget_below_estimate")
    raise InvalidSpec(message, code="budget_below_estimate", problems=(problem,))
