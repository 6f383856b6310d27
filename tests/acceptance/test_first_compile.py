"""The script of docs/first-compile.md, as it stands there, from a CSV and a key to a file that answers: against a
teacher that is all it asks for, and against vendors as strict as they are, of which nothing is known at first."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_runners.cli.main import main
from tests.acceptance.deployment import Customer, Deployment, running
from tests.acceptance.first_compile_page import LABELS, make_desk, run_page
from tests.acceptance.teacher_server import TeacherServer
from tests.workers.teachers.grammar_writer import serving_grammar
from tests.workers.teachers.strict_vendors import VENDORS, Endpoint
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_desk(tmp_path, monkeypatch)


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
