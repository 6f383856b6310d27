"""Which student became a compile's model, by what its steps wrote down."""

from typing import Any

import pytest

from backend.compiles.lifecycle.ablation_checks import other_arms, student_of
from backend.compiles.models import StepRun
from backend.domain.jobs.students import Student
from backend.domain.lifecycle import StepName, StepStatus
from backend.domain.planning.ablations import Arm
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.spec.test_parsing import document


def steps(trials: list[dict[str, Any]], chosen: int, **first: Any) -> list[StepRun]:
    outputs = {
        StepName.DISTILLATION: {"facts": first},
        StepName.EVALUATION: {"digests": {}, "facts": {"trials": trials, "chosen": chosen}},
    }
    return [StepRun(name=name, status=StepStatus.SUCCEEDED, output=output) for name, output in outputs.items()]


ENCODER = {"kind": "encoder"}


@pytest.mark.parametrize(
    ("trials", "chosen", "student"),
    [
        ([ENCODER], 0, "frozen"),  # of a release that kept no student with its trials
        ([ENCODER | {"student": "frozen"}], 0, "frozen"),
        ([ENCODER | {"student": "frozen"}, ENCODER | {"student": "adapter"}], 1, "adapter"),
        ([ENCODER | {"student": "frozen"}, {"kind": "causal"}], 1, None),
    ],
)
def test_the_student_is_the_chosen_trials(trials: list[dict[str, Any]], chosen: int, student: str | None) -> None:
    expected = None if student is None else Student(student)
    assert student_of(steps(trials, chosen, student="frozen"), parse_spec(document())) is expected


def test_the_other_arms_are_of_the_students_that_the_model_is_not() -> None:
    assert other_arms(Student.FROZEN) == [Arm.ADAPTER, Arm.CONTRASTIVE]
    assert other_arms(Student.ADAPTER) == [Arm.CONTRASTIVE, Arm.FROZEN]
    assert other_arms(None) == []
