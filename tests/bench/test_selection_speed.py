"""The speed bench's own arithmetic: what a run reports, and what the tables say of it."""

import json

import numpy as np
import pytest

from tests.bench import selection_speed
from tests.bench.selection_speed import GRAM, Measured, child, table_of
from tests.bench.selection_speed_cases import Case


def case(name: str, **options: object) -> Case:
    return Case(table="Clusters", name=name, prepare=lambda pool: lambda: pool.rows.sum(), **options)


def test_a_peer_is_given_as_a_multiple_of_ours_repeat_by_repeat() -> None:
    measured = {
        GRAM: Measured(seconds=[0.5]),
        "ours": Measured(seconds=[1.0, 2.0, 4.0], mb=70.0),
        "theirs": Measured(seconds=[3.0, 8.0, 8.0], mb=0.2),
        "missing": Measured(note="no peer here"),
    }
    cases = [case("ours"), case("theirs", peer_of="ours"), case("missing", peer_of="ours")]
    ours, theirs, missing = table_of("Clusters", cases, {5_000: measured}).splitlines()[-3:]
    assert ours == "| **ours** | 2 s<br>4 x Gram<br>70 MB |"
    assert theirs == "| theirs | 8 s<br>16 x Gram<br>< 1 MB<br>**3 x ours** (2 to 4) |"
    assert missing == "| missing | no peer here |"


def test_an_extrapolated_case_is_multiplied_by_its_factor(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool_file = str(tmp_path / "pool.npz")
    np.savez(pool_file, rows=np.eye(6, dtype=np.float32), scores=np.ones(6), k=2)
    monkeypatch.setattr(selection_speed, "_seconds_of", lambda run: 0.25)
    some = case("loop", factor=lambda pool: 10.0 * pool.k)
    monkeypatch.setitem(selection_speed.CASES, "loop", some)
    child("loop", pool_file)
    assert json.loads(capsys.readouterr().out)["seconds"] == 5.0
