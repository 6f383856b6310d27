"""The CI recipe of docs/ci.md: valid, and a missed gate fails it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.gpu_runners.cli.api.small_api import small_api
from tests.gpu_runners.cli.command_reference import parsed

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / "examples" / "ci" / "github-actions.yml"
SPEC = ROOT / "examples" / "refund-router.yaml"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `kolm` is this working copy's."""
    command = tmp_path / "bin" / "kolm"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {sys.executable} -m gpu_runners.cli "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return f"{command.parent}:{os.environ['PATH']}"


def step(name: str) -> str:
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["gate"]["steps"]
    return str(next(each["run"] for each in steps if each.get("name", "").startswith(name)))


def run(script: str, path: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=os.environ | {"PATH": path, **variables},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_workflow_is_valid_yaml_that_asks_for_what_it_needs() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow[True] == {"pull_request": {"paths": ["kolm/**"]}}  # YAML 1.1 reads `on` as true
    job = workflow["jobs"]["gate"]
    assert set(job["env"]) == {"KOLM_API_URL", "KOLM_API_KEY"}
    assert all("uses" in each or "run" in each for each in job["steps"])
    assert "pull_request_target" not in WORKFLOW.read_text()  # a fork's code never meets the secret


@pytest.mark.parametrize(("end", "code"), [("succeeded", 0), ("gate_failed", 4), ("failed", 1)])
def test_the_workflows_own_line_ends_as_the_gate_does(path: str, tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "kolm").mkdir()
    (tmp_path / "kolm" / "router.yaml").write_bytes(SPEC.read_bytes())
    line = step("Compile").replace("${{ github.event.pull_request.head.sha }}", "abc")
    with small_api() as api:
        api.end, api.has_earlier = end, True
        done = run(line, path, tmp_path, KOLM_API_URL=api.url, KOLM_API_KEY="kolm_sk_test")
        assert api.idempotency_keys == ["ci-abc"]
    assert done.returncode == code, done.stderr
    assert "+0.015" in (tmp_path / "compile.log").read_text()
    assert (tmp_path / "router.kolm").exists() == (code == 0)


@pytest.mark.parametrize(("end", "code", "says"), [("succeeded", 0, "gate passed"), ("gate_failed", 4, "gate missed")])
def test_the_plain_shell_ends_the_same(path: str, tmp_path: Path, end: str, code: int, says: str) -> None:
    with small_api() as api:
        api.end = end
        script = f"{ROOT}/examples/ci/gate.sh {SPEC} out.kolm"
        done = run(script, path, tmp_path, KOLM_API_URL=api.url, KOLM_API_KEY="kolm_sk_test", GATE_KEY="abc")
    assert done.returncode == code
    assert says in done.stdout + done.stderr


def test_a_deployment_that_is_away_and_a_wrong_key_have_their_own_codes(path: str, tmp_path: Path) -> None:
    script = f"{ROOT}/examples/ci/gate.sh {SPEC}"
    done = run(script, path, tmp_path, KOLM_API_URL="http://127.0.0.1:9", KOLM_API_KEY="x")
    assert (done.returncode, "does not answer" in done.stderr) == (7, True)


def test_every_option_that_the_recipe_gives_is_one_the_command_has() -> None:
    command = ["compile", "x", "--watch", "--compare-last", "--out", "y", "--idempotency-key", "z"]
    assert parsed(command).params["compare_last"]
