"""The Stripe double behaves as Stripe's documentation says, seen through the real SDK."""

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
import stripe

from backend.billing.stripe.meters import hourly_totals
from tests.doubles.stripe_server import StripeDouble
from tests.doubles.stripe_world import DAY_S, HOUR_S

pytestmark = pytest.mark.nightly  # it stands in for Stripe, which the tests of billing ask daily

NOW = int(datetime(2027, 2, 3, 10, 20, tzinfo=UTC).timestamp())


@pytest.fixture
def double():
    with StripeDouble(now=NOW, seed=1) as made:
        yield made


@pytest.fixture
def api(double):
    return stripe.StripeClient("sk_test_x", base_addresses={"api": double.address}, max_network_retries=0).v1


def meter(api: Any, *, window: str | None = "hour", formula: str = "sum") -> Any:
    params: dict[str, Any] = {
        "display_name": "m",
        "event_name": f"e_{window}_{formula}",
        "default_aggregation": {"formula": formula},
    }
    return api.billing.meters.create(params | ({"event_time_window": window} if window else {}))


def report(api: Any, of: Any, customer: str, value: int, at: int, **more: Any) -> None:
    payload = {"stripe_customer_id": customer, "value": str(value)}
    api.billing.meter_events.create({"event_name": of.event_name, "payload": payload, "timestamp": at, **more})


def test_unknown_missing_and_mistyped_parameters_are_refused(api):
    with pytest.raises(stripe.InvalidRequestError, match="unknown parameter: nam") as unknown:
        api.customers.create({"nam": "x"})
    assert unknown.value.code == "parameter_unknown"
    with pytest.raises(stripe.InvalidRequestError, match="Missing required param"):
        api.billing.meters.create({"display_name": "x"})
    with pytest.raises(stripe.InvalidRequestError, match="Invalid integer"):
        api.prices.create({"currency": "usd", "unit_amount": "much"})
    with pytest.raises(stripe.InvalidRequestError, match=r"recurring\[intervall\]"):
        api.prices.create({"currency": "usd", "recurring": {"intervall": "month"}})
    with pytest.raises(stripe.InvalidRequestError, match="Unrecognized request URL"):
        api.coupons.create({"percent_off": 5})


def test_an_idempotency_key_replays_errors_too_and_refuses_other_parameters(api, double):
    first = api.customers.create({"name": "a"}, {"idempotency_key": "k"})
    assert api.customers.create({"name": "a"}, {"idempotency_key": "k"}).id == first.id
    with pytest.raises(stripe.IdempotencyError):
        api.customers.create({"name": "b"}, {"idempotency_key": "k"})

    double.faults.p_500_after = 1.0
    for _ in range(2):
        with pytest.raises(stripe.APIError):
            api.customers.create({"name": "c"}, {"idempotency_key": "poisoned"})
        double.faults.p_500_after = 0.0
    made = [row for row in double.world.all("customer") if row["name"] == "c"]
    assert len(made) == 1, "it was done, once, and the key answers 500 for a day"
    double.world.now += DAY_S + 1
    api.customers.create({"name": "c"}, {"idempotency_key": "poisoned"})

    with pytest.raises(stripe.InvalidRequestError):
        api.customers.create({"wrong": "x"}, {"idempotency_key": "mended"})
    assert api.customers.create({"name": "d"}, {"idempotency_key": "mended"}).name == "d", "refusals are not kept"


def test_a_second_request_under_a_key_that_is_at_work_is_a_conflict(api, double):
    double.faults.latency_s = 0.5
    worker = threading.Thread(target=api.customers.create, args=({"name": "a"}, {"idempotency_key": "k"}))
    worker.start()
    while "k" not in double.keys:
        pass
    with pytest.raises(stripe.APIError) as conflict:
        api.customers.create({"name": "a"}, {"idempotency_key": "k"})
    worker.join()
    assert conflict.value.http_status == 409


def test_a_cut_connection_after_the_work_is_mended_by_the_same_key(api, double):
    double.faults.p_reset_after = 1.0
    with pytest.raises(stripe.APIConnectionError):
        api.customers.create({"name": "a"}, {"idempotency_key": "k"})
    double.faults.p_reset_after = 0.0
    api.customers.create({"name": "a"}, {"idempotency_key": "k"})
    assert len(list(double.world.all("customer"))) == 1


def test_an_outage_answers_nothing_and_a_limit_answers_429(api, double):
    double.world.has_outage = True
    with pytest.raises(stripe.APIConnectionError):
        api.customers.create({"name": "a"})
    double.world.has_outage = False
    double.faults.p_429 = 1.0
    with pytest.raises(stripe.RateLimitError):
        api.customers.create({"name": "a"})


def test_the_newest_event_of_an_hour_counts_and_without_a_window_all_do(api, double):
    windowed, plain = meter(api), meter(api, window=None)
    hour = NOW // HOUR_S * HOUR_S
    for of in (windowed, plain):
        for value, at in ((5, hour), (7, hour + 100), (3, hour + 10)):
            report(api, of, "cus_1", value, at)
        report(api, of, "cus_1", 100, hour - 1)
    assert double.meters.total(windowed.id, "cus_1", hour, hour + HOUR_S) == 3
    assert double.meters.total(plain.id, "cus_1", hour, hour + HOUR_S) == 15
    assert double.meters.total(windowed.id, "cus_1", 0, hour + HOUR_S) == 103


def test_count_and_last_are_what_they_say(api, double):
    for formula, wanted in (("count", 2), ("last", 9)):
        of = meter(api, window=None, formula=formula)
        report(api, of, "cus_1", 4, NOW - 10)
        report(api, of, "cus_1", 9, NOW - 5)
        assert double.meters.total(of.id, "cus_1", 0, NOW) == wanted


def test_times_and_identifiers_have_their_limits(api, double):
    of = meter(api)
    for at in (NOW - 35 * DAY_S - 1, NOW + 301):
        with pytest.raises(stripe.InvalidRequestError):
            report(api, of, "cus_1", 1, at)
    report(api, of, "cus_1", 1, NOW - 35 * DAY_S)
    report(api, of, "cus_1", 1, NOW, identifier="once")
    with pytest.raises(stripe.InvalidRequestError, match="already exists"):
        report(api, of, "cus_1", 2, NOW, identifier="once")
    double.world.now += DAY_S + 1
    report(api, of, "cus_1", 2, NOW, identifier="once")


def test_summaries_come_late_and_by_whole_hours_and_in_pages(api, double, settings):
    settings.KOLM_STRIPE_KEY, settings.KOLM_STRIPE_API = "sk_test_x", double.address
    of = meter(api)
    hour = NOW // HOUR_S * HOUR_S
    for i in range(120):
        report(api, of, "cus_1", i, hour - i * HOUR_S)
    span = {"start": moment(hour - 200 * HOUR_S), "end": moment(hour + HOUR_S)}
    assert hourly_totals(meter_id=of.id, customer="cus_1", **span) == {}
    double.world.now += double.meters.lag_s
    found = hourly_totals(meter_id=of.id, customer="cus_1", **span)
    assert {int(at.timestamp()): int(total) for at, total in found.items()} == {
        hour - i * HOUR_S: i for i in range(120)
    }
    query = {"customer": "cus_1", "start_time": hour + 60, "end_time": hour + HOUR_S}
    with pytest.raises(stripe.InvalidRequestError):
        api.billing.meters.event_summaries.list(of.id, {**query, "value_grouping_window": "hour"})


def moment(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, tz=UTC)


def test_webhooks_are_signed_repeated_and_tried_again(double):
    taken: list[str] = []
    answers = iter([500, 500])

    def receive(body: bytes, signature: str) -> int:
        event = stripe.Webhook.construct_event(body, signature, double.secret, api_key="none")
        status = next(answers, 200)
        if status == 200:
            taken.append(event.id)
        return status

    double.world.send, double.world.p_duplicate = receive, 1.0
    double.world.emit("customer.created", double.world.add("cus", "customer", name="a"))
    double.advance(NOW + 4 * HOUR_S)
    assert len(taken) == 2
    assert len(set(taken)) == 1
    assert json.dumps(taken[0])
