"""The claim of `estimates_hold`, decided on rows made by hand; and that its specs are specs."""

import csv
from pathlib import Path
from typing import Any

import pytest

from backend.domain.spec.parsing import parse_spec
from tests.bench.estimates_hold import holds, ratio, report
from tests.bench.estimates_specs import N_SPECS, cases

UPLOAD = "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"


def row(actual: int, *, expected: int = 1000, high: int = 3000) -> dict[str, Any]:
    total = {"low_microusd": 1, "expected_microusd": expected, "high_microusd": high}
    steps = [{"name": "labeling", "estimate": total, "spent_microusd": actual}]
    return {"name": "a", "status": "succeeded", "estimate": total, "spent_microusd": actual, "steps": steps}


def test_nine_of_ten_within_a_tenth_and_none_above_high() -> None:
    rows = [row(1000 + 10 * i) for i in range(10)] + [row(1500)]
    assert holds(rows)
    assert not holds([*rows, row(1500)])
    assert not holds([*rows, row(3001, expected=3000)])
    assert ratio(row(1500)) == 1.5


def test_the_report_has_a_line_a_compile_and_the_sums_of_each_step() -> None:
    text = report([row(900), row(1100)])
    assert "| a | succeeded | 1,000 | 900 | 0.900 | 3,000 |" in text
    assert "2 compiles. Off the expected by at most: 50% 10.0%" in text
    assert "| labeling | 2,000 | 2,000 | 1.000 |" in text


@pytest.mark.nightly
def test_every_spec_can_be_parsed(tmp_path: Path) -> None:
    """BANKING77's two files, made up."""
    (tmp_path / "banking77").mkdir()
    for name in ("train", "test"):
        with (tmp_path / "banking77" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "category"])
            writer.writerows([[f"{name} {i}", f"intent-{i % 77}"] for i in range(770)])
    made = list(cases(tmp_path, server="http://127.0.0.1:1/v1"))
    assert len({case.name for case in made}) == len(made) == N_SPECS
    for case in made:
        spec = dict(case.spec)
        for place in case.uploads:
            key = "teacher" if place == "recording" else place
            spec[key] = spec.get(key, {}) | {"recording" if place == "recording" else "upload": UPLOAD}
        parse_spec(spec)
