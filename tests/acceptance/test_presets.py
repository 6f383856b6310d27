"""The tour (docs/tour.md) with the key that the console makes unless it is told otherwise, and the CI recipe with the
preset CI: not a scope is missing on the way."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from backend.tenants.api_keys.permission_presets import CI, COMMAND_LINE, SERVING
from deploy.embedded.home import ROOT
from tests.acceptance.conftest import STREET
from tests.acceptance.deployment import Customer, Deployment, Row

pytestmark = pytest.mark.timeout(300)

# of the tour, what has tests of its own: listening goes on for ever, `make demo-json` compiles what `chat` asks
APART = ("webhooks listen", "chat orders")


def key_of(customer: Customer, preset: str) -> str:
    made = customer.api.post("/v1/api_keys", json={"name": preset, "preset": preset})
    assert made.status_code == 201, made.text
    return str(made.json()["secret"])


def kolm(folder: Path, deployment: Deployment, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    ours = ("KOLM_", "DATABASE_", "REDIS_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"KOLM_CONFIG": str(folder / "config.json"), "KOLM_KEYRING": str(folder / "keyring.json")}
    environ |= {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-m", "gpu_runners.cli", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=250)


def tour() -> list[str]:
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    return re.findall(r"^ {4}kolm (.+)$", text, re.MULTILINE)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_tour_is_walked_with_the_console_s_usual_key(
    deployment: Deployment, customer: Customer, tmp_path: Path
) -> None:
    key = key_of(customer, COMMAND_LINE.name)
    (tmp_path / "spec.json").write_text(json.dumps(STREET))
    assert kolm(tmp_path, deployment, "login", "--api", deployment.url, "--key", key).returncode == 0
    newest = ""
    for line in tour():
        if line == "login" or line.startswith(APART):
            continue
        line = line.replace("examples/refund-router.yaml", "spec.json").replace("refund-router.kolm", "street.kolm")
        line = line.replace("$ID", newest).replace("http://127.0.0.1:8000", deployment.url)
        done = kolm(tmp_path, deployment, *shlex.split(line), *(["--yes"] if line.startswith("trust") else []))
        assert done.returncode == 0, (line, done.stdout[-1500:], done.stderr[-1500:])
        found = re.search(r"\bcmp_\w+", done.stdout)
        newest = found[0] if found else newest
    assert (tmp_path / "street.kolm").exists()


@pytest.mark.nightly
def test_ci_compares_and_fetches_and_serving_asks(
    deployment: Deployment, customer: Customer, compile: Row, tmp_path: Path
) -> None:
    """The compile of the recipe's line is the twins' by its idempotency key's sibling: fetched, compared, not paid for
    again."""
    ci, serving = key_of(customer, CI.name), key_of(customer, SERVING.name)
    access = {"KOLM_API_URL": deployment.url, "KOLM_API_KEY": ci}
    (tmp_path / "spec.json").write_text(json.dumps(STREET))
    line = ["compile", "spec.json", "--watch", "--compare-last", "--out", "router.kolm", "--idempotency-key", "ci-1"]
    done = kolm(tmp_path, deployment, *line, **access)
    assert done.returncode == 0, done.stderr[-1500:]
    assert "against" in done.stdout + done.stderr  # the last version's K-score
    assert (tmp_path / "router.kolm").exists()
    asked = customer.api.post(
        f"/v1/artifacts/{compile['artifact']}/run",
        json={"inputs": ["i want my money back"]},
        headers={"Authorization": f"Bearer {serving}"},
    )
    assert asked.status_code == 200, asked.text
    for path in (f"/v1/artifacts/{compile['artifact']}/download", "/v1/compiles", "/v1/usage"):
        refused = customer.api.get(path, headers={"Authorization": f"Bearer {serving}"})
        assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope"), path
