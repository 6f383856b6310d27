"""The twelve main pages of the product over a web process alone, with the same rows every time: three judged compiles
and one that runs, an upload, a deployment, a month's use.

Run as a script with the deployment's environment, `python -m tests.browser.main_pages TENANT`, it writes those rows and
prints their ids; with an upload's id after the tenant's it keeps that upload's learning curve, as a worker would.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import django
from playwright.sync_api import Browser

from backend.domain.roles import Role
from deploy.docs_site import building
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer
from tests.browser import chromium
from tests.browser.house import log_in, members
from tests.web_stack import running_web

N_ROWS = 120
TABLE = "text,label,team\n" + "".join(
    f"message number {n} of a customer,{('refund', 'status')[n % 2]},{('north', 'south')[n % 2]}\n"
    for n in range(N_ROWS)
)
OUTSIDE = frozenset({"landing", "log-in", "docs", "pricing"})  # shown to anybody


@dataclass(frozen=True, kw_only=True)
class MainPages:
    """`paths` are the twelve by name, `more` what is not among them; `state` is somebody's log-in."""

    origin: str
    email: str
    state: Any
    paths: dict[str, str]
    more: dict[str, str]
    ids: dict[str, Any]

    def context(self, browser: Browser, name: str, **more: Any) -> Any:
        """A browser that sees the page as its readers do: some pages are for people who are not logged in."""
        state = None if name in OUTSIDE else self.state
        return chromium.context(browser, self.origin, storage_state=state, **more)


@contextmanager
def main_pages(browser: Browser) -> Iterator[MainPages]:
    assert building.main() == 0
    with running_web(forgetful=True, KOLM_DEFAULT_PLAN="team") as web, web.deployment.customer("Acme") as customer:
        environment = web.deployment.plan.backend_environment()
        ids = _written(environment, str(customer.tenant_id))
        ids |= _by_api(customer, ids["artifact"])
        _written(environment, str(customer.tenant_id), ids["upload"])
        email = members(web.deployment, customer)[Role.OWNER]
        with chromium.context(browser, web.deployment.url) as context, chromium.watched(context) as watched:
            log_in(watched, email)
            state = context.storage_state()
        yield MainPages(
            origin=web.deployment.url, email=email, state=state, paths=_paths(ids), more=_more(ids), ids=ids
        )


def _written(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.browser.main_pages", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    written: dict[str, Any] = json.loads(done.stdout)
    return written


def _by_api(customer: Customer, artifact: str) -> dict[str, Any]:
    headers = {"Content-Type": "text/csv"}
    upload = customer.api.post("/v1/uploads?name=tickets&input=text&output=label", content=TABLE, headers=headers)
    deployment = customer.api.post("/v1/deployments", json={"name": "router", "artifact": artifact})
    budget = customer.api.post("/v1/budgets", json={"scope": "tenant", "cap_microusd": 25_000_000})
    for answer in (upload, deployment, budget):
        assert answer.status_code in (200, 201), answer.text
    return {"upload": upload.json()["id"], "deployment": deployment.json()["id"]}


def _paths(ids: dict[str, Any]) -> dict[str, str]:
    return {
        "landing": "/",
        "log-in": "/accounts/login/",
        "overview": "/app/",
        "guided-start": f"/app/start?upload={ids['upload']}",
        "data": "/app/uploads",
        "new-compile": "/app/compiles/new?example=refund-router",
        "compile": f"/app/compiles/{ids['passed'][0]}",
        "artifact": f"/app/artifacts/{ids['artifact']}",
        "deployment": f"/app/deployments/{ids['deployment']}",
        "playground": f"/app/playground?artifact={ids['artifact']}",
        "bills": "/app/bills",
        "docs": "/docs/quickstart",
    }


def _more(ids: dict[str, Any]) -> dict[str, str]:
    compared = "&".join(f"compile={id}" for id in [*ids["passed"], ids["failed"]])
    return {
        "pricing": "/pricing",
        "first-data": "/app/start",
        "gallery": "/app/gallery",
        "compiles": "/app/compiles",
        "compile-all": f"/app/compiles/{ids['passed'][0]}?tab=all",
        "compile-failed": f"/app/compiles/{ids['failed']}",
        "compare": f"/app/compiles/compare?{compared}",
        "upload": f"/app/uploads/{ids['upload']}",
        "deployments": "/app/deployments",
        "artifacts": "/app/artifacts",
    }


def write(tenant_id: str) -> dict[str, Any]:
    """The rows that no API makes at once."""
    from backend.artifacts.models import Artifact
    from backend.domain.ids import Prefix, decode_id
    from backend.tenants.isolation import tenant_scope
    from backend.usage.ledger import Fact, record
    from tests.browser.judged_compiles import write as write_compiles
    from tests.compile_factories import public_id

    tenant, ids = UUID(tenant_id), write_compiles(tenant_id)
    compile = decode_id(Prefix.COMPILE, ids["passed"][0])
    with tenant_scope(tenant):
        artifact = Artifact.objects.of_tenant(tenant).get(compile_id=compile)
        for step, amount in (("synthesis", 1_204_000), ("labeling", 333_100), ("distillation", 84_220)):
            price = {"sku": "serving.completion_token", "quantity": 1_000, "unit": "token"}
            fact = Fact(**price, price_version="2026-11-26", source_key=step, amount_microusd=amount)
            record(tenant, [fact], compile_id=compile, step=step)
    return ids | {"artifact": public_id(artifact)}


def write_curve(tenant_id: str, upload: str) -> dict[str, Any]:
    """A curve that rises from 71 to 91 % of right answers."""
    from backend.compiles.uploads.curves import keep_curve
    from backend.domain.ids import Prefix, decode_id
    from backend.domain.labeling.learning_curves import CurvePoint
    from backend.domain.planning.own_curves import OwnCurve

    measured = ((24, 0.71), (48, 0.82), (72, 0.88), (96, 0.91))
    points = tuple(CurvePoint(n=n, n_rows=N_ROWS, accuracy=share, loss=1.1 - share) for n, share in measured)
    curve = OwnCurve(points=points, n_train=N_ROWS, n_measured=N_ROWS, n_labels=2)
    keep_curve(UUID(tenant_id), decode_id(Prefix.UPLOAD, upload), curve)
    return {}


if __name__ == "__main__":
    django.setup()
    print(json.dumps(write(*sys.argv[1:]) if len(sys.argv) == 2 else write_curve(*sys.argv[1:])))
