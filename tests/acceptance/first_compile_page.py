"""The script of docs/first-compile.md, run as it stands there, beside a `tickets.csv` of the demo's rows."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Deployment

PAGE = (ROOT / "docs" / "first-compile.md").read_text(encoding="utf-8")
LABELS = ("refund_request", "refund_status", "refund_policy", "complaint", "other")


def make_desk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with tickets.csv, what the demo's people wrote, as the current one."""
    gold = yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text())["examples"]["inline"]
    with (folder / "tickets.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["message", "intent"])
        table.writerows([row["input"], row["output"]] for row in gold)
    monkeypatch.setenv("KOLM_KEYRING", str(folder / "keyring.json"))
    monkeypatch.chdir(folder)
    return folder


def run_script(
    monkeypatch: pytest.MonkeyPatch, deployment: Deployment, customer: Customer, url: str, model: str
) -> tuple[dict[str, Any], str]:
    """Run the script: its names, and the words it ended with before its end, "" where it came to that."""
    environment = {"KOLM_API_URL": deployment.url, "KOLM_API_KEY": customer.key, "TEACHER_KEY": "sk-test-of-the-page"}
    environment |= {"TEACHER_URL": url, "TEACHER_MODEL": model, "TEACHER_PRICE_IN": "0.5", "TEACHER_PRICE_OUT": "1.5"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {}
    script = compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "first-compile.md", "exec")
    try:
        exec(script, names)
    except SystemExit as ended:
        return names, str(ended)
    return names, ""


def run_page(monkeypatch: pytest.MonkeyPatch, deployment: Deployment, customer: Customer, url: str, model: str) -> Any:
    """Run the script; its names. AssertionError has what it says when nothing was published, and the whole gate."""
    names, words = run_script(monkeypatch, deployment, customer, url, model)
    done = names.get("done")
    assert not words, f"{words} {done and (done.status, done.failure, done.gate)}"
    return names
