"""The spec editor: checked as it is typed, submitted once, never losing what was typed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile

from backend.compiles.models import Compile, Upload
from backend.domain.money.vendor_prices import read_prices
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in
from tests.compile_factories import make_compile, public_id, small_spec
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

NEW = "/app/compiles/new"
EXAMPLE = Path(__file__).parents[4] / "examples" / "refund-router.yaml"
HOSTILE = "</textarea><script>alert(1)</script>"


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def client(tenant):
    return logged_in(tenant, Role.DEVELOPER)


def compiles_of(tenant) -> list[Compile]:
    with tenant_scope(tenant.id):
        return list(Compile.objects.filter(tenant_id=tenant.id))


def token_in(text: str) -> str:
    return re.search(r'name="token" value="([0-9a-f]{32})"', text).group(1)


def send(client, text: str, *, status: int = 302, **fields: Any) -> Any:
    data = {"spec": text, "token": "0" * 32, "act": "submit", "budget": ""} | fields
    answer = client.post(NEW, data)
    assert answer.status_code == status, answer.content.decode()[:3000]
    return answer


def test_an_example_is_valid_and_has_its_estimate(client):
    text = get(client, f"{NEW}?example=refund-router")
    assert "Route a message that a customer sent" in text
    assert "The spec is valid and its budget is enough" in text
    assert "covers even the high estimate" in text
    assert "N = 96 per slice, K = 32 kept, by auto" in text


def test_the_editor_says_what_a_row_is_and_where_the_teachers_key_goes(client):
    text = get(client, NEW)
    assert '{"input": "…", "output": "…"}' in text
    assert 'href="/app/settings#keys"' in text
    assert 'href="/docs/teachers"' in text


def test_a_spec_is_submitted_as_yaml_or_as_json(client, tenant):
    send(client, yaml.safe_dump(small_spec()))
    answer = send(client, json.dumps(small_spec(name="other-router")), token="1" * 32, budget="2.5")
    first, second = sorted(compiles_of(tenant), key=lambda row: row.created_at)
    assert (first.name, second.name, second.budget_microusd) == ("router", "other-router", 2_500_000)
    assert answer["Location"] == f"/app/compiles/{public_id(second)}"


def test_a_double_click_is_one_compile_and_another_text_another(client, tenant):
    token = token_in(get(client, NEW))
    spec = yaml.safe_dump(small_spec())
    first, again = (send(client, spec, token=token) for _ in range(2))
    assert first["Location"] == again["Location"]
    assert len(compiles_of(tenant)) == 1
    send(client, spec + "\n# changed after going back", token=token)
    assert len(compiles_of(tenant)) == 2


def test_a_refused_spec_stays_in_the_editor_with_its_problems_and_lines(client, tenant):
    text = yaml.safe_dump(small_spec(), sort_keys=False).replace("task:", "taks:") + f"# {HOSTILE}\n"
    page = send(client, text, status=422).content.decode()
    assert "<script>alert" not in page
    assert "&lt;/textarea&gt;&lt;script&gt;" in page
    assert "did you mean &quot;task&quot;" in page
    assert 'data-line="2"' in page
    assert not compiles_of(tenant)


def test_the_fragment_tells_problems_while_typing_and_takes_the_budget_field(client):
    def check(text: str, budget: str = "") -> str:
        answer = client.post(f"{NEW}/check", {"spec": text, "budget": budget}, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        return answer.content.decode()

    assert "appear here as you type" in check("")
    assert "not YAML or JSON" in check("a: [")
    assert "did you mean" in check(yaml.safe_dump(small_spec() | {"nmae": "x"}))
    spec = yaml.safe_dump(small_spec())
    assert "the high estimate is above it" in check(spec, "0.01") or "covers" in check(spec, "0.01")
    assert "too little" in check(spec, "0.000001")
    assert "US dollars" in check(spec, "lots")


def test_the_page_brings_the_editor_and_names_what_it_works_with(client):
    text = get(client, f"{NEW}?example=refund-router")
    for name in (
        "vendor/codemirror.min",
        "console/spec_place",
        "console/spec_hints",
        "console/spec_editor",
        "console/spec_draft",
    ):
        assert re.search(rf'<script src="/static/{name}[.0-9a-f]*\.js" defer>', text), name
    area = re.search(r"<textarea[^>]*>", text).group(0)
    assert 'data-spec-editor data-schema="/v1/specs/schema" data-problems="#checked"' in area
    assert "data-posted" not in area
    assert client.get("/v1/specs/schema").json()["properties"]["task"]["description"]
    for path in ("/app/", "/app/compiles", "/app/bills"):
        assert "codemirror" not in get(client, path)


def test_every_beginning_has_a_draft_of_its_own_person_and_team(client, tenant):
    def draft_of(text: str) -> str:
        return re.search(r'data-draft="([^"]+)"', text).group(1)

    row = make_compile(tenant)
    pages = ("", "?example=refund-router", "?example=inbox-shares", f"?from={public_id(row)}")
    names = [draft_of(get(client, NEW + query)) for query in pages]
    assert len(set(names)) == 4
    assert all(name.startswith(tenant.id.hex) for name in names)
    assert draft_of(get(logged_in(tenant, Role.DEVELOPER), NEW)) != names[0]
    assert draft_of(get(client, f'{NEW}?example="><script>')) == names[0]


def test_a_text_that_was_sent_keeps_its_draft_and_is_newer_than_it(client):
    sent = send(client, "name: half-written", status=422, draft="example-refund-router").content.decode()
    assert ":example-refund-router" in sent
    assert "data-posted" in sent
    hostile = send(client, "name: half-written", status=422, draft=HOSTILE).content.decode()
    assert "<script>alert" not in hostile
    assert re.search(r'data-draft="[0-9a-f]{32}:\d+:new"', hostile)


def test_a_text_stays_as_it_was_sent_from_its_first_line(client):
    page = send(client, "\nname: half-written", status=200, act="check").content.decode()
    assert ">\n\nname: half-written</textarea>" in page  # a browser drops the first line end after the tag


def test_what_is_no_yaml_has_its_line_in_the_list(client):
    answer = client.post(f"{NEW}/check", {"spec": "name: router\ntask: [", "budget": ""})
    assert "not YAML or JSON" in answer.content.decode()
    assert re.search(r'data-line="[23]"', answer.content.decode())


def test_uploads_and_keys_of_others_are_not_found(client):
    spec = yaml.safe_dump(small_spec(captures={"upload": "upl_" + "0" * 26}))
    answer = client.post(f"{NEW}/check", {"spec": spec})
    assert "there is no upload" in answer.content.decode()


def test_a_file_is_uploaded_and_the_text_stays(client, tenant):
    rows = b'{"input": "where is it"}\n{"input": "and now"}\n'
    file = SimpleUploadedFile("captures.jsonl", rows)
    page = send(client, "name: half-written", status=200, act="upload", purpose="captures", file=file).content.decode()
    with tenant_scope(tenant.id):
        upload = Upload.objects.get(tenant_id=tenant.id)
    assert f"captures: {{upload: {public_id(upload)}}}" in page
    assert "name: half-written" in page
    bad = SimpleUploadedFile("bad.jsonl", b'{"inptu": "x"}\n<script>\n')
    page = send(client, "name: half-written", status=422, act="upload", purpose="captures", file=bad).content.decode()
    assert "Line 1" in page
    assert "name: half-written" in page
    send(client, "x", status=422, act="upload", purpose="nonsense")


def test_a_compiles_spec_opens_in_the_editor_in_the_order_of_the_form(client, tenant):
    row = make_compile(tenant)
    text = get(client, f"{NEW}?from={public_id(row)}")
    assert "name: router\ntask: Does the customer ask for money back?" in text
    assert "The spec is valid" in text
    other = make_compile(make_tenant(), name="secret-name")
    assert "secret-name" not in get(client, f"{NEW}?from={public_id(other)}")


def test_who_may_not_compile_gets_no_editor(tenant):
    viewer = logged_in(tenant, Role.VIEWER)
    assert viewer.get(NEW).status_code == 403
    assert viewer.post(NEW, {"spec": "x"}).status_code == 403
    assert viewer.post(f"{NEW}/check", {"spec": "x"}).status_code == 403


def test_the_estimate_says_what_the_teacher_costs_by_whom_and_what_is_doubtful_about_it(client, settings):
    row = {"host": "llm.example.com", "model": "<b>own</b>", "input_usd_per_mtok": "2", "output_usd_per_mtok": "8"}
    row |= {"as_of": "2025-01-31", "source": "contract 4711"}
    settings.KOLM_TEACHER_PRICES = read_prices(json.dumps({"prices": [row]}).encode(), origin="operator")
    teacher = {"provider": "openai_compatible", "model": row["model"], "base_url": "https://llm.example.com/v1"}
    text = client.post(f"{NEW}/check", {"spec": json.dumps(small_spec(teacher=teacher))}).content.decode()
    name = "&lt;b&gt;own&lt;/b&gt;"
    line = f"Teacher {name}: $2 input and $8 output a million tokens, llm.example.com as of 2025-01-31, contract 4711."
    assert line in text
    assert f"the price of {name} is of 2025-01-31 (contract 4711): check it, or declare teacher.price." in text


def test_a_spec_that_is_refused_is_shown_with_the_list_of_what_rows_decide(client):
    gate = {"min_heldout": 5, "accuracy_lower": 0.99}
    answer = send(client, yaml.safe_dump(small_spec(gate=gate, budget={"usd": 0.000001})), status=422)
    text = answer.content.decode()
    assert "Preflight" in text
    assert "a compile is refused" in text
    assert 'href="/docs/errors#gate_unreachable"' in text
    assert "Hold out" in text
    assert 'hx-post="/app/compiles/new/preflight"' in text
