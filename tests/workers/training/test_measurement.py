"""A measurement as its blob keeps it: it comes back, and blobs of before are read."""

import json
from typing import Any

import pytest

from backend.domain.planning.trials import TrialKind
from workers.training.measurement import Measurement, RuleShare, quantiles_us

LABEL: dict[str, Any] = {
    "kind": "encoder",
    "predictions": ["a", "b"],
    "baseline_predictions": ["a", "a"],
    "confidences_ppm": [900_000, 1],
    "latency_us_p50": 10,
    "latency_us_p95": 20,
    "n_latencies": 2,
    "device": "cpu",
    "leakage": {"n_exact": 0, "n_near": 1},
}
RULED = LABEL | {
    "rules": {"is_used": True, "n_answered": 1, "coverage_ppm": 500_000, "marks_ppm": 7, "model_marks_ppm": 6},
    "rule_rows": [1],
    "model_predictions": ["a", "a"],
}
JUDGED = LABEL | {
    "kind": "causal",
    "engine": {"name": "torch"},
    "n_cut": 0,
    "mean_tokens_milli": 1500,
    "failed": [[], ["length"]],
    "verdicts": ["win", "loss"],
    "recipes": {"pack_sha256": "p", "chosen": 1},
}
BESIDE = LABEL | {
    "gold_predictions": ["b", "b"],
    "random_predictions": ["b", "a"],
    "n_random": 7,
    "threshold": {"ppm": 800_000, "target_ppm": 950_000, "basis": "bound", "n": 60},
    "common_answer": "a",
    "teacher": {"rows": [1], "answers": ["b"], "failed": [[]], "why_not": "budget_exhausted"},
}
SPANS = JUDGED | {
    "fields": [
        [{"path": "/sku", "start": 3, "end": 7, "confidence_ppm": 9}],
        [{"path": "/n", "start": None, "end": None}],
    ]
}


@pytest.mark.parametrize("stored", [LABEL, RULED, JUDGED, BESIDE, SPANS])
def test_a_blob_of_before_is_read_and_written_as_it_was(stored: dict[str, Any]) -> None:
    measured = Measurement.from_json(stored)
    assert json.loads(json.dumps(measured.to_json())) == stored
    assert Measurement.from_json(measured.to_json()) == measured


def test_rules_answer_only_where_they_are_used() -> None:
    unused = RULED | {"rules": RULED["rules"] | {"is_used": False}}
    assert Measurement.from_json(unused).used_rules is None
    assert Measurement.from_json(RULED).used_rules == RuleShare(
        is_used=True, n_answered=1, coverage_ppm=500_000, marks_ppm=7, model_marks_ppm=6
    )
    assert Measurement.from_json(LABEL).pack_sha256 == ""
    assert Measurement.from_json(JUDGED).pack_sha256 == "p"


def test_some_rows_are_cut_out_of_every_column_that_has_rows() -> None:
    second = Measurement.from_json(JUDGED).of_rows([1])
    assert (second.kind, second.predictions, second.failed, second.verdicts) == (
        TrialKind.CAUSAL,
        ["b"],
        [["length"]],
        ["loss"],
    )
    assert second.baseline_failed is None
    assert Measurement.from_json(SPANS).of_rows([1]).fields == [SPANS["fields"][1]]
    assert second.confidences_ppm == [900_000, 1]


def test_conditions_are_what_the_artifact_shows_beside_the_figures() -> None:
    assert set(Measurement.from_json(JUDGED).conditions()) == {
        "latency_us_p50", "latency_us_p95", "n_latencies", "device", "leakage", "recipes", "engine", "n_cut",
        "mean_tokens_milli",
    }  # fmt: skip


def test_quantiles_of_few_latencies() -> None:
    assert quantiles_us([3]) == (3, 3)
    assert quantiles_us(list(range(100, 0, -1))) == (51, 96)
