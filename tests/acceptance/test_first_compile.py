"""The script of docs/first-compile.md, as it stands there, from a CSV and a key to a file that answers: against a
teacher that is all it asks for, and against vendors as strict as they are, of which nothing is known at first."""

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.home import ROOT
from gpu_runners.cli.main import main
from tests.acceptance.deployment import Customer, Deployment, running
from tests.acceptance.teacher_server import TeacherServer
from tests.workers.teachers.grammar_writer import serving_grammar
from tests.workers.teachers.strict_vendors import VENDORS, Endpoint
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]
PAGE = (ROOT / "docs" / "first-compile.md").read_text(encoding="utf-8")
LABELS = ("refund_request", "refund_status", "refund_policy", "complaint", "other")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tickets.csv: what the demo's people wrote."""
    gold = yaml.safe_load((ROOT / "examples" / "refund-router.yaml").read_text())["examples"]["inline"]
    with (tmp_path / "tickets.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["message", "intent"])
        table.writerows([row["input"], row["output"]] for row in gold)
    monkeypatch.setenv("KOLM_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_page(monkeypatch: pytest.MonkeyPatch, deployment: Deployment, customer: Customer, url: str, model: str) -> Any:
    """Run the script; its names. AssertionError has what it says when nothing was published, and the whole gate."""
    told = {"KOLM_API_URL": deployment.url, "KOLM_API_KEY": customer.key, "TEACHER_KEY": "sk-test-of-the-page"}
    told |= {"TEACHER_URL": url, "TEACHER_MODEL": model, "TEACHER_PRICE_IN": "0.5", "TEACHER_PRICE_OUT": "1.5"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {}
    script = compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "first-compile.md", "exec")
    try:
        exec(script, names)
    except SystemExit as ended:
        done = names.get("done")
        raise AssertionError(f"{ended} {done and (done.status, done.failure, done.gate)}") from None
    return names


def test_the_script_of_the_page_ends_with_a_file_that_answers(
    deployment: Deployment,
    customer: Customer,
    teacher: TeacherServer,
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = run_page(monkeypatch, deployment, customer, teacher.url, "steady-page")
    assert names["done"].status == "succeeded"
    assert main(["trust", deployment.url, "--yes"]) == 0
    assert main(["verify", "ticket-router.kolm"]) == 0
    capsys.readouterr()
    assert main(["run", "ticket-router.kolm", "i was charged twice, please undo it"]) == 0
    assert any(label in capsys.readouterr().out for label in LABELS)


@pytest.fixture(scope="module")
def vendors() -> Iterator[Mapping[str, Endpoint]]:
    """All of them, each writing as the built-in grammar does, the same in every run."""
    grammar = GrammarModel(shipped_grammar())
    with ExitStack() as stack:
        yield {vendor.name: stack.enter_context(serving_grammar(vendor, grammar)) for vendor in VENDORS}


@pytest.fixture(scope="module")
def open_deployment(vendors: Mapping[str, Endpoint]) -> Iterator[Deployment]:
    allowed = ",".join(endpoint.base_url.removesuffix("/v1") for endpoint in vendors.values())
    with running(allow_teachers=allowed) as deployment:
        yield deployment


@pytest.mark.parametrize("name", [vendor.name for vendor in VENDORS])
def test_the_script_ends_at_every_vendor(
    open_deployment: Deployment,
    vendors: Mapping[str, Endpoint],
    name: str,
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_deployment.customer(name) as customer:
        names = run_page(monkeypatch, open_deployment, customer, vendors[name].base_url, vendors[name].vendor.model)
    assert names["done"].status == "succeeded"
    assert (desk / "ticket-router.kolm").exists()
