"""The bench of the draft store: its own arithmetic, and a small run of the whole."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploy.embedded.home import ROOT
from tests.bench.drafts_oracle import auc_of
from tests.bench.drafts_world import COPY_COSINE, classes_of, make_world, zipf_sizes
from tests.bench.selection_speed import PEERS


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOLM_DATA", "/nowhere")


def test_tenants_share_all_slices_by_zipfs_law() -> None:
    sizes = zipf_sizes(320_000, 1_000)
    assert sum(sizes) == 320_000
    assert len(sizes) == 1_000
    assert sizes[0] == pytest.approx(2 * sizes[1], rel=1e-3)
    assert sizes[0] == pytest.approx(100 * sizes[99], rel=1e-2)


def test_an_oracle_that_sees_nothing_is_at_chance_and_one_that_sees_all_is_right() -> None:
    rng = np.random.default_rng(0)
    blind = auc_of(rng.random(400), rng.random(400))
    assert blind.low < 0.52
    assert blind.auc < 0.56
    assert auc_of([1.0] * 400, [2.0] * 400).auc == 1.0  # the side is taken as known
    assert auc_of([3.0, 3.0], [3.0, 3.0]).auc == 0.5


def test_two_slices_of_one_question_are_as_near_as_said(without_data: None) -> None:
    world = make_world(2_000, 10)
    pair = classes_of(world)["largest"][0]
    rows = world.rows[pair.start : pair.stop]
    questions = world.questions[list(pair.topics)].reshape(-1, rows.shape[1])
    nearest = (rows @ questions.T).argmax(axis=1)
    of_one = rows[nearest == np.bincount(nearest).argmax()]
    cosines = (of_one @ of_one.T)[np.triu_indices(len(of_one), 1)]
    assert np.median(cosines) == pytest.approx(COPY_COSINE, abs=0.03)


@pytest.mark.timeout(300)
@pytest.mark.skipif(not (PEERS / "faiss").exists(), reason="no FAISS in .bench-peers: `make bench-drafts` fetches it")
def test_a_small_run_finds_everything_and_another_tenant_nothing(tmp_path: Path) -> None:
    out = tmp_path / "drafts.md"
    variables = os.environ | {"KOLM_DATA": "/nowhere", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.bench.drafts", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.read_text().splitlines()]
    ours = [row for row in cells if "ours" in row[0] and len(row) == 7]
    assert len(ours) == 3 * 4  # designs, sizes
    assert {row[5] for row in ours} == {"1.000"}
    assert {row[6].split()[0] for row in ours} == {"0"}
    (told,) = [row for row in cells if row[0] == "ours" and len(row) == 3]
    assert told[1].startswith("0.50")
