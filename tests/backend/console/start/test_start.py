"""The guided first compile: data, task, teacher and budget become the spec that the editor shows, and a compile."""

import html
import re
from typing import Any

import pytest
import yaml
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from backend.compiles.models import Compile, TeacherKey, Upload
from backend.compiles.uploads.curves import keep_curve
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.labeling.learning_curves import CurvePoint
from backend.domain.planning.own_curves import OwnCurve
from backend.tenants.isolation import tenant_scope
from tests.backend.console.pages import get, logged_in, post
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db

WORDS = ("refund", "status")
TABLE = "text,label\n" + "".join(f"message number {n} of a customer,{WORDS[n % 2]}\n" for n in range(120))


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def upload(tenant):
    file = SimpleUploadedFile("Support tickets.csv", TABLE.encode())
    post(logged_in(tenant), "/app/uploads/store", {"file": file, "name": "Support tickets.csv"})
    with tenant_scope(tenant.id):
        return encode_id(Prefix.UPLOAD, Upload.objects.get().id)


def form(upload: str, **changes: Any) -> dict[str, Any]:
    return {
        "token": "one",
        "upload": upload,
        "name": "tickets",
        "task": "Route a ticket.",
        "about-0": "Wants money back.",
        "provider": "demo",
        "budget": "5",
    } | changes


def spec_in(text: str) -> dict[str, Any]:
    area = re.search(r'<textarea class="code" name="spec"[^>]*>(.*?)</textarea>', text, re.DOTALL)
    assert area is not None, text[:2000]
    return yaml.safe_load(html.unescape(area[1]))


def test_without_data_the_guide_begins_with_a_place_to_drop_it(tenant, upload):
    text = get(logged_in(tenant), "/app/start")
    assert "Choose a file" in text
    assert f"?upload={upload}" in text


def test_with_data_the_form_is_filled_in_and_has_an_estimate(tenant, upload):
    text = get(logged_in(tenant), f"/app/start?upload={upload}")
    assert 'value="support-tickets-csv"' in text or 'value="support-tickets"' in text
    assert "gpt-5-mini: 0.25 / 2, suggested" in text
    spec = spec_in(text)
    assert spec["examples"]["upload"] == upload
    assert spec["teacher"]["base_url"] == "https://api.openai.com/v1"
    assert [label["name"] for label in spec["output"]["labels"]] == ["refund", "status"]
    assert "Expected" in text


def test_what_is_answered_changes_the_spec_and_the_models(tenant, upload):
    changes = {"provider": "anthropic", "model": "claude-haiku-5-5", "budget": "2.5"}
    text = post(logged_in(tenant), "/app/start/check", form(upload, **changes), status=200).content.decode()
    assert "claude-haiku-5-5: 0.1 / 0.5, suggested" in text
    spec = spec_in(text)
    assert spec["teacher"]["model"] == "claude-haiku-5-5"
    assert spec["budget"]["usd"] == 2.5
    assert spec["output"]["labels"][0] == {"name": "refund", "description": "Wants money back."}


def test_a_model_of_another_vendor_gives_way_to_the_suggested_one(tenant, upload):
    changes = {"provider": "openai", "model": "claude-haiku-5-5"}
    text = post(logged_in(tenant), "/app/start/check", form(upload, **changes), status=200).content.decode()
    assert spec_in(text)["teacher"]["model"] == "gpt-5-mini"


def test_an_address_of_ones_own_has_its_model_and_price(tenant, upload):
    changes = {
        "provider": "other",
        "base_url": "https://llm.example.com/v1",
        "model": "mine",
        "price_input": "0.1",
        "price_output": "0.2",
    }
    text = post(logged_in(tenant), "/app/start/check", form(upload, **changes), status=200).content.decode()
    teacher = spec_in(text)["teacher"]
    assert (teacher["base_url"], teacher["model"]) == ("https://llm.example.com/v1", "mine")
    assert teacher["price"] == {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": 0.2}


def test_a_budget_that_is_no_number_is_said_and_keeps_the_form(tenant, upload):
    answer = post(logged_in(tenant), "/app/start", form(upload, budget="much", task="Mine <b>"), status=422)
    text = answer.content.decode()
    assert "must be an amount in US dollars" in text
    assert "Mine &lt;b&gt;" in text


def test_the_form_starts_one_compile_however_often_it_is_sent(tenant, upload):
    client = logged_in(tenant)
    first = post(client, "/app/start", form(upload))
    again = post(client, "/app/start", form(upload))
    assert first["Location"] == again["Location"]
    with tenant_scope(tenant.id):
        row = Compile.objects.get()
    assert row.name == "tickets"
    assert row.spec["task"] == "Route a ticket."


def test_the_spec_goes_on_to_the_editor(tenant, upload):
    client = logged_in(tenant)
    text = post(client, "/app/start/check", form(upload), status=200).content.decode()
    area = re.search(r'<textarea class="code" name="spec"[^>]*>(.*?)</textarea>', text, re.DOTALL)
    editor = post(client, "/app/compiles/new", form(upload, act="check", spec=html.unescape(area[1])), status=200)
    assert "Route a ticket." in editor.content.decode()


@pytest.mark.parametrize(
    ("provider", "secret", "words"),
    [
        ("openai", "sk-ant-api03-abcdefgh1234", "looks like a key of Anthropic"),
        ("anthropic", "sk-proj-abcdefgh12345678", "looks like a key of OpenAI"),
        ("openai", "short", "Paste the whole key"),
        ("openai", "Bearer sk-proj-abcdefgh1234", "begins with Bearer"),
        ("other", "any-key-12345678", "Give the address"),
    ],
)
def test_a_key_of_another_vendor_is_not_stored_and_never_repeated(tenant, provider, secret, words):
    answer = post(logged_in(tenant), "/app/start/key", {"provider": provider, "secret": secret}, status=200)
    text = answer.content.decode()
    assert words in text
    assert secret not in text
    with tenant_scope(tenant.id):
        assert not TeacherKey.objects.exists()


def test_inputs_without_answers_are_no_first_compile(tenant):
    client = logged_in(tenant)
    file = SimpleUploadedFile("inputs.csv", b"text\nwhere is it\nsend it back\n")
    post(client, "/app/uploads/store", {"file": file})
    with tenant_scope(tenant.id):
        public_id = encode_id(Prefix.UPLOAD, Upload.objects.get().id)
    assert "needs examples with answers" in get(client, f"/app/start?upload={public_id}", status=422)


def test_data_of_another_team_is_not_there(tenant, upload):
    get(logged_in(make_tenant()), f"/app/start?upload={upload}", status=404)


def client_without_login() -> Client:
    return Client()


def test_a_stranger_is_sent_to_log_in_and_back(upload):
    answer = client_without_login().get(f"/app/start?upload={upload}")
    assert answer.status_code == 302
    assert "next=" in answer["Location"]


def curve_of_upload(tenant: Any, upload: str, *, accuracy: float) -> None:
    """Keep a curve that ends at this accuracy, as a worker does."""
    points = tuple(
        CurvePoint(n=n, n_rows=120, accuracy=accuracy - 0.2 + n / 480, loss=1.2 - accuracy - n / 480)
        for n in (24, 48, 72, 96)
    )
    curve = OwnCurve(points=points, n_train=120, n_measured=120, n_labels=2)
    keep_curve(tenant.id, decode_id(Prefix.UPLOAD, upload), curve)


def test_the_quality_to_expect_is_asked_for_and_shown_over_the_cost(tenant, upload):
    client = logged_in(tenant)
    assert "A worker is measuring" in get(client, f"/app/start?upload={upload}")
    waiting = post(client, "/app/start/forecast", form(upload), status=200).content.decode()
    assert "A worker is measuring" in waiting
    curve_of_upload(tenant, upload, accuracy=0.97)
    text = post(client, "/app/start/forecast", form(upload), status=200).content.decode()
    assert "Your 60 training examples alone: about" in text
    assert "if they teach as much as your own" in text
    assert "Accuracy to expect over the cost" in text
    assert "lower bound" not in text
    assert "Quality and cost" in get(client, f"/app/start?upload={upload}")


def test_a_gate_that_is_hardly_reached_is_a_warning_before_anything_is_spent(tenant, upload):
    curve_of_upload(tenant, upload, accuracy=0.6)
    text = post(logged_in(tenant), "/app/start/forecast", form(upload), status=200).content.decode()
    assert "The gate asks for a lower bound of 80.0 %" in text
    assert "more than is to be expected" in text


def test_the_page_of_an_upload_says_what_its_rows_teach(tenant, upload):
    client = logged_in(tenant)
    assert f"/app/uploads/{upload}/forecast" in get(client, f"/app/uploads/{upload}")
    curve_of_upload(tenant, upload, accuracy=0.9)
    text = get(client, f"/app/uploads/{upload}/forecast")
    assert "Accuracy over training examples" in text
    assert "Twice as many examples of your own" in text
    assert "hx-get" not in text


def test_the_forecast_of_another_team_is_not_there(tenant, upload):
    other = logged_in(make_tenant())
    get(other, f"/app/uploads/{upload}/forecast", status=404)
    post(other, "/app/start/forecast", form(upload), status=404)
