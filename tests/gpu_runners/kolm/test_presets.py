"""Every command that asks the API, with a key of every preset: what a preset is meant for works, and nothing else.

A command counts as allowed when the API does not refuse it for a scope; that its object is not there (these tests have
no worker) is found after the scopes. tests/acceptance/test_presets.py walks the tour itself."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from backend.domain.ids import Prefix, encode_id
from backend.tenants.api_keys.permission_presets import PRESETS
from gpu_runners import kolm
from gpu_runners.cli.main import kolm as command
from gpu_runners.cli.main import main
from tests.acceptance.deployment import Customer
from tests.compile_factories import small_spec
from tests.gpu_runners.cli.command_reference import commands, takes_api
from tests.gpu_runners.kolm.test_listen import listening
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(180)]


def absent(prefix: Prefix) -> str:
    return encode_id(prefix, UUID("01890000-0000-7000-8000-000000000001"))


CMP, ART, DEP = absent(Prefix.COMPILE), absent(Prefix.ARTIFACT), absent(Prefix.DEPLOYMENT)
WE, WHD = absent(Prefix.WEBHOOK_ENDPOINT), absent(Prefix.WEBHOOK_DELIVERY)
DRF, BUD, KEY = absent(Prefix.DRAFT), absent(Prefix.BUDGET), absent(Prefix.API_KEY)
TK = absent(Prefix.TEACHER_KEY)

# command -> what it is tried with; {name} is each key's own; SPEC and BAD are files
TRIED: dict[str, str] = {
    "init": "init rows.csv --yes --force",
    "upload": "upload rows.csv",
    "compile": "compile SPEC --no-wait --compare-last",
    "doctor": "doctor BAD",
    "pull": f"pull {ART}",
    "cancel": f"cancel {CMP}",
    "resume": f"resume {CMP} --no-wait",
    "ls": "ls --limit 5",
    "show": f"show {CMP}",
    "whoami": "whoami",
    "logs": f"logs {CMP}",
    "open": "open no-such-name --print",
    "keys ls": "keys ls",
    "keys create": "keys create {name} --preset serving",
    "keys revoke": f"keys revoke {KEY}",
    "teacher-keys ls": "teacher-keys ls",
    "teacher-keys add": "teacher-keys add {name}",
    "teacher-keys test": f"teacher-keys test {TK} http://127.0.0.1:9/v1",
    "teacher-keys rm": f"teacher-keys rm {TK}",
    "usage": "usage --by step",
    "prices": "prices",
    "bill": "bill",
    "budgets ls": "budgets ls",
    "budgets set": "budgets set 20",
    "budgets rm": f"budgets rm {BUD}",
    "webhooks ls": "webhooks ls",
    "webhooks create": "webhooks create http://127.0.0.1:9/{name}",
    "webhooks rm": f"webhooks rm {WE}",
    "webhooks test": f"webhooks test {WE}",
    "webhooks deliveries": "webhooks deliveries --status failed",
    "webhooks replay": f"webhooks replay {WHD}",
    "deployments ls": "deployments ls",
    "deployments create": f"deployments create {{name}} {ART}",
    "deployments set": f"deployments set {DEP} --idle-minutes 5",
    "deployments promote": f"deployments promote {DEP}",
    "deployments rollback": f"deployments rollback {DEP}",
    "deployments drain": f"deployments drain {DEP}",
    "deployments start": f"deployments start {DEP}",
    "deployments rm": f"deployments rm {DEP}",
    "chat": f"chat {DEP} hello",
    "drafts stats": "drafts stats",
    "drafts list": "drafts list",
    "drafts show": f"drafts show {DRF}",
    "drafts verdicts": f"drafts verdicts {CMP}",
    "drafts preview": "drafts preview BAD",
    "drafts delete": f"drafts delete {DRF}",
    "drafts purge": "drafts purge --family {name} --yes",
    "registry list": "registry list",
    "registry pull": "registry pull 7",
    "registry contributions": "registry contributions",
    "registry withdraw": "registry withdraw --yes",
}
ALWAYS = {"init"}  # a key only spares a question
APART = {"login", "webhooks listen", "ablate"}  # tests of their own below
READS = {
    *(
        "pull",
        "ls",
        "show",
        "logs",
        "open",
        "whoami",
        "keys ls",
        "teacher-keys ls",
        "usage",
        "prices",
        "bill",
        "budgets ls",
    ),
    *("webhooks ls", "webhooks deliveries", "deployments ls"),
    *("drafts stats", "drafts list", "drafts show", "drafts verdicts", "drafts preview"),
    *("registry list", "registry pull", "registry contributions"),
}
MEANT_FOR: dict[str, set[str]] = {
    "command_line": set(TRIED) - {"keys create", "keys revoke"},
    "ci": {
        *("compile", "doctor", "pull", "cancel", "resume", "ls", "show", "logs", "whoami", "prices"),
        *("registry list", "registry pull", "registry contributions"),
    },
    "serving": {"whoami", "open", "deployments ls", "chat"},
    "read_only": READS,
    "everything": set(TRIED),
}


@pytest.fixture(scope="module")
def keys(stack: WebStack) -> Iterator[dict[str, str]]:
    """preset -> a key of it, made by the API."""
    with stack.deployment.customer("Presets") as customer, kolm.Client(customer.key, stack.deployment.url) as client:
        made = {name: client.api_keys.create(name, preset=name) for name in PRESETS}
        assert {name: set(key.scopes) for name, key in made.items()} == {
            name: set(preset.scopes) for name, preset in PRESETS.items()
        }
        yield {name: str(key.secret) for name, key in made.items()}


@pytest.fixture
def is_refused(
    stack: WebStack, keys: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str, str], bool]:  # fmt: skip
    """Whether the key of a preset lacks a scope for a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KOLM_API_URL", stack.deployment.url)
    (tmp_path / "bad.json").write_text("{}")  # found after the scopes, and no worker has to look
    (tmp_path / "rows.csv").write_text("text,label\n" + "where is it,a\nsend it back,b\n" * 30)
    (tmp_path / "spec.json").write_text(json.dumps(small_spec(name="by-preset")))

    def act(preset: str, line: str) -> bool:
        monkeypatch.setenv("KOLM_API_KEY", keys[preset])
        name = f"of-{preset.replace('_', '-')}"
        words = line.format(name=name).replace("SPEC", "spec.json").replace("BAD", "bad.json").split()
        monkeypatch.setattr("sys.stdin", io.StringIO("sk-teacher-0123456789\n"))
        capsys.readouterr()
        main(words)
        err = capsys.readouterr().err
        assert "Traceback" not in err
        return "lacks the scope" in err or "missing_scope" in err

    return act


def test_every_command_that_asks_the_api_is_tried() -> None:
    assert {name for name, each in commands(command) if takes_api(each)} == set(TRIED) | APART


def test_every_preset_has_its_commands() -> None:
    assert set(MEANT_FOR) == set(PRESETS)
    assert all(found <= set(TRIED) for found in MEANT_FOR.values())


@pytest.mark.nightly
@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_key_can_do_what_its_preset_is_meant_for_and_no_more(
    preset: str, is_refused: Callable[[str, str], bool]
) -> None:
    allowed = {command for command, line in TRIED.items() if not is_refused(preset, line)}
    assert allowed == MEANT_FOR[preset] | ALWAYS


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_key_of_any_preset_can_log_in(
    preset: str, stack: WebStack, keys: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["login", "--api", stack.deployment.url, "--key", keys[preset]]) == 0
    assert "as Presets (ten_" in capsys.readouterr().out


def test_a_good_key_without_the_team_s_name_can_log_in_all_the_same(
    stack: WebStack, customer: Customer, client: kolm.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the console made them until 2026-11."""
    key = client.api_keys.create("old", scopes=["compiles:read", "compiles:write"]).secret
    assert main(["login", "--api", stack.deployment.url, "--key", str(key)]) == 0
    assert "may not see its team's name" in capsys.readouterr().out
    assert main(["ls"]) == 0


LISTENS = {"command_line", "read_only", "everything"}


@pytest.mark.parametrize("preset", sorted(LISTENS))
def test_whose_key_reads_webhooks_can_listen(preset: str, stack: WebStack, keys: dict[str, str]) -> None:
    with listening(stack, SimpleNamespace(key=keys[preset]), 9) as process:  # type: ignore[arg-type]
        assert process.stdout is not None
        assert process.stdout.readline() != ""


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - LISTENS))
def test_whose_key_does_not_read_webhooks_cannot_listen(preset: str, is_refused: Callable[[str, str], bool]) -> None:
    assert is_refused(preset, "webhooks listen --json --forward http://127.0.0.1:9/hooks")


def test_an_ablation_begins_with_a_compile(is_refused: Callable[[str, str], bool]) -> None:
    """Where that may be started the command waits for it, and nobody works here."""
    assert is_refused("read_only", "ablate SPEC")
    assert is_refused("serving", "ablate SPEC")


def test_a_key_gives_no_preset_that_is_more_than_itself(stack: WebStack, client: kolm.Client) -> None:
    own = client.api_keys.create("maker", scopes=["api_keys:write", *PRESETS["serving"].scopes])
    with kolm.Client(own.secret, stack.deployment.url) as maker:
        assert set(maker.api_keys.create("app", preset="serving").scopes) == set(PRESETS["serving"].scopes)
        with pytest.raises(kolm.Forbidden, match="cannot grant a scope"):
            maker.api_keys.create("more", preset="ci")


def test_a_key_is_made_of_scopes_or_of_a_preset_and_not_of_both(client: kolm.Client) -> None:
    with pytest.raises(kolm.InvalidRequest, match="either"):
        client.api_keys.create("none")
    with pytest.raises(kolm.InvalidRequest, match="either"):
        client.api_keys.create("both", scopes=["compiles:read"], preset="ci")
    with pytest.raises(kolm.InvalidRequest):
        client.api_keys.create("odd", preset="root")
