"""The estimate has what on-policy distillation adds: the teacher's reading, and a second training."""

from typing import Any

from backend.domain.lifecycle import StepName
from backend.domain.planning.estimates import Estimate, estimate
from backend.domain.spec.parsing import parse_spec

VLLM = {
    "provider": "openai_compatible",
    "model": "big",
    "base_url": "https://vllm.example/v1",
    "engine": "vllm",
    "price": {"input_usd_per_mtok": 10, "output_usd_per_mtok": 20},
}


def estimated(teacher: dict[str, Any] = VLLM, **causal: Any) -> Estimate:
    gold = [{"input": f"mail number {i} about a parcel", "output": f"A parcel, {i}."} for i in range(80)]
    spec = {
        "name": "summaries",
        "task": "Say what it is about.",
        "output": {"type": "text"},
        "teacher": teacher,
        "train": {"causal": causal},
        "examples": {"inline": gold},
    }
    return estimate(parse_spec(spec), n_gold_train=14, n_heldout=6)


def test_the_teachers_reading_and_the_second_training_are_in_the_distillation() -> None:
    plain, half, whole = estimated(), estimated(on_policy=0.5), estimated(on_policy=1.0)
    steps = [one.steps[StepName.DISTILLATION] for one in (plain, half, whole)]
    for bound in ("low", "expected", "high"):
        costs = [getattr(step, bound) for step in steps]
        assert costs == sorted(set(costs)), bound
    assert plain.steps[StepName.LABELING] == whole.steps[StepName.LABELING]
    assert not any("on_policy" in line for line in plain.assumptions)
    assert any("answers of the student (train.causal.on_policy)" in line for line in whole.assumptions)


def test_what_the_teacher_reads_is_not_the_platforms() -> None:
    dear = VLLM | {"price": {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}}
    cheap, dearer = (estimated(teacher=teacher, on_policy=1.0) for teacher in (VLLM, dear))
    assert cheap.steps[StepName.DISTILLATION].high < dearer.steps[StepName.DISTILLATION].high
    assert cheap.platform_high == dearer.platform_high
