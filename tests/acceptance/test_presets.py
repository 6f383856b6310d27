"""The tour (docs/tour.md) with the key that the console makes unless it is told otherwise, and the CI recipe with the
preset CI: not a scope is missing on the way."""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from backend.tenants.api_keys.permission_presets import CI, COMMAND_LINE, SERVING
from deploy.embedded.home import ROOT
from gpu_runners.cli.main import main
from tests.acceptance.conftest import STREET
from tests.acceptance.deployment import Customer, Deployment, Row

pytestmark = pytest.mark.timeout(300)
Kolm = Callable[..., tuple[int, str]]

# of the tour, what has tests of its own: listening goes on for ever, `make demo-json` compiles what `chat` asks
APART = ("webhooks listen", "chat orders")


def key_of(customer: Customer, preset: str) -> str:
    made = customer.api.post("/v1/api_keys", json={"name": preset, "preset": preset})
    assert made.status_code == 201, made.text
    return str(made.json()["secret"])


@pytest.fixture
def kolm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kolm:
    """`kolm("ls")` -> (exit code, all that it printed), in a folder with a log-in and a keyring of its own."""
    for name in [name for name in os.environ if name.startswith("KOLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CI", "true")  # `kolm open` opens nothing
    monkeypatch.setenv("KOLM_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.chdir(tmp_path)

    def act(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(words)
        return code, "".join(capsys.readouterr())

    return act


def tour() -> list[str]:
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    return re.findall(r"^ {4}kolm (.+)$", text, re.MULTILINE)


@pytest.mark.nightly
def test_the_tour_is_walked_with_the_console_s_usual_key(
    deployment: Deployment, customer: Customer, kolm: Kolm, tmp_path: Path
) -> None:
    key = key_of(customer, COMMAND_LINE.name)
    (tmp_path / "spec.json").write_text(json.dumps(STREET))
    (tmp_path / "tickets.csv").write_text("message\nwhere is my money?\n")
    assert kolm("login", "--api", deployment.url, "--key", key)[0] == 0
    newest = ""
    for line in tour():
        if line == "login" or line.startswith(APART):
            continue
        line = line.replace("examples/refund-router.yaml", "spec.json").replace("refund-router.kolm", "street.kolm")
        line = line.replace("$ID", newest).replace("http://127.0.0.1:8000", deployment.url)
        code, text = kolm(*shlex.split(line), *(["--yes"] if line.startswith("trust") else []))
        assert code == 0, (line, text[-3000:])
        found = re.search(r"\bcmp_\w+", text)
        newest = found[0] if found else newest
    assert (tmp_path / "street.kolm").exists()


@pytest.mark.nightly
def test_ci_compares_and_fetches_and_serving_asks(
    deployment: Deployment, customer: Customer, compile: Row, kolm: Kolm, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The compile of the recipe's line is the twins' by its idempotency key's sibling: fetched, compared, not paid for
    again."""
    ci, serving = key_of(customer, CI.name), key_of(customer, SERVING.name)
    monkeypatch.setenv("KOLM_API_URL", deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", ci)
    (tmp_path / "spec.json").write_text(json.dumps(STREET))
    line = ["compile", "spec.json", "--watch", "--compare-last", "--out", "router.kolm", "--idempotency-key", "ci-1"]
    code, text = kolm(*line)
    assert code == 0, text[-1500:]
    assert "against" in text  # the last version's K-score
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
