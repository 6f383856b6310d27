"""Teachers' prices in the answers of the API, and the table that lists them."""

import json
from typing import Any

import pytest
from django.test import Client

from backend.compiles.models import Compile
from backend.domain.money.vendor_prices import PriceTable, read_prices, shipped_prices
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import small_spec
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db
VENDOR = {"provider": "openai_compatible", "model": "gpt-4o-mini", "base_url": "https://api.openai.com/v1"}


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def secret(tenant):
    return make_api_key(tenant)


def table(**changes: Any) -> PriceTable:
    row = {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "input_usd_per_mtok": "0.12",
        "output_usd_per_mtok": "0.48",
        "as_of": "2026-11-20",
        "source": "contract 4711",
    } | changes
    return read_prices(json.dumps({"prices": [row]}).encode(), origin="operator")


def post(client: Client, secret: str, path: str, **teacher: Any) -> Any:
    body = json.dumps(small_spec(teacher=VENDOR | teacher))
    return client.post(path, body, content_type="application/json", headers=bearer(secret))


def listed(client: Client, secret: str, query: str = "") -> list[dict[str, Any]]:
    return client.get(f"/v1/teacher_prices{query}", headers=bearer(secret)).json()["data"]


@pytest.mark.nightly
def test_a_vendors_model_needs_no_declared_price_and_every_answer_shows_its_row(client, tenant, secret):
    estimate = post(client, secret, "/v1/compiles/estimate").json()
    row = estimate["teacher_price"]
    assert (row["origin"], row["place"], row["input_usd_per_mtok"]) == ("vendor", "openai", "0.15")
    assert row["source"].startswith("https://")
    assert row["version"] == estimate["teacher_price_version"] == f"vendor-{row['as_of']}-{row['version'][-16:]}"
    assert estimate["warnings"] == []
    assert post(client, secret, "/v1/specs/validate").json()["estimate"]["teacher_price"] == row
    assert post(client, secret, "/v1/compiles").json()["estimate"]["teacher_price"] == row


def test_the_operators_row_goes_before_the_vendors_and_a_compile_keeps_what_it_was_estimated_by(
    client, tenant, secret, settings
):
    settings.KOLM_TEACHER_PRICES = table()
    made = post(client, secret, "/v1/compiles").json()
    settings.KOLM_TEACHER_PRICES = table(input_usd_per_mtok="9")
    assert post(client, secret, "/v1/compiles/estimate").json()["teacher_price"]["input_usd_per_mtok"] == "9"
    with tenant_scope(tenant.id):
        kept = Compile.objects.get().estimate["teacher_price"]
    assert kept == made["estimate"]["teacher_price"]
    assert (kept["input_usd_per_mtok"], kept["origin"], kept["source"]) == ("0.12", "operator", "contract 4711")


def test_a_table_of_last_year_is_a_warning_and_no_refusal(client, secret, settings):
    settings.KOLM_TEACHER_PRICES = table(as_of="2025-01-31")
    answer = post(client, secret, "/v1/compiles")
    assert answer.status_code == 202
    assert answer.json()["estimate"]["warnings"] == [
        "the price of gpt-4o-mini is of 2025-01-31 (contract 4711): check it, or declare teacher.price"
    ]
    declared = {"price": {"input_usd_per_mtok": 0.15, "output_usd_per_mtok": 0.6}}
    assert post(client, secret, "/v1/compiles", **declared).json()["estimate"]["warnings"] == []


def test_a_price_of_zero_is_the_spec_or_a_row_that_says_free(client, secret, settings):
    free = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0}
    estimate = post(client, secret, "/v1/compiles/estimate", price=free).json()
    assert (estimate["teacher_price"]["output_usd_per_mtok"], estimate["worst_batch_microusd"]) == ("0", 0)
    settings.KOLM_TEACHER_PRICES = table(input_usd_per_mtok="0", output_usd_per_mtok="0", free=True)
    assert post(client, secret, "/v1/compiles/estimate").json()["worst_batch_microusd"] == 0


@pytest.mark.parametrize("path", ["/v1/compiles", "/v1/compiles/estimate", "/v1/specs/validate"])
def test_a_model_without_a_price_is_refused_with_the_line_to_paste(client, secret, path):
    answer = post(client, secret, path, model="gpt-4o-mnii")
    (problem,) = answer.json()["errors"]
    assert (answer.status_code, problem["pointer"]) == (422, "/teacher/price")
    assert "price: {input_usd_per_mtok: INPUT, output_usd_per_mtok: OUTPUT}" in problem["detail"]
    assert "gpt-4o-mini" in problem["detail"]


def test_a_vendors_model_at_another_host_asks_for_its_price(client, secret):
    answer = post(client, secret, "/v1/compiles", base_url="https://gateway.example.com/v1")
    (problem,) = answer.json()["errors"]
    assert "at gateway.example.com. Add this line" in problem["detail"]
    assert problem["detail"].endswith("The price at openai is another host's")


def test_the_table_lists_the_operators_rows_and_the_vendors_that_they_do_not_replace(client, secret, settings):
    assert len(listed(client, secret)) == len(shipped_prices().rows)
    settings.KOLM_TEACHER_PRICES = table()
    rows = listed(client, secret)
    assert len(rows) == len(shipped_prices().rows)
    assert rows[0]["origin"] == "operator"
    assert [row["origin"] for row in listed(client, secret, "?model=gpt-4o-mini")] == ["operator"]
    assert {row["place"] for row in listed(client, secret, "?place=groq")} == {"groq"}
    assert listed(client, secret, "?place=acme") == []
    estimated = post(client, secret, "/v1/compiles/estimate").json()["teacher_price"]
    assert estimated.items() <= rows[0].items()


def test_the_table_is_for_keys_that_may_read_compiles(client, tenant):
    assert client.get("/v1/teacher_prices").status_code == 401
    other = make_api_key(tenant, scopes=["billing:read"])
    assert client.get("/v1/teacher_prices", headers=bearer(other)).status_code == 403
