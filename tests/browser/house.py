"""The deployment that all browser tests share: every process of a real one, a team with one person a role, a compile
that succeeded, one that did not pass its gate, a webhook that delivered and one that fails, a budget."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.specs import small_spec
from tests.browser.chromium import Watched

PASSWORD = "correct horse battery"
_MEMBERS = """
import json, sys
import django
django.setup()
from uuid import UUID
from backend.domain.roles import Role
from tests.factories import make_member
tenant, suffix, prefix = UUID(sys.argv[1]), sys.argv[2], sys.argv[3]
made = {role.value: make_member(tenant, role, f"{prefix}{role.value}@{suffix}.example").email for role in Role}
print(json.dumps(made))
"""


@dataclass(kw_only=True)
class Receiver:
    """A customer's server for webhooks on the one address that this deployment sends to on this machine. `/fails`
    answers 500."""

    origin: str
    bodies: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiver(origin: str) -> Iterator[Receiver]:
    state = Receiver(origin=origin)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.bodies.append((headers, body))
            self.send_response(500 if self.path.startswith("/fails") else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    address = urlsplit(origin)
    server = ThreadingHTTPServer((address.hostname or "", address.port or 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True, kw_only=True)
class House:
    """`origin` is the address that people type; ids are public."""

    deployment: Deployment
    customer: Customer
    origin: str
    mail: Path
    receiver: Receiver
    people: dict[Role, str]
    compile: Row
    failed: Row
    endpoint: str
    ids: dict[str, str]

    @property
    def tenant(self) -> str:
        return encode_id(Prefix.TENANT, self.customer.tenant_id)


def furnish(deployment: Deployment, customer: Customer, origin: str, mail: Path, hooks: Receiver) -> House:
    """Everything by the API, as a customer would; people alone are made in the database, with a password each."""
    post = customer.api.post
    good = post("/v1/webhook_endpoints", json={"url": f"{hooks.origin}/hook", "events": ["*"], "description": "CI"})
    bad = post("/v1/webhook_endpoints", json={"url": f"{hooks.origin}/fails", "events": ["compile.succeeded"]})
    assert good.status_code == bad.status_code == 201, (good.text, bad.text)
    # two slices of a pool each, drafts of the first offered to the second; the last would have to be perfect
    first = customer.compile(small_spec("refund-router"))
    first_row = customer.succeeded(first, within_s=200)
    second = customer.compile(small_spec("refund-router"))
    third = customer.compile(small_spec("refund-router-strict", gate={"accuracy_lower": 0.9, "k_min": 0.953}))
    row, failed = customer.succeeded(second, within_s=200), customer.ended(third, within_s=200)
    assert failed["status"] == "gate_failed", failed["status"]
    budget = post("/v1/budgets", json={"scope": "tenant", "cap_microusd": 25_000_000})
    assert budget.status_code in (200, 201), budget.text
    deliveries = eventually(
        lambda: customer.get("/v1/webhook_deliveries", limit=50)["data"], within_s=20, what="webhooks are delivered"
    )
    ids = {
        "compile": row["id"],
        "other": first_row["id"],
        "artifact": row["artifact"],
        "endpoint": good.json()["id"],
        "delivery": deliveries[0]["id"],
    }
    return House(
        deployment=deployment,
        customer=customer,
        origin=origin,
        mail=mail,
        receiver=hooks,
        people=members(deployment, customer),
        compile=row,
        failed=failed,
        endpoint=ids["endpoint"],
        ids=ids,
    )


def members(deployment: Deployment, customer: Customer, *, prefix: str = "") -> dict[Role, str]:
    """One person a role; their addresses."""
    suffix = f"t{customer.tenant_id.hex[-10:]}"
    command = [sys.executable, "-c", _MEMBERS, str(customer.tenant_id), suffix, prefix]
    done = subprocess.run(
        command, cwd=ROOT, env=deployment.plan.backend_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {Role(role): email for role, email in json.loads(done.stdout).items()}


def log_in(watched: Watched, email: str, password: str = PASSWORD) -> None:
    watched.open("/accounts/login/")
    page = watched.page
    page.fill("input[name=login]", email)
    page.fill("input[name=password]", password)
    page.locator("main form button[type=submit], main form button:not([type])").first.click()
    page.wait_for_url("**/app/")
