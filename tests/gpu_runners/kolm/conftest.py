"""One real web process for the tests of the client and of the commands that ask it."""

from collections.abc import Iterator

import pytest

from gpu_runners import kolm
from tests.acceptance.deployment import Customer
from tests.web_stack import WebStack, running_web


@pytest.fixture(scope="package")
def stack() -> Iterator[WebStack]:
    settings = {"KOLM_ALLOW_PRIVATE_WEBHOOKS": "http://127.0.0.1:9", "KOLM_DEFAULT_PLAN": "enterprise"}
    with running_web(forgetful=True, **settings) as stack:
        yield stack


@pytest.fixture(scope="package")
def customer(stack: WebStack) -> Iterator[Customer]:
    with stack.deployment.customer("Acme") as customer:
        yield customer


@pytest.fixture
def client(stack: WebStack, customer: Customer) -> Iterator[kolm.Client]:
    with kolm.Client(customer.key, stack.deployment.url) as client:
        yield client
