"""The verifier recomputes the K-score of a file from its figures, by the formula that the file names."""

from typing import Any

import pytest

from backend.domain.artifact.building import build_kolm
from backend.domain.artifact.kolm_verify import verify
from backend.domain.canonical import canonical_json
from backend.domain.evaluation.kscore import k_score
from backend.domain.evaluation.own_time import Clock, OwnTime, Unit
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, keyring, members

# as the release before k-score-2 wrote it: 92 % right, 300 kB, 5 ms
FIRST: dict[str, Any] = {
    "formula": "k-score-1",
    "accuracy_ppm": 920_000,
    "size_ppm": 726_847,
    "latency_ppm": 952_381,
    "cost_ppm": 999_800,
    "coverage_ppm": 1_000_000,
    "composite_ppm": 919_854,
    "size_bytes": 300_000,
    "p50_us": 5_000,
    "cost_nanousd": 200,
    "rule_coverage_ppm": 0,
}
TIME = OwnTime(unit=Unit.TOKEN, clock=Clock.CPU, measured_ns=9_000_000, reference_ns=4_400_000, units_milli=41_500)
SECOND = k_score(
    accuracy_ppm=920_000,
    coverage_ppm=990_000,
    n=100,
    size_bytes=81_000_000,
    own=TIME,
    cost_nanousd=50_000,
    p50_us=400_000,
).to_json()


def verdict_on(score: dict[str, Any]) -> str:
    """Signed by a key that is trusted, so that arithmetic alone is in doubt."""
    content = members(**{"k_score.json": canonical_json(score)})
    try:
        data = build_kolm(content, manifest_fields=fields(k_score_ppm=score["composite_ppm"]), key=KEY)
    except ValueError as refused:
        return str(refused)
    return verify(data, keyring()).status


@pytest.mark.parametrize("score", [FIRST, SECOND])
def test_files_of_either_formula_are_trusted(score: dict[str, Any]) -> None:
    assert verdict_on(score) == "trusted"


@pytest.mark.parametrize("score", [FIRST, SECOND])
@pytest.mark.parametrize("axis", ["accuracy", "size", "latency", "cost", "coverage"])
def test_an_axis_that_was_bettered_is_found(score: dict[str, Any], axis: str) -> None:
    wrong = score | {f"{axis}_ppm": score[f"{axis}_ppm"] + 9}
    assert "is not" in verdict_on(wrong)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"own_us": 1}, "own_us is not what was measured"),
        ({"reference_ns": 9_000_000}, "own_us is not what was measured"),
        ({"unit": "word"}, "no unit"),
        ({"unit": "answer"}, "size_ppm is not"),
        ({"measured_ns": 0.5}, "float"),
        ({"measured_ns": None}, "lacks a figure"),
        ({"composite_ppm": 990_000}, "not the sum of its axes"),
    ],
)
def test_figures_that_do_not_belong_together_are_found(changed: dict[str, Any], reason: str) -> None:
    assert reason in verdict_on(SECOND | changed)


def test_a_formula_of_a_later_release_is_its_signers_word() -> None:
    assert verdict_on(SECOND | {"formula": "k-score-9", "own_us": 1}) == "trusted"
