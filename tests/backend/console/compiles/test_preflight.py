"""The button Preflight on the page of a new compile, and the list on a compile's own page."""

from typing import Any

import pytest
import yaml

from backend.domain.planning.preflight.lines import Check, failed_line, in_order, passed_line
from backend.domain.roles import Role
from backend.preflight import runner_lines, teacher_checks
from backend.runner_jobs.models import Runner
from backend.valkey import pause
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import change, make_compile, public_id, small_spec
from tests.factories import make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

PREFLIGHT = "/app/compiles/new/preflight"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def tenant():
    Runner.objects.all().delete()
    pause.note_answer()
    return make_tenant()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(teacher_checks.ask_models, "__kwdefaults__", {"wait_s": 0.2})
    monkeypatch.setattr(runner_lines.check_runners, "__kwdefaults__", {"wait_s": 0.2})


def ask(client: Any, text: str, *, by_script: bool = True) -> str:
    headers = {"HX-Request": "true"} if by_script else {}
    answer = client.post(PREFLIGHT, {"spec": text, "token": "0" * 32, "budget": ""}, headers=headers)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return answer.content.decode()


def test_the_button_shows_the_list_with_what_to_do(tenant):
    text = ask(
        logged_in(tenant, Role.DEVELOPER), yaml.safe_dump(small_spec(gate={"min_heldout": 5, "accuracy_lower": 0.99}))
    )
    assert "a compile is refused" in text
    assert "gate_unreachable" in text
    assert "not known" in text, "no runner is there"
    assert "<textarea" not in text, "a fragment"


def test_without_a_script_the_list_is_in_the_editor(tenant):
    text = ask(logged_in(tenant, Role.DEVELOPER), yaml.safe_dump(small_spec()), by_script=False)
    assert "<textarea" in text
    assert "a compile can end" in text
    assert "router" in text


def test_the_fallback_model_and_the_model_that_gives_rewards_have_lines_in_it(tenant):
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}
    teacher = {"provider": "openai_compatible", "model": "m-1", "base_url": "https://llm.example.com/v1"}
    teacher |= {"price": price, "fallback_model": "m-2"}
    reward = {"kind": "reward", "base_url": "https://rewards.example.com/v1", "model": "judge-1", "price": price}
    text = ask(logged_in(tenant, Role.DEVELOPER), yaml.safe_dump(small_spec(teacher=teacher, verifiers=[reward])))
    for check, name in (("teacher", "teacher"), ("fallback", "fallback model"), ("reward", "reward model")):
        assert f"<b>{check}</b>: It is not known whether the {name} answers" in text, "no worker is there"


@pytest.mark.parametrize("text", ["task: [", "{}", HOSTILE])
def test_what_is_no_spec_is_a_sentence(tenant, text):
    shown = ask(logged_in(tenant, Role.DEVELOPER), text)
    assert "callout bad" in shown
    assert HOSTILE not in shown


def test_who_may_not_compile_may_not_ask(tenant):
    assert logged_in(tenant, Role.VIEWER).post(PREFLIGHT, {"spec": "{}"}).status_code == 403


def test_a_compiles_page_has_its_list(tenant):
    row = make_compile(tenant)
    wrong = failed_line(
        Check.TEACHER, f"It refuses the key {HOSTILE}.", code="wrong_key", what_to_do="Store the right one."
    )
    change(row, preflight=in_order([passed_line(Check.GOLD, "There is enough."), wrong]).to_json())
    text = get(logged_in(tenant, Role.VIEWER), f"/app/compiles/{public_id(row)}?tab=all")
    assert "Store the right one." in text
    assert 'href="/docs/errors#wrong_key"' in text
    assert HOSTILE not in text
