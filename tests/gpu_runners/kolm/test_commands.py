"""The commands that ask a deployment, against a real one: what they print, and their exit codes."""

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_runners import kolm
from gpu_runners.cli.main import main
from tests.acceptance.deployment import Customer
from tests.compile_factories import small_spec
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(120)]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    stack: WebStack, customer: Customer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`run("ls", "--json")` -> (exit code, out, err), as the customer."""
    monkeypatch.setenv("KOLM_API_URL", stack.deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", customer.key)

    def act(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return act


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "spec.json").write_text(json.dumps(small_spec(name="by-hand")))
    return str(tmp_path / "spec.json")


def test_log_in_is_checked_kept_for_the_owner_alone_and_forgotten(
    stack: WebStack, customer: Customer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    config = tmp_path / "kolm-config.json"
    monkeypatch.setattr("sys.stdin", io.StringIO("sk_test_wrong\n"))
    assert main(["login", "--api", stack.deployment.url, "--key", "-"]) == 6
    assert not config.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(customer.key + "\n"))
    assert main(["login", "--api", stack.deployment.url + "/", "--key", "-"]) == 0
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    out = capsys.readouterr().out
    assert "as Acme (ten_" in out
    assert customer.key not in out
    assert main(["whoami", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key_name"] == "tests"
    assert main(["ls", "--profile", "nobody"]) == 1
    assert main(["logout"]) == main(["logout"]) == 0
    assert main(["whoami", "--api", stack.deployment.url]) == 6
    assert "kolm login" in capsys.readouterr().err


def test_a_terminal_is_asked_for_the_key_unseen(
    stack: WebStack, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or stack.deployment.url)
    monkeypatch.setattr("getpass.getpass", lambda question: asked.append(question) or customer.key)
    assert main(["login", "--profile", "local"]) == 0
    assert asked == ["Address of kolm [http://127.0.0.1:8000]: ", "API key (not shown): "]
    assert main(["whoami", "--profile", "local"]) == 0


def test_compiles_are_listed_shown_and_canceled(run: Run, spec: str) -> None:
    code, out, _ = run("compile", spec, "--no-wait", "--json")
    id = json.loads(out)["id"]
    assert code == 0
    assert [json.loads(line)["id"] for line in run("ls", "--name", "by-hand", "--json")[1].splitlines()] == [id]
    assert id in run("ls", "compiles", "--status", "queued", "--limit", "5")[1]
    code, out, _ = run("show", id)
    assert (code, "synthesis" in out, "$1.00" in out) == (0, True, True)
    assert json.loads(run("show", id, "--json")[1])["name"] == "by-hand"
    assert run("cancel", id)[1].startswith(f"{id} by-hand: cancel")
    assert run("compile", spec, "--estimate", "--json")[0] == 0
    code, _, err = run("resume", "cmp_00000000000000000000000000", "--budget", "2.50")
    assert (code, "There is no such compile" in err) == (1, True)


def test_what_has_no_page_of_its_own_cannot_be_shown(run: Run) -> None:
    assert run("show", "step_1")[0] == run("show", "nonsense")[0] == 2
    assert run("show", "art_1")[0] == 1
    assert run("ls", "artifacts", "--status", "queued")[0] == 2
    assert "No artifact fits" in run("ls", "artifacts", "--name", "no-such-name")[1]


def test_keys_are_made_listed_and_revoked(run: Run) -> None:
    code, out, _ = run("keys", "create", "ci", "--scopes", "compiles:read", "--test", "--json")
    made = json.loads(out)
    assert (code, made["scopes"], made["live"]) == (0, ["compiles:read"], False)
    assert made["secret"].startswith("sk_test_")
    everything = json.loads(run("keys", "create", "all of it", "--json")[1])
    assert "api_keys:write" in everything["scopes"]
    assert made["secret"] not in run("keys", "ls")[1]
    assert "revoked" in run("keys", "revoke", made["id"])[1]
    assert run("ls", "--key", made["secret"])[0] == 6
    run("keys", "revoke", everything["id"])


def test_teacher_keys_are_piped_in_listed_tried_and_forgotten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-teacher-0123456789\n"))
    code, out, err = run("teacher-keys", "add", "vendor", "--json")
    made = json.loads(out)
    assert (code, made["name"], made["last4"]) == (0, "vendor", "6789")
    assert made["id"] in run("teacher-keys", "ls")[1]
    code, out, err = run("teacher-keys", "test", "vendor", "http://127.0.0.1:9/v1")
    assert (code, out, "not allowed" in err) == (1, "", True)
    assert json.loads(run("teacher-keys", "test", made["id"], "http://127.0.0.1:9/v1", "--json")[1])["passed"] is False
    assert 'did you mean "vendor"' in run("teacher-keys", "rm", "vendro")[2]
    assert run("teacher-keys", "remove", "vendor")[:2] == (0, "vendor: forgotten.\n")
    assert "There is no teacher key 'vendor'" in run("teacher-keys", "rm", "vendor")[2]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("teacher-keys", "add", "nothing")[0] == 2
    code, out, err = run("teacher-keys", "add", "vendor", "sk-on-the-line-1234")
    assert (code, "sk-on" in out + err, "never an argument" in err) == (2, False, True)


def test_a_teacher_key_is_asked_for_unseen_and_two_of_a_name_are_told_apart(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda question: "sk-teacher-0123456789")
    ids = [json.loads(run("teacher-keys", "add", "twin", "--json")[1])["id"] for _ in range(2)]
    code, _, err = run("teacher-keys", "rm", "twin")
    assert (code, all(id in err for id in ids)) == (1, True)
    assert [run("teacher-keys", "rm", id)[0] for id in ids] == [0, 0]


def test_a_compile_s_page_and_its_log(run: Run, spec: str, stack: WebStack) -> None:
    id = json.loads(run("compile", spec, "--no-wait", "--json")[1])["id"]
    assert run("open", id, "--print")[1] == f"{stack.deployment.url}/app/compiles/{id}\n"
    assert "compile is queued" in run("logs", id)[1]
    assert run("open", "no-such-name", "--print")[0] == 1
    run("cancel", id)


def test_usage_bills_and_budgets(run: Run, spec: str) -> None:
    assert json.loads(run("usage", "--by", "sku", "--json")[1])["object"] == "usage_report"
    assert "total" in run("usage", "--from", "2026-11-01", "--to", "2026-11-02")[1]
    assert run("usage", "--csv")[1].startswith("occurred_at,")
    assert run("usage", "--by", "tag:team", "--tag", "team:search")[0] == 0
    bill = run("bill")[1]
    assert "$0" in bill
    assert "too early to say" in bill
    assert "total" in run("bill", "--groups")[1]
    assert json.loads(run("bill", "--month", "2020-01", "--json")[1])["groups"] == []
    assert run("bill", "--invoice", "inv_01k0nr4t8v2x6z0b3d7f1h5j9m")[0] != 0
    made = json.loads(run("budgets", "set", "12.50", "--json")[1])
    assert made["cap_microusd"] == 12_500_000
    assert json.loads(run("budgets", "set", "13", "--json")[1])["id"] == made["id"]
    assert "$13.00" in run("budgets", "ls")[1]
    assert run("budgets", "rm", made["id"])[0] == 0
    id = json.loads(run("compile", spec, "--no-wait", "--json")[1])["id"]
    assert json.loads(run("bill", id, "--json")[1])["compile"] == id
    run("cancel", id)


def test_a_budget_that_is_used_up_is_exit_code_five(run: Run, spec: str) -> None:
    made = json.loads(run("budgets", "set", "0.01", "--json")[1])
    try:
        code, _, err = run("compile", spec)
        assert (code, "budget" in err) == (5, True)
    finally:
        run("budgets", "rm", made["id"])


def test_webhooks(run: Run) -> None:
    code, out, _ = run("webhooks", "create", "http://127.0.0.1:9/hook", "--events", "compile.*,webhook.test", "--json")
    made = json.loads(out)
    assert (code, made["events"]) == (0, ["compile.*", "webhook.test"])
    assert made["id"] in run("webhooks", "ls")[1]
    code, out, _ = run("webhooks", "test", made["id"])  # nobody listens on port 9
    assert (code, "failed" in out) == (1, True)
    rows = [
        json.loads(line) for line in run("webhooks", "deliveries", "--endpoint", made["id"], "--json")[1].splitlines()
    ]
    assert [row["type"] for row in rows] == ["webhook.test"]
    assert run("show", rows[0]["id"])[0] == 0
    assert run("webhooks", "replay", rows[0]["id"])[0] == 0
    assert "sent again" in run("webhooks", "replay", made["id"], "--since", "2026-11-21T00:00:00Z")[1]
    assert run("webhooks", "replay", made["id"])[0] == 2
    assert run("webhooks", "rm", made["id"])[0] == 0


def test_exit_codes_of_what_cannot_be_asked(run: Run, spec: str) -> None:
    assert run("ls", "--api", "http://127.0.0.1:9")[0] == 7
    assert run("ls", "--key", "sk_test_nonsense")[0] == 6
    code, _, err = run("budgets", "set", "a lot")
    assert (code, "'a lot' is no amount in US dollars" in err) == (2, True)


def test_the_typed_client_takes_the_saved_log_in(
    run: Run, stack: WebStack, customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("login", "--api", stack.deployment.url, "--key", customer.key)[0] == 0
    monkeypatch.delenv("KOLM_API_URL")
    monkeypatch.delenv("KOLM_API_KEY")
    with kolm.Client() as client:
        assert client.tenant.get().name == "Acme"
