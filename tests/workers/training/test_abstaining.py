"""What the pairs that calibrated a model can show of the threshold of one that abstains."""

import pytest

from backend.domain.evaluation.abstaining import ThresholdBasis
from backend.domain.jobs.runner_jobs import DistillResult
from backend.domain.spec.parsing import parse_spec
from tests.backend.domain.spec.test_parsing import document
from workers.training.abstaining import threshold_of

LABELS = [{"name": "refund"}, {"name": "other"}]
TRAINED = DistillResult(
    adapter_sha256="a" * 64,
    adapter_config={},
    base_model_sha256="b" * 64,
    n_pairs=200,
    n_parameters=1,
    temperature=1.0,
    training_log=[],
    active={},
    runner_ms=1,
    resumed_from_epoch=0,
    held_confidences_ppm=[970_000] * 90,
    held_right=[True] * 90,
)


@pytest.mark.parametrize(
    ("chosen", "basis"), [("all", "bound"), ("class_weights", "bound"), ("half", "bound"), ("without_10", "confidence")]
)
def test_a_cut_of_the_most_contradicted_pairs_leaves_no_bound(chosen: str, basis: str) -> None:
    spec = parse_spec(document(output={"type": "label", "labels": LABELS, "abstain": {"accuracy": 0.95}}))
    cuts = [{"name": name, "chosen": name == chosen} for name in ("all", "without_10", "class_weights", "half")]
    threshold = threshold_of(spec, TRAINED, cuts)
    assert threshold is not None
    assert (threshold.basis, threshold.ppm, threshold.n) == (ThresholdBasis(basis), 970_000, 90)


def test_a_task_that_does_not_abstain_has_none() -> None:
    assert threshold_of(parse_spec(document()), TRAINED, []) is None
