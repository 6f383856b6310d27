"""Trials as a step's row keeps them: they come back, and rows of before are read."""

import json
from typing import Any

import pytest

from backend.domain.planning.trial_records import TrialRecord
from backend.domain.planning.trials import TrialOutcome

TRIAL = {"kind": "causal", "rank": 16, "alpha": 32, "why": "auto"}
OUTCOME = {"trial": TRIAL, "passed": True, "k_score_ppm": 9, "cost_microusd": 4, "failure": ""}
ROWS: list[dict[str, Any]] = [
    {"trial": TRIAL},
    {"trial": TRIAL, "distill": "1", "evaluate": "2"},
    {
        "trial": TRIAL, "distill": "1", "evaluate": "2", "recipes": "3", "outcome": OUTCOME, "evals": "e",
        "accuracy_ppm": 5, "first_failed": None, "recipes_done": True,
    },
    {
        "trial": TRIAL, "distill": "1", "outcome": OUTCOME | {"passed": False, "failure": "diverged"},
        "why_not": "it diverged",
    },
]  # fmt: skip


@pytest.mark.parametrize("stored", ROWS)
def test_a_row_of_before_is_read_and_written_as_it_was(stored: dict[str, Any]) -> None:
    record = TrialRecord.from_json(stored)
    assert json.loads(json.dumps(record.to_json())) == stored
    assert TrialRecord.from_json(record.to_json()) == record


def test_a_summary_has_the_figures_and_no_job() -> None:
    measured, failed = TrialRecord.from_json(ROWS[2]), TrialRecord.from_json(ROWS[3])
    assert measured.outcome == TrialOutcome.from_json(OUTCOME | {"accuracy_ppm": 5})
    assert measured.summary() == {
        "kind": "causal", "rank": 16, "alpha": 32, "why": "auto", "passed": True, "k_score_ppm": 9,
        "cost_microusd": 4, "failure": "", "evals": "e", "accuracy_ppm": 5, "first_failed": None,
    }  # fmt: skip
    assert failed.summary()["why_not"] == "it diverged"
    assert not {"evals", "accuracy_ppm", "distill"} & set(failed.summary())
