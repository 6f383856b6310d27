"""A Stripe on loopback for tests: stateful, with a test clock, faults on demand, and the real SDK as its client.

    with StripeDouble(now=..., seed=1) as double:
        settings.KOLM_STRIPE_API = double.address

Requests are checked against the SDK's types (`stripe_params`); what each object does is in `stripe_billing` and
`stripe_meters`, each behaviour with the page that it copies. Here are HTTP, idempotency and faults.
"""

import json
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.doubles.stripe_billing import Billing
from tests.doubles.stripe_meters import Meters
from tests.doubles.stripe_params import Refused, checked, nested
from tests.doubles.stripe_world import DAY_S, World, page, public

Answer = tuple[int, dict[str, Any]]


@dataclass
class Faults:
    """Chances per request. `after`: the work is done, the answer lost or a 500."""

    p_429: float = 0.0
    p_500_after: float = 0.0
    p_500_before: float = 0.0
    p_reset_after: float = 0.0
    latency_s: float = 0.0
    n_injected: int = 0


@dataclass
class Kept:
    """What was answered under an idempotency key; `answer` of None: still at work."""

    request: tuple[str, str, str]
    at: int
    answer: Answer | None = None


class _Reset(Exception):
    """The connection is cut without an answer."""


@dataclass
class StripeDouble:
    now: int
    seed: int = 0
    secret: str = "whsec_double"
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.world = World(now=self.now, rng=random.Random(self.seed + 1), secret=self.secret)
        self.meters = Meters(self.world)
        self.billing = Billing(self.world, self.meters)
        self.keys: dict[str, Kept] = {}
        self.lock = threading.RLock()
        self.requests: list[tuple[str, str]] = []

    def __enter__(self) -> "StripeDouble":
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def advance(self, to: int, *, step_s: int = 1_800) -> None:
        """Move the test clock, doing on the way what falls due; it never goes back."""
        while self.world.now < to:
            with self.lock:
                self.world.now = min(to, self.world.now + step_s)
                self.billing.tick()
            self.world.deliver_due()

    # --- one request ------------------------------------------------------------------------------------------

    def handle(self, method: str, path: str, form: str, key: str | None) -> Answer:
        if self.world.has_outage:
            raise _Reset
        if self.rng.random() < self.faults.p_429:
            self.faults.n_injected += 1
            return 429, _error("Too many requests.", "rate_limit_error", "rate_limit")
        if method != "POST" or not key:
            return self._faulty(method, path, form)
        return self._once(method, path, form, key)

    def _once(self, method: str, path: str, form: str, key: str) -> Answer:
        """Page "Idempotent requests": "saves the status code and body of the first request made with a given
        idempotency key after endpoint execution begins. Retries with the same key return the saved response, including
        500 errors." """
        with self.lock:
            kept = self.keys.get(key)
            # Ibid.: "You can remove keys from the system automatically after they're at least 24 hours old. We
            # generate a new request if a key is reused after the original is pruned."
            if kept is None or self.world.now - kept.at > DAY_S:
                kept = None
                self.keys[key] = Kept((method, path, form), self.world.now)
        if kept is not None:
            return self._again(kept, (method, path, form))
        try:
            answer = self._faulty(method, path, form)
        except _Reset as reset:
            self.keys[key].answer = reset.args[0]
            raise
        if answer[1].pop("_unsaved", False):
            # Ibid.: results are saved "only after the execution of an endpoint begins", so not when parameters fail
            # validation.
            del self.keys[key]
        else:
            self.keys[key].answer = answer
        return answer

    @staticmethod
    def _again(kept: Kept, request: tuple[str, str, str]) -> Answer:
        # Ibid.: "The idempotency layer compares incoming parameters to those of the original request and errors if
        # they're not the same to prevent accidental misuse."
        if kept.request != request:
            return 400, _error(
                "Keys for idempotent requests can only be used with the same parameters.", "idempotency_error"
            )
        if kept.answer is None:
            # Page "Advanced error handling": 409 for a key whose first request is still at work.
            message = "There is currently another in-progress request using this idempotency key."
            return 409, _error(message, "idempotency_error", "idempotency_key_in_use")
        return kept.answer

    def _faulty(self, method: str, path: str, form: str) -> Answer:
        if self.faults.latency_s:
            time.sleep(self.faults.latency_s)
        with self.lock:
            self.requests.append((method, path))
            if self.rng.random() < self.faults.p_500_before:
                self.faults.n_injected += 1
                return 500, _error("An error occurred.", "api_error")
            try:
                answer: Answer = 200, public(self._route(method, path, nested(form)))
            except Refused as refused:
                return refused.status, {**refused.body, "_unsaved": True}
            if self.rng.random() < self.faults.p_500_after:
                self.faults.n_injected += 1
                return 500, _error("An error occurred after the work was done.", "api_error")
            if self.rng.random() < self.faults.p_reset_after:
                self.faults.n_injected += 1
                raise _Reset(answer)
            return answer

    def _route(self, method: str, path: str, given: dict[str, Any]) -> dict[str, Any]:
        for verb, pattern, params, action in self._routes():
            match = re.fullmatch(pattern, path)
            if verb == method and match:
                return action(checked(params, given), *match.groups())
        raise Refused(f"Unrecognized request URL ({method}: {path}).", status=404)

    def _routes(self) -> list[tuple[str, str, str, Callable[..., dict[str, Any]]]]:
        one, billing, meters = "/([^/]+)", self.billing, self.meters
        return [
            ("POST", "/v1/customers", "customer_create", self._customer),
            ("GET", f"/v1/customers{one}", "customer_retrieve", self._find("customer")),
            ("POST", "/v1/products", "product_create", billing.product),
            ("GET", f"/v1/products{one}", "product_retrieve", self._find("product")),
            ("POST", "/v1/prices", "price_create", billing.price),
            ("GET", "/v1/prices", "price_list", self._prices),
            ("GET", f"/v1/prices{one}", "price_retrieve", self._find("price")),
            ("POST", "/v1/billing/meters", "billing.meter_create", meters.create),
            ("GET", "/v1/billing/meters", "billing.meter_list", self._list("billing.meter")),
            ("GET", f"/v1/billing/meters{one}/event_summaries", "billing.meter_event_summary_list", self._summaries),
            ("POST", "/v1/billing/meter_events", "billing.meter_event_create", meters.record),
            ("POST", "/v1/billing/credit_grants", "billing.credit_grant_create", meters.grant),
            ("GET", "/v1/billing/credit_grants", "billing.credit_grant_list", self._list("billing.credit_grant")),
            ("POST", "/v1/checkout/sessions", "checkout.session_create", billing.checkout),
            ("GET", f"/v1/checkout/sessions{one}", "checkout.session_retrieve", self._find("checkout.session")),
            ("POST", "/v1/billing_portal/sessions", "billing_portal.session_create", self._portal),
            ("POST", "/v1/billing_portal/configurations", "billing_portal.configuration_create", self._configure),
            (
                "GET",
                "/v1/billing_portal/configurations",
                "billing_portal.configuration_list",
                self._list("billing_portal.configuration"),
            ),
            ("GET", f"/v1/subscriptions{one}", "subscription_retrieve", self._find("subscription")),
            ("GET", "/v1/invoices", "invoice_list", self._invoices),
            ("GET", f"/v1/invoices{one}", "invoice_retrieve", self._find("invoice")),
            ("POST", f"/v1/invoices{one}", "invoice_update", self._update_invoice),
            ("POST", f"/v1/invoices{one}/finalize", "invoice_finalize_invoice", self._finalize),
        ]

    def _find(self, kind: str) -> Callable[..., dict[str, Any]]:
        def find(_: dict[str, Any], id: str) -> dict[str, Any]:
            row = self.world.get(kind, id)
            if row is None:
                raise Refused(f"No such {kind}: '{id}'", status=404, code="resource_missing", param="id")
            return row

        return find

    def _list(self, kind: str) -> Callable[..., dict[str, Any]]:
        def rows(query: dict[str, Any]) -> dict[str, Any]:
            found = list(self.world.all(kind))[::-1]
            if "customer" in query:
                found = [row for row in found if row["customer"] == query["customer"]]
            return page(found, f"/v1/{kind}", query)

        return rows

    def _customer(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.world.add("cus", "customer", **({"metadata": {}, "email": None} | given))

    def _prices(self, query: dict[str, Any]) -> dict[str, Any]:
        keys = query.get("lookup_keys")
        rows = [row for row in self.world.all("price") if keys is None or row["lookup_key"] in keys]
        return page(rows[::-1], "/v1/prices", query)

    def _summaries(self, query: dict[str, Any], meter: str) -> dict[str, Any]:
        return page(self.meters.summaries(meter, query), f"/v1/billing/meters/{meter}/event_summaries", query)

    def _portal(self, given: dict[str, Any]) -> dict[str, Any]:
        row = self.world.add("bps", "billing_portal.session", **given)
        row["url"] = f"https://billing.stripe.com/p/session/{row['id']}"
        return row

    def _configure(self, given: dict[str, Any]) -> dict[str, Any]:
        return self.world.add("bpc", "billing_portal.configuration", is_default=True, active=True, **given)

    def _invoices(self, query: dict[str, Any]) -> dict[str, Any]:
        rows = list(self.world.all("invoice"))[::-1]
        wanted = query.get("subscription")
        if wanted:
            rows = [row for row in rows if row["parent"]["subscription_details"]["subscription"] == wanted]
        return page(rows, "/v1/invoices", query)

    def _update_invoice(self, given: dict[str, Any], id: str) -> dict[str, Any]:
        row = self._find("invoice")({}, id)
        if row["status"] != "draft" and "auto_advance" not in given:
            raise Refused("Finalized invoices can't be updated.", code="invoice_not_editable")
        row |= given
        return row

    def _finalize(self, given: dict[str, Any], id: str) -> dict[str, Any]:
        self._find("invoice")({}, id)
        return self.billing.finalize(id, collects=bool(given.get("auto_advance", False)))


def _error(message: str, type: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "code": code}}


def _handler(double: StripeDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body go out at once, whatever the peer has acknowledged

        def do_GET(self) -> None:
            at = urlsplit(self.path)
            self._answer("GET", at.path, at.query)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            self._answer("POST", urlsplit(self.path).path, body)

        def _answer(self, method: str, path: str, form: str) -> None:
            if not self.headers.get("Authorization", "").startswith("Bearer sk_"):
                return self._write(401, _error("Invalid API Key provided.", "invalid_request_error"))
            try:
                status, body = double.handle(method, path, form, self.headers.get("Idempotency-Key"))
            except _Reset:
                self.close_connection = True
                self.connection.close()
                return None
            return self._write(status, body)

        def _write(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Request-Id", f"req_{len(double.requests)}")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    return Handler
