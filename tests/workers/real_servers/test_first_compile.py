"""The script of docs/first-compile.md, as it stands there, at a llama-server of which it says no more than the address:
from a CSV through nine steps, with a runner that trains, to a file or to words that say what to do.

Gemma 3 270M is no instruct model: by itself it writes on until the limit, and every candidate is cut. The server's
owner holds it to a line that begins with a label, by llama-server's `--grammar`; vLLM and `transformers serve` have no
such setting, and 60 candidates of 500 tokens are hours of a core. What its labels are worth is chance: the hundred gold
pairs of the page carry the gate.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.home import ROOT
from tests.acceptance.deployment import running
from tests.acceptance.first_compile_page import LABELS, make_desk, run_script
from tests.workers.real_servers.servers import missing_llama, running_llama
from tests.workers.real_servers.wire import Wire, listening

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
ONE_OF = " | ".join(f'"{label}"' for label in LABELS)
ONE_LINE = f'root ::= ({ONE_OF}) ": " [A-Z] [a-z ,\']{{16,90}} [.?!]'


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[Wire]:
    """A llama-server that answers in one line."""
    if missing := missing_llama():
        pytest.skip(missing)
    with running_llama(tmp_path, "--grammar", ONE_LINE) as server, listening(server) as wire:
        yield wire


def test_the_script_of_the_page_ends_with_a_file_or_with_what_to_do(
    brief: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = make_desk(tmp_path, monkeypatch)
    # nothing is killed here: no lease may run out because the machine is busy
    leases = {"KOLM_COMPILE_LEASE_S": "12", "KOLM_RUNNER_LEASE_S": "12"}
    with running(allow_teachers=brief.origin, **leases) as deployment, deployment.customer("Acme") as customer:
        names, words = run_script(monkeypatch, deployment, customer, brief.base_url, brief.server.model)
    shown, done = capsys.readouterr().out, names.get("done")
    print(shown, words, done, [one.answered for one in brief.refused], len(brief.answered), sep="\n")
    assert "passed teacher" in shown
    assert done is not None, words
    assert (desk / "ticket-router.kolm").exists() == (words == "")
    if done.failure is not None:
        assert re.search(rf"^### {done.failure.code}$", ERRORS, re.MULTILINE), words
    elif words:
        assert (done.status, words) == ("gate_failed", f"Nothing was published: {done.gate['next_step']}")
    assert len(brief.refused) <= 3, "what was refused once is not asked for again"
