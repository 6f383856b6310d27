"""A stranger's first spec, wrong in every way that we know of: from the spec that is posted to the refusal. Nothing is
paid before it, it has the sentence that mends it, and no key or account of theirs. What is wrong with an answer
is told apart by unit tests (tests/workers/teachers/openai_compatible/test_endpoint_faults.py); here the whole way is
walked, so that nothing between a vendor's refusal and its reader loses the sentence."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.layout import Part
from gpu_runners.cli.main import main
from tests.acceptance.books import check_books, teacher_calls, usage_facts
from tests.acceptance.deployment import Customer, Deployment, Row, eventually, running
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer
from tests.doubles.model_hub import model_hub
from tests.doubles.published_bases import REFUSALS, install_cut, publish
from tests.doubles.wrong_endpoints import CASES, KEY, ORGANISATION, WrongEndpoints, wrong_endpoints

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]  # a stack, fifty compiles, one that waits three minutes

# endpoint: the code of the line, and a word of what to do
ENDPOINTS = {
    "wrong-key": ("wrong_key", "POST /v1/teacher_keys"),
    "no-quota": ("no_quota", "Add credit"),
    "no-balance": ("no_quota", "Add credit"),
    "no-access": ("no_access", "enabled"),
    "no-such-model": ("no_such_model", "GET /v1/models"),
    "no-such-path": ("no_such_path", "up to /v1"),
    "page": ("html", "teacher.base_url"),
    "forbidden-page": ("html", "log-in page"),
    "redirect": ("redirect", "page to log in at"),
    "error-in-200": ("wrong_key", "POST /v1/teacher_keys"),
    "quota-in-200": ("no_quota", "Add credit"),
    "refuses-everything": ("other_refusal", "teacher.dialect"),
    "other-json": ("not_openai", "OpenAI-compatible address"),
    "other-text": ("not_openai", "OpenAI-compatible address"),
    "empty": ("not_openai", "OpenAI-compatible address"),
    "stream": ("stream", "gateway"),
    "not-a-number": ("teacher_protocol", "teacher.base_url"),
    "bomb": ("compressed", "accept-encoding"),
    "endless": ("teacher_timeout", "busy"),
    "flood": ("teacher_too_large", "proxy"),
    "https-port": ("wants_tls", "https://"),
    "method": ("not_openai", "OpenAI-compatible address"),
}
PARTS = (Part.POSTGRES, Part.VALKEY, Part.WEB, Part.WORKER, Part.UPKEEP, Part.RUNNER)
FREE = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}


@pytest.fixture(scope="module")
def far() -> Iterator[WrongEndpoints]:
    with wrong_endpoints() as server:
        yield server


@pytest.fixture(scope="module")
def deployment(
    far: WrongEndpoints, teacher: TeacherServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("first-contact")
    install_cut(folder / "bases")
    (folder / "prices.json").write_text(json.dumps({"prices": priced_at(far.origin.removeprefix("http://"))}))
    with model_hub() as hub:
        publish(hub)
        hubs = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "KOLM_BASE_CACHE": str(folder / "cache")}
        hubs["KOLM_BASE_DIR"] = str(folder / "bases")
        prices = {"KOLM_TEACHER_PRICES": str(folder / "prices.json")}
        origins = f"{far.origin},{teacher.origin}"
        with running(allow_teachers=origins, parts=PARTS, **hubs, **prices) as deployment:
            yield deployment


def priced_at(host: str) -> list[dict[str, Any]]:
    row = {"host": host, "as_of": "2025-01-31", "source": "contract 4711"}
    amounts = {"input_usd_per_mtok": "0.5", "output_usd_per_mtok": "1.5"}
    free = {"input_usd_per_mtok": "0", "output_usd_per_mtok": "0", "free": True}
    return [row | amounts | {"model": "of-last-year"}, row | free | {"model": "of-our-own", "as_of": "2026-11-20"}]


@pytest.fixture(scope="module")
def customer(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("First Contact") as customer:
        yield customer


@pytest.fixture(scope="module")
def key(customer: Customer) -> str:
    response = customer.api.post("/v1/teacher_keys", json={"name": "vendor", "secret": KEY})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def spec_at(far: WrongEndpoints, case: str, key: str | None, **changes: Any) -> dict[str, Any]:
    teacher = asks(far.url(case), "m") | ({"api_key": key} if key else {})
    return small_spec(case, teacher=teacher, **changes)


@pytest.fixture(scope="module")
def refused(far: WrongEndpoints, customer: Customer, key: str) -> dict[str, str]:
    """All compiles at wrong endpoints, under way at the same time; half of them on a key of the customer's own."""
    cases = {case: key if i % 2 == 0 or ENDPOINTS[case][0] == "wrong_key" else None for i, case in enumerate(CASES)}
    return {case: customer.compile(spec_at(far, case, own)) for case, own in cases.items()}


def line_of(lines: list[Row], check: str) -> Row:
    """The line of a check that says most: the failed one, where several are there."""
    rank = ("failed", "warning", "passed", "skipped")
    return min((line for line in lines if line["check"] == check), key=lambda line: rank.index(line["status"]))


def check_refused(deployment: Deployment, customer: Customer, compile: Row, line: Row) -> None:
    """Refused with this line before a candidate was asked for: nothing is charged or held, and no secret is shown."""
    assert (compile["status"], compile["failure"]["code"]) == ("failed", "preflight_failed"), compile["failure"]
    assert line["status"] == "failed"
    assert line["sentence"] in compile["failure"]["message"]
    assert line["what_to_do"] in compile["failure"]["message"]
    assert compile["spent_microusd"] == 0
    check_books(deployment, customer, compile)
    assert {call["key"] for call in teacher_calls(deployment, compile["id"])} <= {"preflight"}
    assert not [fact for fact in usage_facts(deployment, compile["id"]) if fact["billing"] == "charge"]
    shown = json.dumps([compile, customer.events(compile["id"])])
    for secret in (KEY, KEY[-8:], ORGANISATION, "login.example.com"):
        assert secret not in shown


def test_every_wrong_endpoint_has_its_line() -> None:
    assert set(ENDPOINTS) == set(CASES)


@pytest.mark.parametrize("case", ENDPOINTS)
def test_a_compile_at_a_wrong_endpoint_ends_before_it_costs(
    deployment: Deployment, customer: Customer, refused: dict[str, str], far: WrongEndpoints, case: str
) -> None:
    compile = customer.ended(refused[case], within_s=300)
    line = line_of(compile["preflight"]["lines"], "teacher")
    assert (line["code"], ENDPOINTS[case][1] in line["what_to_do"]) == (ENDPOINTS[case][0], True), line
    check_refused(deployment, customer, compile, line)
    assert far.asked[case] <= 16, "a wrong endpoint is not called for as long as it likes"


@pytest.fixture(scope="module")
def looking(customer: Customer, far: WrongEndpoints) -> None:
    """A runner that has looked at a base before: the first look loads a library, and a preflight waits ten seconds."""
    spec = spec_at(far, "warm-up", None, train=training("acme/own-code"))

    def look() -> bool:
        answer = customer.api.post("/v1/specs/validate?preflight=true", json=spec)
        return line_of(answer.json()["preflight"]["lines"], "base")["code"] != "base_not_known"

    eventually(look, within_s=60, what="a runner looks at a base")


def training(base: str) -> dict[str, Any]:
    return {"kind": "causal", "causal": {"base": base}}


@pytest.mark.usefixtures("looking")
@pytest.mark.parametrize("base", REFUSALS)
def test_a_base_that_cannot_be_trained_is_refused_before_the_teacher_is_asked(
    deployment: Deployment, customer: Customer, far: WrongEndpoints, key: str, base: str
) -> None:
    case = f"never-asked-{base.replace('/', '-')}"
    compile = customer.ended(customer.compile(spec_at(far, case, key, train=training(base))), within_s=120)
    line = line_of(compile["preflight"]["lines"], "base")
    code, word = REFUSALS[base]
    assert (line["code"], word in line["what_to_do"]) == (code, True), line
    check_refused(deployment, customer, compile, line)
    assert far.asked[case] == 0


@pytest.mark.parametrize("case", ["wrong-key", "page"])
def test_doctor_and_the_api_say_what_the_compile_would(
    customer: Customer,
    deployment: Deployment,
    far: WrongEndpoints,
    key: str,
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = spec_at(far, case, key)
    answer = customer.api.post("/v1/specs/validate?preflight=true", json=spec)
    assert (answer.status_code, answer.json()["valid"]) == (200, False), answer.text
    line = line_of(answer.json()["preflight"]["lines"], "teacher")
    assert line["code"] == ENDPOINTS[case][0]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    monkeypatch.setenv("KOLM_API_URL", deployment.url)
    monkeypatch.setenv("KOLM_API_KEY", customer.key)
    assert main(["doctor", str(tmp_path / "spec.json")]) == 1
    told = capsys.readouterr().out
    assert line["what_to_do"][:40] in " ".join(told.split())
    assert KEY not in told + answer.text
    facts = deployment.rows(
        "SELECT * FROM usage_usagefact WHERE step = 'preflight' AND tenant_id = %s", customer.tenant_id
    )
    assert facts == [], "a call that failed is not charged"


@pytest.mark.parametrize(
    ("change", "pointer", "word"),
    [
        ({"base_url": "https://llm.example.com/v1/chat/completions"}, "/teacher/base_url", "ends in /chat/completions"),
        ({"base_url": " https://llm.example.com/v1"}, "/teacher/base_url", "a space"),
        ({"base_url": "llm.example.com/v1"}, "/teacher/base_url", "https://"),
        ({"base_url": "http://llm.example.com/v1"}, "/teacher/base_url", "Only https"),
        ({"base_url": f"https://llm.example.com/v1?key={KEY}"}, "/teacher/base_url", "POST /v1/teacher_keys"),
        ({"base_url": f"https://me:{KEY}@llm.example.com/v1"}, "/teacher/base_url", "POST /v1/teacher_keys"),
        ({"api_key": KEY}, "/teacher/api_key", "store the key"),
        ({"model": "gpt-5 mini"}, "/teacher/model", "a space"),
        ({"price": {"input_usd_per_mtok": -1, "output_usd_per_mtok": 1}}, "/teacher/price", "at least 0"),
    ],
)
def test_a_spec_as_pasted_is_refused_at_the_door(
    customer: Customer, far: WrongEndpoints, change: dict[str, Any], pointer: str, word: str
) -> None:
    spec = small_spec("pasted", teacher=asks(far.url("never-asked"), "m") | change)
    response = customer.api.post("/v1/compiles", json=spec)
    assert response.status_code == 422, response.text
    details = [problem["detail"] for problem in response.json()["errors"] if problem["pointer"].startswith(pointer)]
    assert any(word in detail for detail in details), response.text
    assert KEY not in response.text
    assert customer.get("/v1/compiles", name="pasted")["data"] == []


@pytest.mark.parametrize(
    ("pasted", "word"),
    [(f'"{KEY}"', "quotation marks"), (f"Bearer {KEY}", "Bearer"), (f"{KEY[:9]}\n{KEY[9:]}", "line break")],
)
def test_a_key_as_pasted_is_refused_where_it_is_stored(customer: Customer, pasted: str, word: str) -> None:
    response = customer.api.post("/v1/teacher_keys", json={"name": "vendor", "secret": pasted})
    assert (response.status_code, response.json()["code"]) == (400, "bad_key"), response.text
    assert word in response.json()["errors"][0]["detail"]
    assert KEY[9:] not in response.text


def test_a_price_of_last_year_is_doubted_and_a_free_row_is_not(customer: Customer, far: WrongEndpoints) -> None:
    def priced(model: str, **price: Any) -> tuple[Row, Row]:
        teacher = {"provider": "openai_compatible", "model": model, "base_url": far.url("page"), **price}
        spec = small_spec(f"priced-{model}", teacher=teacher)
        answer = customer.api.post("/v1/specs/validate?preflight=true", json=spec)
        assert answer.status_code == 200, answer.text
        return line_of(answer.json()["preflight"]["lines"], "price"), answer.json()["estimate"]

    line, estimate = priced("of-last-year")
    assert (line["status"], line["code"]) == ("warning", "old_price")
    assert "2025-01-31 (contract 4711)" in line["sentence"]
    assert len(estimate["warnings"]) == 1
    line, estimate = priced("of-our-own")
    assert (line["status"], "of-our-own: free" in line["sentence"]) == ("passed", True)
    assert (estimate["worst_batch_microusd"], estimate["warnings"]) == (0, [])
    line, estimate = priced("declared", price=FREE)
    assert (line["code"], "is free, as the spec declares" in line["sentence"]) == ("zero_price", True)
    assert [text for text in estimate["assumptions"] if "declared is free" in text]


def test_a_compile_at_a_price_of_zero_bills_our_own_work_alone(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    """Twice: the second one is offered drafts, whose break-even is of nothing over nothing."""
    for name in ("free-1", "free-2"):
        asked = asks(teacher.url, "steady-free", price=FREE)
        compile = customer.succeeded(customer.compile(small_spec(name, family="free", teacher=asked)), within_s=400)
        facts = usage_facts(deployment, compile["id"])
        asked_for = [fact for fact in facts if fact["sku"].startswith("teacher.")]
        assert asked_for
        assert {fact["amount_microusd"] for fact in asked_for} == {0}
        assert compile["spent_microusd"] == sum(fact["amount_microusd"] for fact in facts) > 0
        check_books(deployment, customer, compile)


def test_no_log_holds_a_key_or_an_account(deployment: Deployment, customer: Customer, refused: dict[str, str]) -> None:
    for compile_id in refused.values():
        customer.ended(compile_id, within_s=300)
    for log in deployment.plan.home.logs.glob("*.log"):
        text = log.read_text(errors="replace")
        for secret in (KEY, KEY[-8:], ORGANISATION):
            assert secret not in text, log.name
