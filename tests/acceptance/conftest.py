"""One deployment for all acceptance tests, with a teacher server whose origin it allows, a customer and a stranger."""

from collections.abc import Iterator

import pytest

from tests.acceptance.deployment import Customer, Deployment, running
from tests.acceptance.teacher_server import TeacherServer, teacher_server


@pytest.fixture(scope="session")
def teacher() -> Iterator[TeacherServer]:
    with teacher_server() as server:
        yield server


@pytest.fixture(scope="session")
def deployment(teacher: TeacherServer) -> Iterator[Deployment]:
    with running(allow_teachers=teacher.origin) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def customer(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("Acme") as customer:
        yield customer


@pytest.fixture(scope="session")
def stranger(deployment: Deployment) -> Iterator[Customer]:
    with deployment.customer("Stranger") as customer:
        yield customer
