"""One deployment for all acceptance tests, with a teacher server whose origin it allows, a customer and a stranger, and
one small spec that was compiled twice."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.deployment import Customer, Deployment, Row, running
from tests.acceptance.json_specs import small_orders
from tests.acceptance.specs import small_spec
from tests.acceptance.teacher_server import TeacherServer, teacher_server
from tests.tiny_bases import tiny_bases  # noqa: F401 (a fixture)

# offers no drafts: the twins are to be alike, whichever is first
STREET = small_spec("street", draft_cache={"verify": "off"})
STREET_KEY = "street-twin-a"


@pytest.fixture(scope="package")
def teacher() -> Iterator[TeacherServer]:
    with teacher_server() as server:
        yield server


@pytest.fixture(scope="package")
def deployment(teacher: TeacherServer) -> Iterator[Deployment]:
    # nothing is killed here: no lease may run out because the machine is busy
    leases = {"KOLM_COMPILE_LEASE_S": "12", "KOLM_RUNNER_LEASE_S": "12"}
    with running(allow_teachers=teacher.origin, **leases) as deployment:
        yield deployment


@pytest.fixture(scope="package")
def customer(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("Acme") as customer:
        yield customer


@pytest.fixture(scope="package")
def stranger(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("Stranger") as customer:
        yield customer


@pytest.fixture(scope="package")
def twins(customer: Customer) -> tuple[Row, Row]:
    """Two compiles of one spec, under way at the same time."""
    first = customer.api.post("/v1/compiles", json=STREET, headers={"Idempotency-Key": STREET_KEY})
    assert first.status_code == 202, first.text
    assert first.headers["location"] == f"/v1/compiles/{first.json()['id']}"
    second = customer.compile(STREET)
    return customer.succeeded(first.json()["id"], within_s=200), customer.succeeded(second, within_s=200)


@pytest.fixture(scope="package")
def compile(twins: tuple[Row, Row]) -> Row:
    return twins[0]


@pytest.fixture(scope="package")
def orders(tiny_bases: Path, customer: Customer) -> Row:  # noqa: F811
    """A json compile on the tiny base, once it has ended well."""
    return customer.succeeded(customer.compile(small_orders("orders")), within_s=240)


@pytest.fixture(scope="package")
def keyring(deployment: Deployment) -> Row:
    """The public keys, as anybody gets them."""
    response = httpx.get(f"{deployment.url}/.well-known/kolm-keys.json")
    assert response.status_code == 200
    found: Row = response.json()
    return found


@pytest.fixture(scope="package")
def kolm(customer: Customer, compile: Row) -> bytes:
    return customer.download(compile["artifact"])
