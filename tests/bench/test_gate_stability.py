"""Ten measurements of one artifact, five of them beside a machine's full load: one K-score and one verdict."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.gate_stability import (
    TOLERANCE_PPM,
    Artifact,
    label_artifact,
    row_of,
    runs_of,
    spread_ppm,
    text_artifact,
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("made", [lambda folder: label_artifact(), text_artifact], ids=["labels", "texts"])
def test_ten_measurements_of_an_artifact_on_an_idle_and_a_loaded_machine_give_one_k_score(
    made: Callable[[Path], Artifact], tmp_path: Path
) -> None:
    artifact = made(tmp_path)
    runs = runs_of(artifact)
    assert [run.is_loaded for run in runs].count(True) == 5
    assert spread_ppm([run.score.composite_ppm for run in runs]) <= TOLERANCE_PPM, row_of(artifact, runs)
    assert {run.passed for run in runs} == {True}
